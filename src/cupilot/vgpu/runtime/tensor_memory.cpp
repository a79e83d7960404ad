// Fragments of matrices between memory and registers: wmma.load, wmma.store, ldmatrix, stmatrix, and movmatrix.
// Everything goes through the ordinary checked and counted accesses of the lanes.
#include <immintrin.h>

#include <cstring>

#include "engine.h"

// --- the accesses that memory offers --------------------------------------------------------

#define ACCESS(SPACE, T, W, V)                                                                   \
    extern "C" void vg_ld_##SPACE##_##W##_##V(Context*, Warp*, u32, const T*, u32, void*);       \
    extern "C" void vg_st_##SPACE##_##W##_##V(Context*, Warp*, u32, const T*, u32, void*);
#define SPACES(W, V) ACCESS(shared, u32, W, V) ACCESS(global, u64, W, V) ACCESS(generic, u64, W, V)
SPACES(1, 1) SPACES(2, 1) SPACES(4, 1) SPACES(4, 2) SPACES(8, 1) SPACES(8, 2)

namespace {

enum Where : u32 { SHARED, GLOBAL, GENERIC };  // as lower/tensor.py counts them

template <class T>
using Access = void (*)(Context*, Warp*, u32, const T*, u32, void*);

#define ROW(SPACE, STEP)                                                                                           \
    {vg_##STEP##_##SPACE##_1_1, vg_##STEP##_##SPACE##_2_1, vg_##STEP##_##SPACE##_4_1, vg_##STEP##_##SPACE##_4_2,   \
     vg_##STEP##_##SPACE##_8_1, vg_##STEP##_##SPACE##_8_2}
constexpr Access<u32> IN_SHARED[2][6] = {ROW(shared, ld), ROW(shared, st)};
constexpr Access<u64> ELSEWHERE[2][2][6] = {{ROW(global, ld), ROW(global, st)}, {ROW(generic, ld), ROW(generic, st)}};

int form_of(u32 width, u32 count) {
    switch (width) {
        case 1: return 0;
        case 2: return 1;
        case 4: return count == 2 ? 3 : 2;
        default: return count == 2 ? 5 : 4;
    }
}

// One instruction of the warp: `count` elements of `width` bytes per lane, in data[count][32].
void move_lanes(Context* c, Warp* w, u32 site, u32 where, bool store, u32 width, u32 count, const u64* address,
                u32 mask, void* data) {
    if (where != SHARED) {
        ELSEWHERE[where - GLOBAL][store][form_of(width, count)](c, w, site, address, mask, data);
        return;
    }
    alignas(64) u32 inner[LANES];
    for (int i = 0; i < LANES; i++) inner[i] = (u32)address[i];
    IN_SHARED[store][form_of(width, count)](c, w, site, inner, mask, data);
}

// --- 8x8 matrices of 16-bit elements --------------------------------------------------------

void transpose(__m128i* row) {
    __m128i next[8];
    // three perfect shuffles of the eight rows bring element (r, c) to (c, r)
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 4; i++) {
            next[2 * i] = _mm_unpacklo_epi16(row[i], row[i + 4]);
            next[2 * i + 1] = _mm_unpackhi_epi16(row[i], row[i + 4]);
        }
        for (int i = 0; i < 8; i++) row[i] = next[i];
    }
}

// Row r of a matrix lies with lane 8 * matrix + r, as two halves of 8 bytes (data[2][32]); in a fragment's register
// it lies with lanes 4r .. 4r+3.
void spread(const u64* data, int matrix, bool transposed, u32* out) {
    __m128i row[8];
    for (int r = 0; r < 8; r++) {
        const u64* half = data + 8 * matrix + r;
        row[r] = _mm_set_epi64x((i64)half[LANES], (i64)half[0]);
    }
    if (transposed) transpose(row);
    for (int r = 0; r < 8; r++) _mm_storeu_si128((__m128i*)(out + 4 * r), row[r]);
}

void collect(const u32* in, int matrix, bool transposed, u64* data) {
    __m128i row[8];
    for (int r = 0; r < 8; r++) row[r] = _mm_loadu_si128((const __m128i*)(in + 4 * r));
    if (transposed) transpose(row);
    for (int r = 0; r < 8; r++) {
        u64* half = data + 8 * matrix + r;
        half[0] = (u64)_mm_cvtsi128_si64(row[r]);
        half[LANES] = (u64)_mm_extract_epi64(row[r], 1);
    }
}

u32 row_lanes(u32 matrices) { return matrices == 4 ? FULL : (1u << 8 * matrices) - 1; }

}  // namespace

extern "C" void vg_ldmatrix(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32* registers, u32 where,
                            u32 matrices, u32 transposed) {
    alignas(64) u64 data[2 * LANES] = {};
    move_lanes(c, w, site, where, false, 8, 2, address, mask & row_lanes(matrices), data);
    for (u32 m = 0; m < matrices; m++) spread(data, (int)m, transposed, registers + m * LANES);
}

