// Copies from global to shared memory that the threads of a warp start and wait for (PTX ISA: cp.async).
//
// A copy is checked and counted when it is issued, like a load and a store; its bytes of shared memory are PENDING
// until the thread waits for its group, and then written by its warp. Data is what global memory holds at that time.
// Groups are per thread, as in the ISA. L1 is passed by .ca and .cg alike.
#include "async.h"

#include <immintrin.h>

#include "global.h"
#include "shared.h"

// --- the life of a block's copies -----------------------------------------------------------

AsyncState& async_state(Context* c) {
    if (!c->async) c->async = new AsyncState;
    return *c->async;
}

Queue& queue_of(Context* c, Warp* w) {
    Queue& queue = async_state(c).queues[w->index & 31];
    queue.warp = w;
    return queue;
}

void begin_async(Context* c) {
    if (!c->async) return;
    for (Queue& queue : c->async->queues) {
        memset(queue.committed, 0, sizeof queue.committed);
        memset(queue.bulk_committed, 0, sizeof queue.bulk_committed);
        queue.issued = 0, queue.first = 0;
        queue.copies.clear(), queue.arrivals.clear(), queue.bulks.clear();
    }
    c->async->with_barrier = 0;
    c->async->arrived.clear();
}

// What goes to shared memory goes with the block; what goes to global memory is seen by others.
void end_async(Context* c) {
    if (!c->async) return;
    for (Queue& queue : c->async->queues) {
        for (const Bulk& bulk : queue.bulks)
            if (!bulk.to_shared) land_bulk(c, queue, bulk);
        queue.bulks.clear();
    }
}

void free_async(Context* c) {
    delete c->async;
    c->async = nullptr;
}

// --- issue ----------------------------------------------------------------------------------

Allocation* global_range(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, u32 alignment, bool store) {
    Allocation* a = find_allocation(address);
    bool inside = a && !a->freed && address + bytes <= a->base + a->bytes;
    if (inside && address % alignment == 0) return a;
    Use use = store ? Use::WRITE : Use::READ;
    report(c, w, site, 1u << lane, use, Space::GLOBAL, address, bytes, global_fault(a, address, bytes));
    return nullptr;
}

namespace {

// The read of whole elements: counted and checked as a load is. Gives the lanes that are fine.
u32 read_whole(Context* c, Warp* w, u32 site, const u64* source, u32 mask, u32 bytes) {
    if (!mask) return 0;
    Site& s = c->sites[site];
    u64 first = source[__builtin_ctz(mask)];
    Allocation* a = buffer_of(s, source, mask, first, bytes);
    if (!a) {
        s.requests++, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
        return careful_lanes(c, w, site, source, mask, bytes, false, true);
    }
    count_global(c, s, a, first, mask, bytes, false);
    if (c->checks && needs_look(c, a))
        check_read(c, w, site, s, a, first, bytes);
    return mask;
}

// Reads of less than an element, lane by lane; those of nothing may have any address.
u32 read_parts(Context* c, Warp* w, u32 site, const u64* source, const u8* source_bytes, u32 mask, u32 bytes) {
    u32 fine = 0, reading = 0;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        if (!source_bytes[lane]) {
            fine |= bits & -bits;
            continue;
        }
        Allocation* a = global_range(c, w, site, lane, source[lane], source_bytes[lane], bytes, false);
        if (!a) continue;
        reading |= bits & -bits;
        if (!c->checks || !needs_look(c, a)) continue;
        Site s;
        s.mask = 1u << lane, s.runs = 1, s.run[0] = {0, source_bytes[lane]}, s.delta[lane] = 0;
        check_read(c, w, site, s, a, source[lane], source_bytes[lane]);
    }
    count_request(c, site, Space::GLOBAL, source, reading, bytes, false);
    return fine | reading;
}

// What the copy would write now, lane after lane, to be compared with what is there.
void gather(const u64* source, const u8* source_bytes, u32 mask, u32 bytes, u8* data) {
    memset(data, 0, 16 * LANES);
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        memcpy(data + lane * bytes, (const void*)source[lane], source_bytes[lane]);
    }
}

// The write to shared memory: counted and checked as a store is, and PENDING from now on. Gives the fine lanes.
u32 claim(Context* c, Warp* w, u32 site, const Copy& copy, u32 mask) {
    if (!mask) return 0;
    u32 bytes = copy.bytes;
    const u32* target = copy.target;
    Site& s = c->sites[site];
    u32 first = target[__builtin_ctz(mask)];
    if (!same_pattern(s, target, mask, first)) learn(s, target, mask, bytes);
    s.requests++, s.wavefront_total += s.passes, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
    i64 low = (i64)first + s.low, high = (i64)first + s.high + bytes;
    if (low < 0 || high > (i64)c->shared_bytes || first % bytes || s.misaligned) {
        u32 fine = careful_shared(c, w, site, target, mask, bytes, Use::WRITE, true);
        for (u32 bits = c->checks ? fine : 0; bits; bits &= bits - 1)
            fill_state(c->shared_state + target[__builtin_ctz(bits)], bytes, PENDING);
        return fine;
    }
    if (!c->checks) return mask;
    c->interval_low = std::min(c->interval_low, (u32)low), c->interval_high = std::max(c->interval_high, (u32)high);
    alignas(16) u8 data[16 * LANES];
    u8 me = warp_mark(w);
    if (s.cover_vectors) {
        u32 at = first + s.run[0].delta;
        if (!cover_write(s, c->shared_state + at, c->shared_readers + at, me)) {
            gather(copy.source, copy.source_bytes, mask, bytes, data);
            for (u32 n = 0; n < s.runs; n++) look_at_shared_write(c, w, site, s, first, s.run[n], bytes, data, bytes);
        }
        cover_fill(s, c->shared_state + at, PENDING);
        return mask;
    }
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u32 at = first + run.delta;
        if (!mine_or_old(c->shared_state + at, run.bytes, me) || !only(c->shared_readers + at, run.bytes, 0, me)) {
            gather(copy.source, copy.source_bytes, mask, bytes, data);
            look_at_shared_write(c, w, site, s, first, run, bytes, data, bytes);
        }
        fill_state(c->shared_state + at, run.bytes, PENDING);
    }
    return mask;
}

