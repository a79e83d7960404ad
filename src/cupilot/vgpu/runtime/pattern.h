// Patterns of lane addresses: learned once, then recognised by one comparison.
#pragma once

#include <algorithm>

#include "engine.h"

// Whether the lanes' addresses stand to each other as they did the last time.
inline bool same_pattern(const Site& s, const u64* address, u32 mask, u64 first) {
    if (mask != s.mask || !s.valid || s.in_shared) return false;
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
// Passes through the 32 four-byte banks: 8-byte accesses go by half warps, 16-byte ones by quarters.
u32 bank_passes(const u64* address, u32 mask, u32 bytes);
// The lane that covers a byte, by its distance from the first lane's address.
u32 lane_at(const Site& s, i64 delta, u32 bytes);