extern "C" void vg_stmatrix(Context* c, Warp* w, u32 site, const u64* address, u32 mask, const u32* registers,
                            u32 where, u32 matrices, u32 transposed) {
    alignas(64) u64 data[2 * LANES] = {};
    for (u32 m = 0; m < matrices; m++) collect(registers + m * LANES, (int)m, transposed, data);
    move_lanes(c, w, site, where, true, 8, 2, address, mask & row_lanes(matrices), data);
}

extern "C" void vg_movmatrix(u32* registers) {
    u64 data[2 * LANES] = {};
    collect(registers, 0, false, data);
    spread(data, 0, true, registers);
}

// --- tiles of wmma fragments ----------------------------------------------------------------

// A tile is eight lines of 4 * `per_lane` elements: line g with lanes 4g .. 4g+3, from the element (line, position) of
// a matrix on. Where lines of the tile are lines of memory (`along`), a lane's elements are neighbours; otherwise
// every element of a lane is an access of its own, with a site of its own. Elements narrower than a register are
// packed; wider ones take a register each.
struct Tile {
    u32 where, bits, per_lane, along, line, position;

    u32 bytes() const { return bits / 8; }
    bool packed() const { return bits < 32; }

    // Of element `number` of every lane; the stride is in elements, and the same for all lanes.
    void address(const u64* base, u64 stride, u32 number, u64* out) const {
        u64 from = (along ? line * stride + position + number : (line + number) * stride + position) * bits / 8;
        u64 by_g = (along ? stride : 1) * bits / 8, by_t = (along ? 1 : stride) * per_lane * bits / 8;
        for (u32 lane = 0; lane < LANES; lane++) out[lane] = base[lane] + from + lane / 4 * by_g + lane % 4 * by_t;
    }
};

// Halves in shared memory: hardware takes rows of 16 bytes, as ldmatrix does, where they are aligned.
static bool as_matrix(const Tile& t, const u64* base, u64 stride, u32 mask) {
    if (t.bits != 16 || mask != FULL) return false;
    if (t.where == GLOBAL || (t.where == GENERIC && base[0] >> 56 != SHARED_WINDOW)) return false;
    return (base[0] + 2 * (u64)t.position) % 16 == 0 && stride % 8 == 0;
}

static void load_as_matrix(Context* c, Warp* w, u32 site, const Tile& t, const u64* base, u64 stride, u32* out) {
    alignas(64) u64 address[LANES], data[2 * LANES] = {};
    for (u64 lane = 0; lane < LANES; lane++)
        address[lane] = base[lane] + 2 * ((t.line + lane % 8) * stride + t.position);
    move_lanes(c, w, site, t.where, false, 8, 2, address, 0xff, data);
    spread(data, 0, !t.along, out);
}

extern "C" void vg_tile_load(Context* c, Warp* w, u32 site, const u64* base, u32 mask, u8* registers, u32 stride,
                             u32 where, u32 bits, u32 per_lane, u32 along, u32 line, u32 position) {
    Tile t{where, bits, per_lane, along, line, position};
    if (as_matrix(t, base, stride, mask)) return load_as_matrix(c, w, site, t, base, stride, (u32*)registers);
    alignas(64) u64 address[LANES];
    t.address(base, stride, 0, address);
    if (along) {
        u32 width = t.packed() ? 4 : t.bytes();
        return move_lanes(c, w, site, where, false, width, t.packed() ? 1 : per_lane, address, mask, registers);
    }
    for (u32 number = 0; number < per_lane; number++) {
        alignas(64) u8 data[8 * LANES] = {};
        if (number) t.address(base, stride, number, address);
        move_lanes(c, w, site + number, where, false, t.bytes(), 1, address, mask, data);
        u32 step = t.packed() ? 4 : t.bytes(), start = number * (t.packed() ? t.bytes() : t.bytes() * LANES);
        for (u32 lane = 0; lane < LANES; lane++)
            memcpy(registers + start + lane * step, data + lane * t.bytes(), t.bytes());
    }
}

extern "C" void vg_tile_store(Context* c, Warp* w, u32 site, const u64* base, u32 mask, const u8* registers,
                              u32 stride, u32 where, u32 bits, u32 per_lane, u32 along, u32 line, u32 position) {
    Tile t{where, bits, per_lane, along, line, position};
    alignas(64) u64 address[LANES];
    t.address(base, stride, 0, address);
    if (along) {
        u32 width = t.packed() ? 4 : t.bytes();
        return move_lanes(c, w, site, where, true, width, t.packed() ? 1 : per_lane, address, mask, (void*)registers);
    }
    for (u32 number = 0; number < per_lane; number++) {
        alignas(64) u8 data[8 * LANES];
        u32 step = t.packed() ? 4 : t.bytes(), start = number * (t.packed() ? t.bytes() : t.bytes() * LANES);
        for (u32 lane = 0; lane < LANES; lane++)
            memcpy(data + lane * t.bytes(), registers + start + lane * step, t.bytes());
        if (number) t.address(base, stride, number, address);
        move_lanes(c, w, site + number, where, true, t.bytes(), 1, address, mask, data);
    }
}
