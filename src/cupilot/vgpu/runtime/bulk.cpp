// Copies and reductions of many bytes that one thread starts (PTX ISA: cp.async.bulk, cp.reduce.async.bulk).
//
// Checked and counted when issued, moved when waited for: by the barrier that is told of the bytes, or by the thread's
// group. Bytes that came with a barrier are seen by all who wait for it, so they are WRITTEN and by nobody.
// That the source in shared memory is not overwritten before the wait is not reported; the new bytes are copied then.
#include "async.h"
#include "global.h"
#include "shared.h"

namespace {

constexpr u32 GRAIN = 16;  // alignment of addresses and sizes, in bytes

Site one_run(u32 lane, u32 bytes) {
    Site s;
    s.mask = 1u << lane, s.runs = 1, s.run[0] = {0, bytes}, s.delta[lane] = 0;
    return s;
}

// Requests of 32 times 16 bytes, which is what passes the caches and the banks at once.
void count_bulk(Context* c, u32 site, Space space, u64 address, u32 bytes, bool store) {
    u64 lanes[LANES];
    for (u32 done = 0; done < bytes; done += GRAIN * LANES) {
        u32 count = std::min<u32>(LANES, (bytes - done) / GRAIN);
        for (u32 i = 0; i < LANES; i++) lanes[i] = address + done + i * GRAIN;
        count_request(c, site, space, lanes, count == LANES ? FULL : (1u << count) - 1, GRAIN, store);
    }
}

bool shared_range(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, Use use) {
    u32 ends[LANES];
    for (u64 at : {address, address + bytes - GRAIN}) {
        // addresses beyond 32 bits are out of bounds as well
        ends[lane] = (u32)std::min<u64>(at, FULL - GRAIN + 1);
        if (!careful_shared(c, w, site, ends, 1u << lane, GRAIN, use, false)) return false;
    }
    return true;
}

void touch(Context* c, u64 address, u32 bytes) {
    c->interval_low = std::min(c->interval_low, (u32)address);
    c->interval_high = std::max(c->interval_high, (u32)address + bytes);
}

struct Issue {
    Context* c;
    Warp* w;
    u32 load_site, store_site;

    bool read(const Bulk& b) const {
        if (b.from_shared) {
            if (!shared_range(c, w, load_site, b.lane, b.source, b.bytes, Use::READ)) return false;
            if (c->checks) {
                touch(c, b.source, b.bytes);
                check_shared_read(c, w, load_site, one_run(b.lane, b.bytes), (u32)b.source, b.bytes);
            }
        } else {
            Allocation* a = global_range(c, w, load_site, b.lane, b.source, b.bytes, GRAIN, false);
            if (!a) return false;
            if (c->checks && needs_look(c, a))
                check_read(c, w, load_site, one_run(b.lane, b.bytes), a, b.source, b.bytes);
        }
        count_bulk(c, load_site, b.from_shared ? Space::SHARED : Space::GLOBAL, b.source, b.bytes, false);
        return true;
    }

