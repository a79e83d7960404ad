// Shared memory: findings and the ordering that barriers bring.
//
// Races are looked for between warps: lanes of one warp run in step here, and code that relies on that is common.
// A byte that one warp wrote may be read or written by another only after a barrier; a byte that several read may be
// written only after a barrier. Atomics, volatile accesses and fences order more than they promise, so that nothing is
// reported which hardware would get right.
#include "shared.h"

void look_at_shared_read(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes) {
    u8 me = warp_mark(w);
    Faults faults;
    for (u32 bits = lanes_in(s, run); bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        const u8* states = c->shared_state + first + s.delta[lane];
        for (u32 b = 0; b < bytes; b++) {
            u8 state = states[b];
            if (state == WRITTEN || state == me || (s.relaxed && state != PENDING)) continue;
            // Volatile reads may meet others' writes. Warp-synchronous code reads past what it wrote, volatile, in lanes
            // whose result nobody takes.
            if (state == NEVER && !none_written(states, bytes)) continue;
            Fault fault = state == NEVER ? Fault::UNINITIALIZED : state == PENDING ? Fault::ASYNC_RACE : Fault::SHARED_RACE;
            faults.add(lane, s.delta[lane] + b, fault, state, true);
            break;
        }
    }
    faults.report(c, w, site, s, Use::READ, Space::SHARED, first, bytes);
}

void look_at_shared_write(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes, const void* data,
                          u32 item) {
    if (s.relaxed) return;
    u8 me = warp_mark(w);
    Faults faults;
    for (u32 bits = lanes_in(s, run); bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        u64 at = first + (u64)s.delta[lane];
        // writing what is there already harms nobody
        bool same = true;
        for (u32 v = 0; v < bytes / item; v++)
            same &= !memcmp(c->shared + at + v * item, (const u8*)data + (v * LANES + lane) * item, item);
        for (u32 b = 0; b < bytes; b++) {
            u8 writer = c->shared_state[at + b], reader = c->shared_readers[at + b];
            bool wrote = writer >= MARK && writer != me, read = reader >= MARK && reader != me;
            if ((!wrote && !read) || (same && writer != PENDING)) continue;
            Fault fault = writer == PENDING ? Fault::ASYNC_RACE : Fault::SHARED_RACE;
            faults.add(lane, s.delta[lane] + b, fault, wrote ? writer : reader, wrote);
            break;
        }
    }
    faults.report(c, w, site, s, Use::WRITE, Space::SHARED, first, bytes);
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
        report({c, w, site, is_outside ? outside : bad & ~outside, lane, use, Space::SHARED, address[lane], bytes},
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
