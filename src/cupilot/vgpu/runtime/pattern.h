// Patterns of lane addresses: learned once, then recognised by one comparison.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "engine.h"

// Whether each lane's address is `step` further than that of the lane before.
inline bool in_steps(const u64* address, u64 first, i64 step) {
    __m256i wanted = _mm256_setr_epi64x((i64)first, (i64)first + step, (i64)first + 2 * step, (i64)first + 3 * step);
    __m256i far = _mm256_set1_epi64x(4 * step), difference = _mm256_setzero_si256();
    for (int i = 0; i < LANES; i += 4, wanted = _mm256_add_epi64(wanted, far))
        difference = _mm256_or_si256(difference, _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)(address + i)), wanted));
    return _mm256_testz_si256(difference, difference);
}

// Whether the lanes' addresses stand to each other as they did the last time.
inline bool same_pattern(const Site& s, const u64* address, u32 mask, u64 first) {
    if (mask != s.mask || !s.valid || s.in_shared) return false;
    if (s.even) return in_steps(address, first, s.delta[1]);
    u64 difference = 0;
    if (mask == FULL) {
        for (int i = 0; i < LANES; i++) difference |= (address[i] - first) ^ (u64)s.delta[i];
    } else {
        for (int i = 0; i < LANES; i++) {
            u64 lane = 0 - (u64)(mask >> i & 1);
            difference |= ((address[i] - first) ^ (u64)s.delta[i]) & lane;
        }
    }
    return difference == 0;
}

inline bool same_pattern(const Site& s, const u32* address, u32 mask, u32 first) {
    if (mask != s.mask || !s.valid || !s.in_shared) return false;
    u32 difference = 0;
    if (mask == FULL) {
        for (int i = 0; i < LANES; i++) difference |= (address[i] - first) ^ (u32)s.short_delta[i];
    } else {
        for (int i = 0; i < LANES; i++) {
            u32 lane = 0 - (mask >> i & 1);
            difference |= ((address[i] - first) ^ (u32)s.short_delta[i]) & lane;
        }
    }
    return difference == 0;
}

void learn(Site& s, const u64* address, u32 mask, u32 bytes);
void learn(Site& s, const u32* address, u32 mask, u32 bytes);
// Lines and sectors of the known pattern when its first lane is at this address.
void learn_lines(Site& s, u64 first, u32 bytes);
// The lane that covers a byte, by its distance from the first lane's address.
u32 lane_at(const Site& s, i64 delta, u32 bytes);
// Passes through the 32 four-byte banks: 8-byte accesses go by half warps, 16-byte ones by quarters.
u32 bank_passes(const u64* address, u32 mask, u32 bytes);