    // The checks compare with what is in the source now; their data is an array over lanes.
    bool write(const Bulk& b) const {
        const u8* source = b.from_shared ? c->shared + b.source : (const u8*)b.source;
        const u8* data = source - (u64)b.lane * b.bytes;
        Site s = one_run(b.lane, b.bytes);
        if (!b.to_shared) {
            Allocation* a = global_range(c, w, store_site, b.lane, b.target, b.bytes, GRAIN, true);
            if (!a) return false;
            if (b.reduce) return true;  // its updates check and count when they are made
            check_write(c, w, store_site, s, a, b.target, b.bytes, data, b.bytes);
            count_bulk(c, store_site, Space::GLOBAL, b.target, b.bytes, true);
            return true;
        }
        if (!shared_range(c, w, store_site, b.lane, b.target, b.bytes, Use::WRITE)) return false;
        if (b.reduce) return true;
        count_bulk(c, store_site, Space::SHARED, b.target, b.bytes, true);
        if (!c->checks) return true;
        touch(c, b.target, b.bytes);
        u8* state = c->shared_state + b.target;
        if (!mine_or_old(state, b.bytes, warp_mark(w)) || !only(c->shared_readers + b.target, b.bytes, 0, warp_mark(w)))
            look_at_shared_write(c, w, store_site, s, (u32)b.target, s.run[0], b.bytes, data, b.bytes);
        fill_state(state, b.bytes, PENDING);
        return true;
    }
};

// Elements go through the atomic operation 32 at a time.
void reduce(Context* c, Queue& queue, const Bulk& b) {
    const u8* source = b.from_shared ? c->shared + b.source : (const u8*)b.source;
    alignas(64) u64 address[LANES], data[LANES];
    Space space = b.to_shared ? Space::SHARED : Space::GLOBAL;
    for (u32 done = 0, count; done < b.bytes; done += count * b.item) {
        count = std::min<u32>(LANES, (b.bytes - done) / b.item);
        for (u32 i = 0; i < LANES; i++) address[i] = b.target + done + i * b.item;
        memcpy(data, source + done, count * b.item);
        b.reduce(c, queue.warp, b.site, address, count == LANES ? FULL : (1u << count) - 1, data, (u32)space, 1, 0);
    }
}

}  // namespace

void land_bulk(Context* c, Queue& queue, const Bulk& b) {
    if (b.denied) return;
    if (b.reduce) return reduce(c, queue, b);
    const u8* source = b.from_shared ? c->shared + b.source : (const u8*)b.source;
    memmove(b.to_shared ? c->shared + b.target : (u8*)b.target, source, b.bytes);
    if (!b.to_shared || !c->checks) return;
    touch(c, b.target, b.bytes);
    fill_state(c->shared_state + b.target, b.bytes, WRITTEN);
}

// --- instructions ---------------------------------------------------------------------------

// spaces: bit 0 set for a target, bit 1 for a source in shared memory.
extern "C" void vg_bulk_copy(Context* c, Warp* w, u32 load_site, u32 store_site, const u64* target, const u64* source,
                             const u32* bytes, const u32* barrier, u32 mask, u32 spaces, u32 with_barrier,
                             Reduction operation, u32 item) {
    Queue& queue = queue_of(c, w);
    Issue issue{c, w, load_site, store_site};
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        Bulk b{target[lane], source[lane], bytes[lane], lane, queue.bulk_committed[lane], store_site,
               with_barrier ? barrier[lane] : NO_BARRIER, (spaces & 1) != 0, (spaces & 2) != 0, operation, item, false};
        if (with_barrier && !is_barrier(c, w, store_site, lane, b.barrier)) continue;
        if (b.bytes % GRAIN)
            report({c, w, store_site, 1u << lane, lane, Use::WRITE, b.to_shared ? Space::SHARED : Space::GLOBAL, b.target,
                    b.bytes}, Fault::MISALIGNED, "sizes are multiples of 16");
        if (!b.bytes) continue;
        b.denied = b.bytes % GRAIN || !issue.read(b) || !issue.write(b);
        queue.bulks.push_back(b), async_state(c).with_barrier += with_barrier;
    }
}

extern "C" void vg_bulk_commit(Context* c, Warp* w, u32 mask) {
    Queue& queue = queue_of(c, w);
    for (u32 bits = mask; bits; bits &= bits - 1) queue.bulk_committed[__builtin_ctz(bits)]++;
}

extern "C" void vg_bulk_wait(Context* c, Warp* w, u32 mask, u32 allowed) {
    Queue& queue = queue_of(c, w);
    std::vector<Bulk> left;
    for (const Bulk& b : queue.bulks) {
        u32 committed = queue.bulk_committed[b.lane];
        bool due = b.barrier == NO_BARRIER && mask >> b.lane & 1 && b.group < committed - std::min(allowed, committed);
        if (due)
            land_bulk(c, queue, b);
        else
            left.push_back(b);
    }
    queue.bulks = std::move(left);
}
