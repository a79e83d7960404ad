// Copies that a block started and that did not arrive yet, in the order in which each warp issued them.
//
// Data moves when somebody waits for it: as late as hardware may move it, so that a kernel that does not wait is seen.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine.h"

// One cp.async of a warp. Groups are numbered by lane, because lanes may commit on their own.
struct Copy {
    alignas(32) u32 group[LANES];
    alignas(32) u32 target[LANES];  // in shared memory
    alignas(32) u64 source[LANES];
    u8 source_bytes[LANES];  // the rest is filled with zeros
    u32 lanes;               // that did not arrive yet
    u32 bytes;               // of one lane
    u32 order, site;
};

// One cp.async.mbarrier.arrive: takes place when all that these lanes copied before has arrived.
struct Arrival {
    u32 lanes, barrier, order, site;
};

// The runtime function of an atomic operation (atomic.cpp).
using Reduction = void (*)(Context*, Warp*, u32, const u64*, u32, void*, u32, u32, u32);
constexpr u32 NO_BARRIER = FULL;

// One cp.async.bulk or cp.reduce.async.bulk of a lane.
struct Bulk {
    u64 target, source;
    u32 bytes, lane, group, site;
    u32 barrier;  // told of the bytes; or NO_BARRIER, and the lane waits for the group
    bool to_shared, from_shared;
    Reduction reduce;  // or null: a plain copy
    u32 item;          // bytes of an element of a reduction
    bool denied;       // nothing is moved, but the barrier counts on it
};

struct Queue {
    alignas(32) u32 committed[LANES] = {};
    u32 bulk_committed[LANES] = {};
    u32 issued = 0;
    Warp* warp = nullptr;
    std::vector<Copy> copies;  // from `first` on
    size_t first = 0;
    std::vector<Arrival> arrivals;
    std::vector<Bulk> bulks;
};

// Warps, by bit, that arrived at a barrier: in its phase, and in phases that are over and were not waited for yet.
struct Arrived {
    u32 now = 0, before = 0;
};

struct AsyncState {
    Queue queues[LANES];    // by warp
    u32 with_barrier = 0;   // arrivals and bulk copies that a barrier is told of
    std::unordered_map<u32, Arrived> arrived;  // by barrier
};

AsyncState& async_state(Context* c);
Queue& queue_of(Context* c, Warp* w);

// Let everything arrive that a barrier is told of; whether there is one, with a finding if not (mbarrier.cpp).
void settle_barrier(Context* c, u32 barrier);
bool is_barrier(Context* c, Warp* w, u32 site, u32 lane, u32 address);
// Let copies of these lanes arrive that were issued before a moment (async.cpp).
void land_before(Context* c, Queue& queue, u32 lanes, u32 order);
// Let a bulk copy arrive (bulk.cpp).
void land_bulk(Context* c, Queue& queue, const Bulk& bulk);

// A lane's range of global memory, with an alignment of its own; reports and gives null where it may not be accessed.
Allocation* global_range(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, u32 alignment, bool store);
