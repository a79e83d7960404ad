// Matrix products of one warp: D = A x B + C on the registers of 32 lanes.
//
// A register of a fragment (32 lanes, 128 bytes) is a tile: eight rows of 16 bytes, row g in lanes 4g .. 4g+3, which
// is what the PTX ISA's formulas with groupID and threadID_in_group say. Tiles of A hold rows of A, tiles of B hold
// columns of B; both run along k. Accumulators of 32 and 64 bits take two registers for eight columns: the even ones,
// then the odd ones. Only mma.m8n8k4 on halves is laid out differently.
//
// Arithmetic: products of f16, bf16, tf32 and fp8 elements are exact in single precision (bf16 products below its
// range aside); they are added to C one after the other in the order of k, each sum rounded to nearest in single
// precision, so |error| <= k * 2^-24 * (|c| + sum |a*b|). An f16 result is rounded once, at the end. tf32 operands lose
// their low 13 bits, as on hardware. Hardware adds in another order and truncates; the ISA leaves both open.
#include <immintrin.h>

#include <cstring>

#include "engine.h"

// --- floating-point operands ----------------------------------------------------------------

namespace {

// What 16 bytes of a tile's row hold, as floats.
struct F16 {
    static constexpr int PER_ROW = 8;
    static void row(__m128i bits, float* out) { _mm256_storeu_ps(out, _mm256_cvtph_ps(bits)); }
};

struct Bf16 {
    static constexpr int PER_ROW = 8;
    static void row(__m128i bits, float* out) {
        _mm256_storeu_si256((__m256i*)out, _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
};

struct Tf32 {
    static constexpr int PER_ROW = 4;
    static void row(__m128i bits, float* out) {
        _mm_storeu_si128((__m128i*)out, _mm_and_si128(bits, _mm_set1_epi32((int)0xffffe000)));
    }
};

struct E5m2 {  // the upper byte of a half
    static constexpr int PER_ROW = 16;
    static void row(__m128i bits, float* out) {
        F16::row(_mm_unpacklo_epi8(_mm_setzero_si128(), bits), out);
        F16::row(_mm_unpackhi_epi8(_mm_setzero_si128(), bits), out + 8);
    }
};

struct E4m3 {  // no infinities, one NaN per sign
    static constexpr int PER_ROW = 16;
    static void row(__m128i bits, float* out) {
        __m256i word = _mm256_cvtepu8_epi16(bits), size = _mm256_and_si256(word, _mm256_set1_epi16(0x7f));
        // the bits of a half with the exponent's bias 15 instead of 7: 2^8 too small
        __m256i half = _mm256_or_si256(_mm256_slli_epi16(size, 7), _mm256_slli_epi16(_mm256_xor_si256(word, size), 8));
        half = _mm256_or_si256(half, _mm256_srli_epi16(_mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x7f)), 1));
        __m256 scale = _mm256_set1_ps(256);
        _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale));
        _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale));
    }
};

inline __m128i tile_row(const u32* registers, int number, int row) {
    return _mm_loadu_si128((const __m128i*)(registers + number * LANES + 4 * row));
}

// The rows of a fragment of 8 * BLOCKS rows: its registers go down first, then along k.
template <class Element, int BLOCKS, int K, class Out>
inline void unpack(const u32* registers, Out* out) {
    for (int chunk = 0; chunk < K / Element::PER_ROW; chunk++)
        for (int block = 0; block < BLOCKS; block++)
            for (int g = 0; g < 8; g++)
                Element::row(tile_row(registers, chunk * BLOCKS + block, g),
                             out + (8 * block + g) * K + chunk * Element::PER_ROW);
}

// Eight rows of `width` 32-bit elements to `width` rows of eight.
template <int WIDTH>
inline void transpose(const float* in, float* out) {
    if constexpr (WIDTH % 8) {
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < WIDTH; k++) out[8 * k + r] = in[WIDTH * r + k];
        return;
    }
    for (int k = 0; k + 8 <= WIDTH; k += 8) {
        __m256 a[8], b[8];
        for (int r = 0; r < 8; r++) a[r] = _mm256_loadu_ps(in + WIDTH * r + k);
        for (int r = 0; r < 8; r += 2)
            b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]), b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
        for (int r = 0; r < 8; r += 4)
            for (int i = 0; i < 2; i++) {
                a[r + 2 * i] = _mm256_shuffle_ps(b[r + i], b[r + i + 2], 0x44);
                a[r + 2 * i + 1] = _mm256_shuffle_ps(b[r + i], b[r + i + 2], 0xee);
            }
        for (int r = 0; r < 4; r++) {
            _mm256_storeu_ps(out + 8 * (k + r), _mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
            _mm256_storeu_ps(out + 8 * (k + r + 4), _mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
        }
    }
}

