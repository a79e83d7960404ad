// Accesses of a warp to its block's shared memory: counted, checked for races between barriers, moved.
#pragma once

#include "findings.h"
#include "move.h"
#include "pattern.h"
#include "shadow.h"

inline u8 warp_mark(const Warp* w) { return (u8)(MARK + w->index); }

// One run of an access that is not plainly fine.
void look_at_shared_read(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes);
void look_at_shared_write(Context* c, Warp* w, u32 site, const Site& s, u32 first, Run run, u32 bytes, const void* data,
                          u32 item);
// Reports lanes that are out of bounds or misaligned; gives those that are fine, which count as written if `fill` says so.
u32 careful_shared(Context* c, Warp* w, u32 site, const u32* address, u32 mask, u32 bytes, Use use, bool fill);

inline void check_shared_read(Context* c, Warp* w, u32 site, const Site& s, u32 first, u32 bytes) {
    u8 me = warp_mark(w);
    if (s.cover_vectors) {
        u32 at = first + s.run[0].delta;
        if (cover_read(s, c->shared_state + at, c->shared_readers + at, me, !s.relaxed)) return;
        for (u32 n = 0; n < s.runs; n++) look_at_shared_read(c, w, site, s, first, s.run[n], bytes);
        return;
    }
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u32 at = first + run.delta;
        if (!only(c->shared_state + at, run.bytes, WRITTEN, me)) look_at_shared_read(c, w, site, s, first, run, bytes);
        if (!s.relaxed) mark_readers(c->shared_readers + at, run.bytes, me);
    }
}

inline void check_shared_write(Context* c, Warp* w, u32 site, const Site& s, u32 first, u32 bytes, const void* data,
                               u32 item) {
    u8 me = warp_mark(w);
    if (s.cover_vectors) {
        u32 at = first + s.run[0].delta;
        if (!cover_write(s, c->shared_state + at, c->shared_readers + at, me))
            for (u32 n = 0; n < s.runs; n++) look_at_shared_write(c, w, site, s, first, s.run[n], bytes, data, item);
        cover_fill(s, c->shared_state + at, s.relaxed ? (u8)WRITTEN : me);
        return;
    }
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u32 at = first + run.delta;
        if (!mine_or_old(c->shared_state + at, run.bytes, me) || !only(c->shared_readers + at, run.bytes, 0, me))
            look_at_shared_write(c, w, site, s, first, run, bytes, data, item);
        fill_state(c->shared_state + at, run.bytes, s.relaxed ? (u8)WRITTEN : me);
    }
}

template <int W, int V, bool STORE>
inline void shared_access(Context* c, Warp* w, u32 site, const u32* address, u32 mask, void* data) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u32 first = address[__builtin_ctz(mask)];
    if (!same_pattern(s, address, mask, first)) learn(s, address, mask, BYTES);
    s.requests++, s.wavefront_total += s.passes, s.lane_bytes += (u64)__builtin_popcount(mask) * BYTES;
    i64 low = (i64)first + s.low, high = (i64)first + s.high + BYTES;
    u8* base = c->shared;
    auto where = [base, address](int i) { return base + address[i]; };
    if (low < 0 || high > (i64)c->shared_bytes || first % BYTES || s.misaligned) {
        u32 fine = careful_shared(c, w, site, address, mask, BYTES, STORE ? Use::WRITE : Use::READ, STORE);
        if (!STORE)
            for (u32 bits = mask & ~fine; bits; bits &= bits - 1) clear_lane<W, V>(__builtin_ctz(bits), data);
        move_lanes<W, V, STORE>(fine, data, where);
        return;
    }
    if (c->checks) {
        c->interval_low = std::min(c->interval_low, (u32)low), c->interval_high = std::max(c->interval_high, (u32)high);
        if (STORE)
            check_shared_write(c, w, site, s, first, BYTES, data, W);
        else
            check_shared_read(c, w, site, s, first, BYTES);
    }
    move_pattern<W, V, STORE>(s, data, where);
}
