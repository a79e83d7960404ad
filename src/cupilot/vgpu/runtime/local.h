// Local memory of a warp's lanes.
#pragma once

#include "engine.h"

// A byte of one lane, by its offset; the words of the lanes lie side by side.
inline u8* local_word(Context* c, Warp* w, u64 offset, u32 lane) {
    u64 words = (c->local_bytes + 3) / 4;
    return c->local + ((u64)w->index * words + offset / 4) * 4 * LANES + lane * 4 + offset % 4;
}