// --- accumulators ---------------------------------------------------------------------------

enum Halves : u32 { HALF_C = 1, HALF_D = 2 };

inline __m256 read_accumulator(const u32* c, int row, bool half) {
    int block = row / 8, g = row % 8;
    if (half) return _mm256_cvtph_ps(tile_row(c, block, g));
    __m128 even = _mm_castsi128_ps(tile_row(c, 2 * block, g)), odd = _mm_castsi128_ps(tile_row(c, 2 * block + 1, g));
    return _mm256_set_m128(_mm_unpackhi_ps(even, odd), _mm_unpacklo_ps(even, odd));
}

inline void write_accumulator(u32* d, int row, bool half, __m256 value) {
    int block = row / 8, g = row % 8;
    if (half) {
        _mm_storeu_si128((__m128i*)(d + block * LANES + 4 * g), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    __m128 low = _mm256_castps256_ps128(value), high = _mm256_extractf128_ps(value, 1);
    _mm_storeu_ps((float*)d + 2 * block * LANES + 4 * g, _mm_shuffle_ps(low, high, 0x88));
    _mm_storeu_ps((float*)d + (2 * block + 1) * LANES + 4 * g, _mm_shuffle_ps(low, high, 0xdd));
}

template <class A, class B, int K>
inline void float_product(const u32* a, const u32* b, const u32* c, u32* d, u32 halves) {
    alignas(64) float left[16 * K], columns[8 * K], right[8 * K];
    unpack<A, 2, K>(a, left);
    unpack<B, 1, K>(b, columns);
    transpose<K>(columns, right);
    for (int m = 0; m < 16; m += 8) {  // eight sums at once hide the latency of an addition
        __m256 sum[8];
        for (int i = 0; i < 8; i++) sum[i] = read_accumulator(c, m + i, halves & HALF_C);
        for (int k = 0; k < K; k++) {
            __m256 row = _mm256_load_ps(right + 8 * k);
            for (int i = 0; i < 8; i++) sum[i] = _mm256_fmadd_ps(_mm256_set1_ps(left[(m + i) * K + k]), row, sum[i]);
        }
        for (int i = 0; i < 8; i++) write_accumulator(d, m + i, halves & HALF_D, sum[i]);
    }
}

// --- integers -------------------------------------------------------------------------------

template <bool SIGNED>
struct Byte {
    static constexpr int PER_ROW = 16;
    static void row(__m128i bits, int16_t* out) {
        _mm256_storeu_si256((__m256i*)out, SIGNED ? _mm256_cvtepi8_epi16(bits) : _mm256_cvtepu8_epi16(bits));
    }
};

template <bool SIGNED>
struct Nibble {
    static constexpr int PER_ROW = 32;
    static void row(__m128i bits, int16_t* out) {
        __m128i low = _mm_and_si128(bits, _mm_set1_epi8(15));
        __m128i high = _mm_and_si128(_mm_srli_epi16(bits, 4), _mm_set1_epi8(15));
        __m128i half[2] = {_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)};
        for (int i = 0; i < 2; i++) {
            if (SIGNED) half[i] = _mm_sub_epi8(_mm_xor_si128(half[i], _mm_set1_epi8(8)), _mm_set1_epi8(8));
            Byte<SIGNED>::row(half[i], out + 16 * i);
        }
    }
};

// D = sum + C, wrapping or (.satfinite) clamped.
inline void add_accumulator(const u32* c, u32* d, int row, __m256i sum, bool clamp) {
    __m256i addend = _mm256_castps_si256(read_accumulator(c, row, false)), total = _mm256_add_epi32(addend, sum);
    __m256 result = _mm256_castsi256_ps(total);
    if (clamp) {  // a sum that left the range has a sign that neither part has
        __m256i left = _mm256_and_si256(_mm256_xor_si256(addend, total), _mm256_xor_si256(sum, total));
        __m256i limit = _mm256_xor_si256(_mm256_srai_epi32(addend, 31), _mm256_set1_epi32(INT32_MAX));
        result = _mm256_blendv_ps(result, _mm256_castsi256_ps(limit), _mm256_castsi256_ps(left));
    }
    write_accumulator(d, row, false, result);
}

template <class A, class B, int BLOCKS, int K>
inline void integer_product(const u32* a, const u32* b, const u32* c, u32* d, u32 clamp) {
    alignas(64) int16_t left[8 * BLOCKS * K], columns[8 * K];
    alignas(64) float right[8 * K / 2];  // pairs of int16 along k
    unpack<A, BLOCKS, K>(a, left);
    unpack<B, 1, K>(b, columns);
    transpose<K / 2>((const float*)columns, right);
    for (int m = 0; m < 8 * BLOCKS; m++) {
        __m256i sum = _mm256_setzero_si256();
        for (int pair = 0; pair < K / 2; pair++) {
            i32 both;
            memcpy(&both, left + m * K + 2 * pair, 4);
            __m256i row = _mm256_load_si256((const __m256i*)(right + 8 * pair));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(both), row));
        }
        add_accumulator(c, d, m, sum, clamp);
    }
}

