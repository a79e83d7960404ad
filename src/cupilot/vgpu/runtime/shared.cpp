// Shared memory: findings and the ordering that barriers bring.
//
// Races are looked for between warps: lanes of one warp run in step here, and code that relies on that is common.
// A byte that one warp wrote may be read or written by another only after a barrier; a byte that several read may be
// written only after a barrier. Atomics, volatile accesses and fences order more than they promise, so that nothing is
// reported which hardware would get right.
#include "shared.h"

#include <cstdio>

namespace {

std::string block_has(Context* c) {
    char text[64];
    snprintf(text, sizeof text, "; the block has %llu bytes", (unsigned long long)c->shared_bytes);
    return text;
}

void tell(Context* c, Warp* w, u32 site, const Site& s, u32 first, i64 delta, u32 bytes, bool store, const char* kind,
          const std::string& why) {
    u32 lane = lane_at(s, delta, bytes);
    access_finding(c, w, site, lane, first + s.delta[lane], bytes, store, " of shared memory", kind, why);
}

std::string by_warp(const char* what, u8 mark) {
    if (mark == MANY) return std::string("; other warps ") + what + " it since the last barrier";
    return "; warp " + std::to_string(mark - MARK) + " " + what + " it since the last barrier";
}

}  // namespace

void shared_read_finding(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes) {
    u8 me = warp_mark(w);
    for (u32 b = 0; b < run.bytes; b++) {
        u8 state = c->shared_state[first + run.delta + b];
        if (state == WRITTEN || state == me) continue;
        i64 delta = run.delta + (i64)b;
        // warp-synchronous code reads past what it wrote, volatile, in lanes whose result nobody takes
        if (state == NEVER && s.relaxed) continue;
        u32 lane = lane_at(s, delta, bytes);
        if (state == NEVER && !none_written(c->shared_state + first + s.delta[lane], bytes)) continue;
        if (state == NEVER)
            return tell(c, w, site, s, first, delta, bytes, false, "uninitialized", "; nothing was written there");
        if (state == PENDING)
            return tell(c, w, site, s, first, delta, bytes, false, "async-race",
                        "; an asynchronous copy to it was not waited for");
        if (!s.relaxed) return tell(c, w, site, s, first, delta, bytes, false, "shared-race", by_warp("wrote", state));
    }
}

void shared_write_finding(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes, const void* data,
                          u32 item) {
    if (s.relaxed) return;
    u8 me = warp_mark(w);
    for (u32 b = 0; b < run.bytes; b++) {
        u8 writer = c->shared_state[first + run.delta + b], reader = c->shared_readers[first + run.delta + b];
        bool wrote = writer >= MARK && writer != me, read = reader >= MARK && reader != me;
        if (!wrote && !read) continue;
        i64 delta = run.delta + (i64)b;
        // writing what is there already harms nobody
        u32 lane = lane_at(s, delta, bytes);
        bool same = true;
        for (u32 v = 0; v < bytes / item; v++)
            same &= !memcmp(c->shared + first + s.delta[lane] + v * item, (const u8*)data + (v * LANES + lane) * item, item);
        if (same && writer != PENDING) continue;
        return tell(c, w, site, s, first, delta, bytes, true, writer == PENDING ? "async-race" : "shared-race",
                    writer == PENDING ? "; an asynchronous copy to it was not waited for"
                    : wrote           ? by_warp("wrote", writer)
                                      : by_warp("read", reader));
    }
}

u32 careful_shared(Context* c, Warp* w, u32 site, const u32* address, u32 mask, u32 bytes, bool store) {
    u32 fine = 0;
    bool told = false;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        bool inside = (u64)address[i] + bytes <= c->shared_bytes;
        if (inside && address[i] % bytes == 0) {
            fine |= 1u << i;
            if (store) {
                fill_state(c->shared_state + address[i], bytes, WRITTEN);
                c->interval_low = std::min(c->interval_low, address[i]);
                c->interval_high = std::max(c->interval_high, address[i] + bytes);
            }
        } else if (!told) {
            told = true;
            access_finding(c, w, site, i, address[i], bytes, store, " of shared memory",
                           inside ? "misaligned" : "out-of-bounds", block_has(c));
        }
    }
    return fine;
}

// Some warps met (all: the whole block): what they did since the last barrier is ordered before what they do next.
void order_shared(Context* c, u32 warps, bool all) {
    if (c->interval_low >= c->interval_high) return;
    u32 low = c->interval_low, bytes = c->interval_high - low;
    u8 *state = c->shared_state + low, *readers = c->shared_readers + low;
    if (all) {
        bool pending = memchr(state, PENDING, bytes) != nullptr;
        if (!pending) {
            settle(state, bytes);
        } else {
            for (u32 b = 0; b < bytes; b++)
                if (state[b] != NEVER && state[b] != PENDING) state[b] = WRITTEN;
        }
        memset(readers, 0, bytes);
        c->block_low = std::min(c->block_low, c->interval_low), c->block_high = std::max(c->block_high, c->interval_high);
        if (!pending) c->interval_low = FULL, c->interval_high = 0;
        return;
    }
    for (u32 b = 0; b < bytes; b++) {
        if (state[b] >= MARK && state[b] < MARK + 32 && (warps >> (state[b] - MARK) & 1)) state[b] = WRITTEN;
        if (readers[b] == MANY || (readers[b] >= MARK && (warps >> (readers[b] - MARK) & 1))) readers[b] = 0;
    }
}
