// Local memory: each thread's own, kept as hardware does: the words of a warp's lanes side by side.
#include "local.h"

#include "findings.h"
#include "move.h"

static bool inside(Context* c, Warp* w, u32 site, u32 lane, u64 offset, u32 bytes, bool store) {
    bool in = offset + bytes <= c->local_bytes && offset < c->local_bytes;
    if (in && offset % bytes == 0) return true;
    Use use = store ? Use::WRITE : Use::READ;
    report(c, w, site, 1u << lane, use, Space::LOCAL, offset, bytes, in ? Fault::MISALIGNED : Fault::OUT_OF_BOUNDS);
    return false;
}

template <int W, int V, bool STORE>
static void move_word(Context* c, Warp* w, u64 offset, u32 lane, void* data) {
    u8* value = (u8*)data;
    for (u32 v = 0; v < V; v++) {
        u8* element = value + (v * LANES + lane) * W;
        for (u32 part = 0; part < W; part += W < 4 ? W : 4) {
            u8* p = local_word(c, w, offset + v * W + part, lane);
            if (STORE)
                memcpy(p, element + part, W < 4 ? W : 4);
            else
                memcpy(element + part, p, W < 4 ? W : 4);
        }
    }
}

// A word of all lanes is a line: lanes with one offset share it, eight neighbours a sector, and each offset that lanes
// differ in takes lines of its own. `different` are lanes among which all offsets are.
static void count_rows(Site& s, const u64* address, u32 different, u32 mask, u32 bytes) {
    u32 words = std::max<u32>(bytes / 4, 1);
    for (u32 left = different; left;) {
        u64 one = address[__builtin_ctz(left)] / 4;
        u32 same = different & (different - 1) ? 0 : mask;
        for (u32 bits = same ? 0 : left; bits; bits &= bits - 1)
            if (address[__builtin_ctz(bits)] / 4 == one) same |= bits & -bits;
        left &= ~same;
        for (u32 eighth = 0; eighth < LANES; eighth += 8) s.sector_total += (same >> eighth & 0xff) ? words : 0;
        s.wavefront_total += words;
    }
}

template <int W, int V, bool STORE>
static void local_access(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u64 first = address[__builtin_ctz(mask)] & ~(0xffull << 56);
    u64 difference = 0;
    for (int i = 0; i < LANES; i++) difference |= ((address[i] & ~(0xffull << 56)) ^ first) & (0 - (u64)(mask >> i & 1));
    u32 lanes = (u32)__builtin_popcount(mask);
    s.requests++, s.lane_bytes += (u64)lanes * BYTES;
    count_rows(s, address, difference ? mask : mask & -mask, mask, BYTES);
    if (W == 4 && !difference && mask == FULL && first + BYTES <= c->local_bytes && first % BYTES == 0) {
        u8* p = local_word(c, w, first, 0);
        if (STORE)
            memcpy(p, data, V * 4 * LANES);
        else
            memcpy(data, p, V * 4 * LANES);
        return;
    }
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        u64 offset = address[lane] & ~(0xffull << 56);
        if (inside(c, w, site, lane, offset, BYTES, STORE))
            move_word<W, V, STORE>(c, w, offset, lane, data);
        else if (!STORE)
            clear_lane<W, V>((int)lane, data);
    }
}

#define FORM(W, V)                                                                                            \
    extern "C" void vg_ld_local_##W##_##V(Context* c, Warp* w, u32 site, const u64* a, u32 mask, void* data) { \
        local_access<W, V, false>(c, w, site, a, mask, data);                                                 \
    }                                                                                                         \
    extern "C" void vg_st_local_##W##_##V(Context* c, Warp* w, u32 site, const u64* a, u32 mask, void* data) { \
        local_access<W, V, true>(c, w, site, a, mask, data);                                                  \
    }
FORM(1, 1) FORM(1, 2) FORM(1, 4) FORM(2, 1) FORM(2, 2) FORM(2, 4)
FORM(4, 1) FORM(4, 2) FORM(4, 4) FORM(8, 1) FORM(8, 2)