template <int BLOCKS, int K, bool XOR>
inline void bit_product(const u32* a, const u32* b, const u32* c, u32* d) {
    for (int m = 0; m < 8 * BLOCKS; m++) {
        alignas(32) i32 sum[8] = {};
        for (int chunk = 0; chunk < K / 128; chunk++) {
            u64 x[2], y[2];
            memcpy(x, a + (chunk * BLOCKS + m / 8) * LANES + 4 * (m % 8), 16);
            for (int n = 0; n < 8; n++) {
                memcpy(y, b + chunk * LANES + 4 * n, 16);
                for (int i = 0; i < 2; i++) sum[n] += __builtin_popcountll(XOR ? x[i] ^ y[i] : x[i] & y[i]);
            }
        }
        add_accumulator(c, d, m, _mm256_load_si256((const __m256i*)sum), false);
    }
}

// --- double precision -----------------------------------------------------------------------

// Fused multiply-adds in the order of k, rounded to nearest.
template <int BLOCKS, int K>
inline void double_product(const double* a, const double* b, const double* c, double* d) {
    double right[K][8];  // even columns, then odd ones, as accumulators lie
    for (int k = 0; k < K; k++)
        for (int n = 0; n < 8; n++) right[k][n % 2 * 4 + n / 2] = b[k / 4 * LANES + 4 * n + k % 4];
    for (int m = 0; m < 8 * BLOCKS; m++) {
        int even = 2 * (m / 8) * LANES + 4 * (m % 8), odd = even + LANES;
        __m256d sum[2] = {_mm256_loadu_pd(c + even), _mm256_loadu_pd(c + odd)};
        for (int k = 0; k < K; k++) {
            __m256d x = _mm256_set1_pd(a[(k / 4 * BLOCKS + m / 8) * LANES + 4 * (m % 8) + k % 4]);
            for (int i = 0; i < 2; i++) sum[i] = _mm256_fmadd_pd(x, _mm256_loadu_pd(right[k] + 4 * i), sum[i]);
        }
        _mm256_storeu_pd(d + even, sum[0]), _mm256_storeu_pd(d + odd, sum[1]);
    }
}

// --- mma.m8n8k4 on halves -------------------------------------------------------------------

inline float half_at(const u32* registers, int lane, int element) {
    return _cvtsh_ss((uint16_t)(registers[element / 2 * LANES + lane] >> 16 * (element % 2)));
}

enum Layouts : u32 { COLUMN_A = 4, ROW_B = 8 };

// Element i of a lane's accumulators: its row and column in the 8x8 matrix of the lane's quad pair.
inline int accumulator_place(int lane, int i, bool half) {
    int below = lane < 16 ? 0 : 4;
    if (half) return (lane % 4 + below) * 8 + i;
    return ((lane & 1) + (i & 2) + below) * 8 + (i & 4) + (lane & 2) + (i & 1);
}

