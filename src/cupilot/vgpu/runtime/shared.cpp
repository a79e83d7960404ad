// Shared memory: findings and the ordering that barriers bring.
//
// Races are looked for between warps: lanes of one warp run in step here, and code that relies on that is common.
// A byte that one warp wrote may be read or written by another only after a barrier; a byte that several read may be
// written only after a barrier. Atomics, volatile accesses and fences order more than they promise, so that nothing is
// reported which hardware would get right.
#include "shared.h"

void look_at_shared_read(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes) {
    auto bad = [&, me = warp_mark(w)](i64 delta, auto lane) -> std::optional<Bad> {
        u8 state = c->shared_state[first + delta];
        if (state == WRITTEN || state == me) return {};
        if (state == PENDING) return Bad{Fault::ASYNC_RACE};
        // warp-synchronous code reads past what it wrote, volatile, in lanes whose result nobody takes
        if (s.relaxed) return {};
        if (state != NEVER) return Bad{Fault::SHARED_RACE, state, true};
        if (!none_written(c->shared_state + first + s.delta[lane()], bytes)) return {};
        return Bad{Fault::UNINITIALIZED};
    };
    report_first(c, w, site, s, Use::READ, Space::SHARED, first, run, bytes, bad);
}

void look_at_shared_write(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes, const void* data,
                          u32 item) {
    if (s.relaxed) return;
    auto bad = [&, me = warp_mark(w)](i64 delta, auto whose) -> std::optional<Bad> {
        u8 writer = c->shared_state[first + delta], reader = c->shared_readers[first + delta];
        bool wrote = writer >= MARK && writer != me, read = reader >= MARK && reader != me;
        if (!wrote && !read) return {};
        if (writer == PENDING) return Bad{Fault::ASYNC_RACE};
        // writing what is there already harms nobody
        u32 lane = whose();
        bool same = true;
        for (u32 v = 0; v < bytes / item; v++)
            same &= !memcmp(c->shared + first + s.delta[lane] + v * item, (const u8*)data + (v * LANES + lane) * item, item);
        if (same) return {};
        return Bad{Fault::SHARED_RACE, wrote ? writer : reader, wrote};
    };
    report_first(c, w, site, s, Use::WRITE, Space::SHARED, first, run, bytes, bad);
}

u32 careful_shared(Context* c, Warp* w, u32 site, const u32* address, u32 mask, u32 bytes, Use use, bool fill) {
    u32 fine = 0, outside = 0;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        bool inside = (u64)address[i] + bytes <= c->shared_bytes;
        if (!inside) outside |= 1u << i;
        if (!inside || address[i] % bytes) continue;
        fine |= 1u << i;
        if (!fill) continue;
        fill_state(c->shared_state + address[i], bytes, WRITTEN);
        c->interval_low = std::min(c->interval_low, address[i]);
        c->interval_high = std::max(c->interval_high, address[i] + bytes);
    }
    if (u32 bad = mask & ~fine) {
        u32 lane = __builtin_ctz(bad);
        bool is_outside = outside >> lane & 1;
        report(c, w, site, is_outside ? outside : bad & ~outside, use, Space::SHARED, address[lane], bytes,
               is_outside ? Fault::OUT_OF_BOUNDS : Fault::MISALIGNED);
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
