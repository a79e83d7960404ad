// Requests through the modelled caches.
#pragma once

#include "engine.h"

// The lines of a site's known pattern, first lane at `first`, of one buffer.
void pass_caches(Context* c, const Site& s, Allocation* a, u64 first, bool store);

// Where sectors of a buffer that blocks read, and then those that blocks wrote, are put down.
inline u64 stamp_index(const Allocation* a, u64 line, bool store) {
    return (store ? (a->bytes / 32 + 8) & ~3ull : 0) + (line - a->base / 128) * 4;
}