// Four products, each by lanes 4q .. 4q+3 and 4q+16 .. 4q+19.
inline void quad_pair_product(int quad, const u32* a, const u32* b, const u32* c, u32* d, u32 form) {
    float left[8][4], right[4][8], sum[64];
    for (int t = 0; t < 8; t++) {
        int lane = 4 * quad + t % 4 + (t < 4 ? 0 : 16), below = t < 4 ? 0 : 4, own = t % 4;
        for (int i = 0; i < 4; i++) {
            (form & COLUMN_A ? left[i + below][own] : left[own + below][i]) = half_at(a, lane, i);
            (form & ROW_B ? right[own][i + below] : right[i][own + below]) = half_at(b, lane, i);
        }
        for (int i = 0; i < 8; i++) {
            float& value = sum[accumulator_place(lane, i, form & HALF_C)];
            if (form & HALF_C)
                value = half_at(c, lane, i);
            else
                memcpy(&value, c + i * LANES + lane, 4);
        }
    }
    for (int m = 0; m < 8; m++)
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < 4; k++) sum[8 * m + n] = __builtin_fmaf(left[m][k], right[k][n], sum[8 * m + n]);
    for (int t = 0; t < 8; t++) {
        int lane = 4 * quad + t % 4 + (t < 4 ? 0 : 16);
        for (int i = 0; i < 8; i++) {
            float value = sum[accumulator_place(lane, i, form & HALF_D)];
            if (form & HALF_D) {
                u32 &word = d[i / 2 * LANES + lane], bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
                word = i % 2 ? (word & 0xffff) | bits << 16 : bits;
            } else {
                memcpy(d + i * LANES + lane, &value, 4);
            }
        }
    }
}

}  // namespace

// --- what translated code calls -------------------------------------------------------------

// Matrix instructions are for whole warps.
extern "C" void vg_whole_warp(Context* c, Warp* w, u32 line, u32 mask) {
    if (mask == FULL || !mask) return;
    report(c, w, "divergent-mma",
           "a matrix instruction is executed by " + std::to_string(__builtin_popcount(mask)) +
               " of 32 lanes; all lanes of the warp must execute it together", line, mask);
}

#define PRODUCT const u32 *a, const u32 *b, const u32 *c, u32 *d, [[maybe_unused]] u32 form
#define FLOATS(NAME, A, B, K) \
    extern "C" void vg_mma_##NAME##_16_##K(PRODUCT) { float_product<A, B, K>(a, b, c, d, form); }
FLOATS(f16_f16, F16, F16, 8) FLOATS(f16_f16, F16, F16, 16)
FLOATS(bf16_bf16, Bf16, Bf16, 8) FLOATS(bf16_bf16, Bf16, Bf16, 16)
FLOATS(tf32_tf32, Tf32, Tf32, 4) FLOATS(tf32_tf32, Tf32, Tf32, 8)
FLOATS(e4m3_e4m3, E4m3, E4m3, 16) FLOATS(e4m3_e5m2, E4m3, E5m2, 16)
FLOATS(e5m2_e4m3, E5m2, E4m3, 16) FLOATS(e5m2_e5m2, E5m2, E5m2, 16)
FLOATS(e4m3_e4m3, E4m3, E4m3, 32) FLOATS(e4m3_e5m2, E4m3, E5m2, 32)
FLOATS(e5m2_e4m3, E5m2, E4m3, 32) FLOATS(e5m2_e5m2, E5m2, E5m2, 32)

#define INTEGERS(NAME, A, B, M, K) \
    extern "C" void vg_mma_##NAME##_##M##_##K(PRODUCT) { integer_product<A, B, M / 8, K>(a, b, c, d, form); }
#define SIGNS(BITS, T, M, K)                                                                                   \
    INTEGERS(s##BITS##_s##BITS, T<true>, T<true>, M, K) INTEGERS(s##BITS##_u##BITS, T<true>, T<false>, M, K)   \
    INTEGERS(u##BITS##_s##BITS, T<false>, T<true>, M, K) INTEGERS(u##BITS##_u##BITS, T<false>, T<false>, M, K)
SIGNS(8, Byte, 8, 16) SIGNS(8, Byte, 16, 16) SIGNS(8, Byte, 16, 32)
SIGNS(4, Nibble, 8, 32) SIGNS(4, Nibble, 16, 32) SIGNS(4, Nibble, 16, 64)

#define BITS(M, K)                                                                                    \
    extern "C" void vg_mma_xor_##M##_##K(PRODUCT) { bit_product<M / 8, K, true>(a, b, c, d); }        \
    extern "C" void vg_mma_and_##M##_##K(PRODUCT) { bit_product<M / 8, K, false>(a, b, c, d); }
BITS(8, 128) BITS(16, 128) BITS(16, 256)

#define DOUBLES(M, K)                                                                                     \
    extern "C" void vg_mma_f64_f64_##M##_##K(const double* a, const double* b, const double* c, double* d, u32) { \
        double_product<M / 8, K>(a, b, c, d);                                                             \
    }
DOUBLES(8, 4) DOUBLES(16, 4) DOUBLES(16, 8) DOUBLES(16, 16)

extern "C" void vg_mma_f16_f16_8_4(PRODUCT) {
    for (int quad = 0; quad < 4; quad++) quad_pair_product(quad, a, b, c, d, form);
}