// --- arrival --------------------------------------------------------------------------------

template <u32 BYTES>
void move(Context* c, const Copy& copy, u32 lanes, u8 mark) {
    for (u32 bits = lanes; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits), have = copy.source_bytes[lane];
        u8 value[BYTES] = {};
        if (have == BYTES)
            memcpy(value, (const void*)copy.source[lane], BYTES);
        else
            memcpy(value, (const void*)copy.source[lane], have);
        memcpy(c->shared + copy.target[lane], value, BYTES);
        if (c->checks) memset(c->shared_state + copy.target[lane], mark, BYTES);
    }
}

void land(Context* c, Queue& queue, Copy& copy, u32 lanes) {
    u8 mark = warp_mark(queue.warp);
    if (copy.bytes == 16) move<16>(c, copy, lanes, mark);
    if (copy.bytes == 8) move<8>(c, copy, lanes, mark);
    if (copy.bytes == 4) move<4>(c, copy, lanes, mark);
    copy.lanes &= ~lanes;
    for (u32 bits = c->checks ? lanes : 0; bits; bits &= bits - 1) {
        u32 at = copy.target[__builtin_ctz(bits)];
        c->interval_low = std::min(c->interval_low, at), c->interval_high = std::max(c->interval_high, at + copy.bytes);
    }
}

void forget_landed(Queue& queue) {
    while (queue.first < queue.copies.size() && !queue.copies[queue.first].lanes) queue.first++;
    if (queue.first < 64 && queue.first < queue.copies.size()) return;
    queue.copies.erase(queue.copies.begin(), queue.copies.begin() + (i64)queue.first);
    queue.first = 0;
}

// Lanes whose number is below their limit.
u32 below(const u32* numbers, const u32* limits) {
    u32 lanes = 0;
    for (u32 i = 0; i < LANES; i += 8) {
        __m256i n = _mm256_load_si256((const __m256i*)(numbers + i));
        __m256i l = _mm256_load_si256((const __m256i*)(limits + i));
        lanes |= (u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(l, n))) << i;
    }
    return lanes;
}

void commit(Queue& queue, u32 mask) {
    for (u32 bits = mask; bits; bits &= bits - 1) queue.committed[__builtin_ctz(bits)]++;
}

// Let all but the last `allowed` groups of each lane arrive.
void wait(Context* c, Queue& queue, u32 mask, u32 allowed) {
    alignas(32) u32 limits[LANES];
    for (u32 i = 0; i < LANES; i++) limits[i] = queue.committed[i] - std::min(allowed, queue.committed[i]);
    for (size_t n = queue.first; n < queue.copies.size(); n++) {
        Copy& copy = queue.copies[n];
        u32 lanes = copy.lanes & mask;
        if (lanes) lanes &= below(copy.group, limits);
        if (lanes) land(c, queue, copy, lanes);
    }
    forget_landed(queue);
}

}  // namespace

void land_before(Context* c, Queue& queue, u32 lanes, u32 order) {
    for (size_t n = queue.first; n < queue.copies.size() && queue.copies[n].order < order; n++)
        if (queue.copies[n].lanes & lanes) land(c, queue, queue.copies[n], queue.copies[n].lanes & lanes);
    forget_landed(queue);
}

// --- instructions ---------------------------------------------------------------------------

extern "C" void vg_cp_async(Context* c, Warp* w, u32 load_site, u32 store_site, const u32* target, const u64* source,
                            const u32* source_bytes, u32 mask, u32 bytes) {
    if (!mask) return;
    Queue& queue = queue_of(c, w);
    queue.copies.emplace_back();
    Copy& copy = queue.copies.back();
    copy.bytes = bytes, copy.order = queue.issued++, copy.site = store_site;
    u32 whole = 0;
    for (u32 i = 0; i < LANES; i++) {
        copy.group[i] = queue.committed[i], copy.target[i] = target[i], copy.source[i] = source[i];
        copy.source_bytes[i] = (u8)std::min(source_bytes[i], bytes);
        whole |= (u32)(copy.source_bytes[i] == bytes) << i;
    }
    u32 fine = read_whole(c, w, load_site, source, mask & whole, bytes);
    if (mask & ~whole) fine |= read_parts(c, w, load_site, source, copy.source_bytes, mask & ~whole, bytes);
    // like a load that may not be, a copy that may not be gives zeros
    for (u32 bits = mask & ~fine; bits; bits &= bits - 1) copy.source_bytes[__builtin_ctz(bits)] = 0;
    copy.lanes = claim(c, w, store_site, copy, mask);
}

extern "C" void vg_cp_async_commit(Context* c, Warp* w, u32 mask) { commit(queue_of(c, w), mask); }

extern "C" void vg_cp_async_wait(Context* c, Warp* w, u32 mask, u32 allowed, u32 all) {
    Queue& queue = queue_of(c, w);
    if (all) commit(queue, mask);
    wait(c, queue, mask, allowed);
}
