// Accesses of a warp to global memory: counted, checked, moved.
#pragma once

#include "caches.h"
#include "chain.h"
#include "findings.h"
#include "marks.h"
#include "move.h"
#include "pattern.h"

// Checks of a request that lies within one buffer; the data of a store is compared where somebody else wrote before.
void check_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes);
void check_write(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes, const void* data,
                 u32 item);
// Some lane is out of bounds or misaligned, or lanes reach several buffers: reports, counts, and gives the lanes that are fine.
u32 careful_lanes(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 bytes, bool store, bool counted);

[[gnu::always_inline]] inline void count_global(Context* c, Site& s, Allocation* a, u64 first, u32 mask, u32 bytes, bool store) {
    if (s.alignment != (first & 127)) learn_lines(s, first, bytes);
    s.requests++, s.sector_total += s.sectors, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
    s.wavefront_total += s.wavefronts;
    if (a) pass_caches(c, s, a, first, store);
}

// Blocks, and the warps of a block, walk through memory in even steps. Ask for what the next block will want, or the next
// warp when a block asks for so much that it would not be kept until then.
template <bool STORE>
[[gnu::always_inline]] inline void look_ahead(Context* c, Site& s, const Allocation* a, u64 first) {
    if (s.stamp != c->stamp) {
        bool little = s.requests - s.begin_requests <= 64;
        s.block_step = little ? (i64)(first - s.begin) : 0;
        s.begin = first, s.begin_requests = s.requests, s.stamp = c->stamp;
    }
    u64 next = first + (s.block_step ? (u64)s.block_step : first - s.last);
    s.last = first;
    if (next - a->base >= a->bytes) return;
    __builtin_prefetch((const void*)next, STORE);
    __builtin_prefetch((const void*)(next + 64), STORE);
}

// The buffer that a whole request lies in, aligned and not freed; null when lanes must be looked at one by one.
// Afterwards the site knows the request's pattern.
[[gnu::always_inline]] inline Allocation* buffer_of(Site& s, const u64* address, u32 mask, u64 first, u32 bytes) {
    if (!same_pattern(s, address, mask, first)) learn(s, address, mask, bytes);
    u64 low = first + s.low, high = first + s.high + bytes;
    Allocation* a = s.allocation;
    if (!a || a->freed || low < a->base || high > a->base + a->bytes) a = s.allocation = find_allocation(low);
    bool whole = a && !a->freed && high <= a->base + a->bytes && !s.misaligned && first % bytes == 0 && s.valid;
    return whole ? a : nullptr;
}

// A store to whole sectors of a page that blocks store to and do not read: nearly all are. False when more is to be looked at.
[[gnu::always_inline]] inline bool plain_write(Context* c, const Site& s, Allocation* a, u64 first) {
    u64 offset = first + s.run[0].delta - a->base, bytes = s.run[0].bytes, page = offset / PAGE;
    u32 launch = c->launch->number;
    u8* sectors = a->writers.sectors + offset / SECTOR;
    bool plain = s.runs == 1 && (offset | bytes) % SECTOR == 0 && offset % PAGE + bytes <= PAGE && !s.relaxed && !c->incomplete;
    if (!plain || a->store_launch != launch || a->writers.launches[page] != launch || a->readers.launches[page] == launch)
        return false;
    if (!mine_or_old(sectors, bytes / SECTOR, c->block_mark)) return false;
    fill_state(sectors, bytes / SECTOR, c->block_mark);
    return true;
}

// Whether a read is to be looked at: not all bytes are written and known, or blocks of this launch write here too.
inline bool needs_look(const Context* c, const Allocation* a) {
    return !a->all_written || a->partial || a->store_launch == c->launch->number;
}

// Put down that the running block stored to a range: by its own mark, or not at all when it computed from what is missing.
inline void mark_stored(Context* c, Allocation* a, u64 offset, u64 bytes, u8 mark) {
    a->partial |= c->incomplete, a->sampled |= c->incomplete;
    fill(a->writers, offset, bytes, c->incomplete ? (u8)NEVER : mark);
}

// The block read what is missing.
[[gnu::cold]] inline void become_incomplete(Context* c) { c->incomplete = true, c->launch->incomplete = true; }

inline void begin_stores(const Context* c, Allocation* a) {
    u32 launch = c->launch->number;
    a->store_launches += a->store_launch != launch;
    a->stored = true, a->store_launch = launch;
}

template <int W, int V, bool STORE>
inline void global_access(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u64 first = address[__builtin_ctz(mask)];
    Allocation* a = buffer_of(s, address, mask, first, BYTES);
    if (!a) {
        s.requests++, s.lane_bytes += (u64)__builtin_popcount(mask) * BYTES;
        u32 fine = careful_lanes(c, w, site, address, mask, BYTES, STORE, true);
        if (!STORE)
            for (u32 bits = mask & ~fine; bits; bits &= bits - 1) clear_lane<W, V>(__builtin_ctz(bits), data);
        move_lanes<W, V, STORE>(fine, data, [&](int i) { return address[i]; });
        return;
    }
    look_ahead<STORE>(c, s, a, first);
    count_global(c, s, a, first, mask, BYTES, STORE);
    if (STORE) {
        if (!plain_write(c, s, a, first)) check_write(c, w, site, s, a, first, BYTES, data, W);
    } else if (c->checks && needs_look(c, a)) {
        check_read(c, w, site, s, a, first, BYTES);
    }
    if (s.relaxed) a->watched = true;
    move_pattern<W, V, STORE>(s, data, [address](int i) { return address[i]; });
    if (s.relaxed || (STORE && a->watched))
        meet(c, w, address, mask, STORE ? Meeting::PUT : Meeting::LOOK, BYTES, STORE ? nullptr : data, W);
}
