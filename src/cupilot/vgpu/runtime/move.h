// Moving the data of a warp: lane-wise values of V elements of W bytes each, to and from one array per element.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "engine.h"

template <int W>
struct Item;
template <> struct Item<1> { using type = u8; };
template <> struct Item<2> { using type = uint16_t; };
template <> struct Item<4> { using type = u32; };
template <> struct Item<8> { using type = u64; };

template <int W, int V, bool STORE, class Where>
inline void move_lane(int i, void* data, Where where) {
    using T = typename Item<W>::type;
    T* arrays = (T*)data;
    u8* p = (u8*)where(i);
    for (int v = 0; v < V; v++) {
        if constexpr (STORE)
            memcpy(p + v * W, arrays + v * LANES + i, W);
        else
            memcpy(arrays + v * LANES + i, p + v * W, W);
    }
}

template <int W, int V, bool STORE, class Where>
inline void move_lanes(u32 mask, void* data, Where where) {
    if (mask == FULL) {
        if constexpr (W == 4 && V == 4) {
            float* arrays = (float*)data;
            for (int i = 0; i < LANES; i += 4) {
                float* o = arrays + i;
                if constexpr (STORE) {
                    __m128 a = _mm_load_ps(o), b = _mm_load_ps(o + 32), c = _mm_load_ps(o + 64), d = _mm_load_ps(o + 96);
                    _MM_TRANSPOSE4_PS(a, b, c, d);
                    _mm_storeu_ps((float*)where(i), a), _mm_storeu_ps((float*)where(i + 1), b);
                    _mm_storeu_ps((float*)where(i + 2), c), _mm_storeu_ps((float*)where(i + 3), d);
                } else {
                    __m128 a = _mm_loadu_ps((float*)where(i)), b = _mm_loadu_ps((float*)where(i + 1));
                    __m128 c = _mm_loadu_ps((float*)where(i + 2)), d = _mm_loadu_ps((float*)where(i + 3));
                    _MM_TRANSPOSE4_PS(a, b, c, d);
                    _mm_store_ps(o, a), _mm_store_ps(o + 32, b), _mm_store_ps(o + 64, c), _mm_store_ps(o + 96, d);
                }
            }
        } else {
#pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) move_lane<W, V, STORE>(i, data, where);
        }
        return;
    }
    for (u32 bits = mask; bits; bits &= bits - 1) move_lane<W, V, STORE>(__builtin_ctz(bits), data, where);
}

// Words of lanes that share few addresses: read each once, then hand out.
inline void load_shared_words(const Site& s, const u8* first, void* data) {
    alignas(32) u32 word[16];
    u32 count = s.different <= 8 ? 8 : 16;
    for (u32 n = 0; n < s.different; n++) memcpy(word + n, first + s.different_delta[n], 4);
    __m256i low = _mm256_load_si256((const __m256i*)word), high = _mm256_load_si256((const __m256i*)(word + 8));
    __m256i* out = (__m256i*)data;
    for (u32 part = 0; part < 4; part++) {
        __m256i choice = _mm256_load_si256((const __m256i*)(s.lane_choice + 8 * part));
        __m256i got = _mm256_permutevar8x32_epi32(low, choice);
        if (count == 16) {
            __m256i upper = _mm256_cmpgt_epi32(choice, _mm256_set1_epi32(7));
            got = _mm256_blendv_epi8(got, _mm256_permutevar8x32_epi32(high, choice), upper);
        }
        _mm256_store_si256(out + part, got);
    }
}

template <int BYTES>
inline void copy(void* to, const void* from) {
    static_assert(BYTES % 32 == 0);
    for (int i = 0; i < BYTES / 32; i++)
        _mm256_storeu_si256((__m256i*)to + i, _mm256_loadu_si256((const __m256i*)from + i));
}

template <int W, int V, bool STORE, class Where>
inline void move_pattern(const Site& s, void* data, Where where) {
    using T = typename Item<W>::type;
    if (V == 1 && s.kind == CONTIGUOUS) {
        if (STORE)
            copy<W * LANES>((void*)where(0), data);
        else
            copy<W * LANES>(data, (const void*)where(0));
    } else if (!STORE && s.kind == BROADCAST) {
        for (int v = 0; v < V; v++) {
            T value;
            memcpy(&value, (u8*)where(0) + v * W, W);
            T* array = (T*)data + v * LANES;
            for (int i = 0; i < LANES; i++) array[i] = value;
        }
    } else if (W == 4 && V == 1 && !STORE && s.different) {
        load_shared_words(s, (const u8*)where(0), data);
    } else {
        move_lanes<W, V, STORE>(s.mask, data, where);
    }
}

// What a lane reads that was not allowed to.
template <int W, int V>
inline void clear_lane(int i, void* data) {
    for (int v = 0; v < V; v++) memset((u8*)data + (v * LANES + i) * W, 0, W);
}
