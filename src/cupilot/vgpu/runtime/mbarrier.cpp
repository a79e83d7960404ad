// Barrier objects in shared memory (PTX ISA: mbarrier, cp.async.mbarrier.arrive).
//
// The object's 64 bits hold its counts, so it lives and dies with the memory it is in; which warps arrived in a phase,
// and what is still to arrive by itself, is known beside it. What arrives by itself does so when somebody tests the
// barrier. Whoever finds a phase over orders what the warps that arrived in it did to shared memory before what
// follows: a kernel that does not wait is seen. What they did between their arrival and that moment is ordered as well.
#include <algorithm>
#include <cstring>

#include "async.h"
#include "findings.h"

namespace {

constexpr u32 COUNT_BITS = 20, MOST = (1u << COUNT_BITS) - 1;
constexpr u64 TAG = 1;  // two bits that neither zeros nor untouched memory have

struct Counts {
    u32 pending, expected;  // arrivals of this phase that are left; arrivals of the next phase
    i32 tx;                 // bytes of this phase that are still to come
    u32 phase;              // its parity
};

u64 encode(const Counts& n) {
    u64 tx = (u64)(u32)n.tx & (2 * MOST + 1);
    return (u64)n.pending | (u64)n.expected << 20 | tx << 40 | TAG << 61 | (u64)n.phase << 63;
}

bool decode(u64 word, Counts& n) {
    n.pending = word & MOST, n.expected = word >> 20 & MOST, n.phase = (u32)(word >> 63);
    n.tx = (i32)((u32)(word >> 40) << 11) >> 11;
    return (word >> 61 & 3) == TAG;
}

u64 word_of(Context* c, u32 address) {
    u64 word;
    memcpy(&word, c->shared + address, 8);
    return word;
}

void put(Context* c, u32 address, const Counts& n) {
    u64 word = encode(n);
    memcpy(c->shared + address, &word, 8);
}

// One lane's access to a barrier; reports and is false where there is none.
struct Access {
    Context* c;
    Warp* w;
    u32 site, lane;
    u32 address = 0;
    Counts n{};

    Faulting faulting(u8 mark = NEVER) const {
        return {c, w, site, 1u << lane, lane, Use::UPDATE, Space::SHARED, address, 8, mark, true};
    }

    void invalid(const char* why) const { report(faulting(), Fault::INVALID_BARRIER, why); }

    bool reach_memory(u64 given, bool generic, Use use) {
        address = (u32)given;
        if (generic && given >> 56 != SHARED_WINDOW) {
            Faulting at = faulting();
            at.space = Space::GLOBAL, at.address = given;
            report(at, Fault::OUT_OF_BOUNDS, "a barrier must be in shared memory");
            return false;
        }
        u8 mark = c->checks && (u64)address + 8 <= c->shared_bytes ? c->shared_state[address] : (u8)NEVER;
        if (use == Use::UPDATE && mark >= MARK && mark < MARK + 32 && mark != MARK + w->index)
            report(faulting(mark), Fault::SHARED_RACE);
        bool there = reach(c, w, site, 1u << lane, Space::SHARED, address, 8, use) != nullptr;
        // what initialised it for others is a barrier, not its use by the warp that did so
        if (there && use == Use::UPDATE && mark == MARK + w->index) memset(c->shared_state + address, mark, 8);
        return there;
    }

    bool reload() {
        if (decode(word_of(c, address), n)) return true;
        invalid("there is no initialised mbarrier");
        return false;
    }

    bool open(u64 given, bool generic) { return reach_memory(given, generic, Use::UPDATE) && reload(); }

    // Whether the phase ended.
    bool close() {
        bool over = !n.pending && !n.tx;
        if (over) {
            n.phase ^= 1, n.pending = n.expected;
            Arrived& warps = async_state(c).arrived[address];
            warps.before |= warps.now, warps.now = 0;
        }
        put(c, address, n);
        return over;
    }

    void order() const {
        u32& warps = async_state(c).arrived[address].before;
        u32 threads = c->ntid[0] * c->ntid[1] * c->ntid[2];
        u32 block = threads > 31 * LANES ? FULL : (1u << (threads + LANES - 1) / LANES) - 1;
        if (warps) order_shared(c, warps, warps == block);
        warps = 0;
    }

    void arrive(u32 count, bool drop, bool may_complete) {
        if (n.pending < count || !count || (drop && n.expected < count))
            return invalid("more arrivals than its phase expects");
        n.pending -= count;
        if (drop) n.expected -= count;
        async_state(c).arrived[address].now |= 1u << w->index;
        if (close() && !may_complete) invalid("an arrival with .noComplete ended its phase");
    }

    bool expect(i64 bytes) {
        i64 sum = n.tx + bytes;
        if (sum > (i64)MOST || sum < -(i64)MOST) return invalid("its count of bytes is out of range"), false;
        n.tx = (i32)sum;
        return true;
    }
};

template <class Step>
void each_lane(Context* c, Warp* w, u32 site, u32 mask, Step step) {
    for (u32 bits = mask; bits; bits &= bits - 1) {
        Access access{c, w, site, (u32)__builtin_ctz(bits)};
        step(access, access.lane);
    }
}

void count(Context* c, u32 site, const u64* address, u32 mask) {
    u64 inner[LANES];
    for (u32 i = 0; i < LANES; i++) inner[i] = (u32)address[i];
    count_request(c, site, Space::SHARED, inner, mask, 8, true);
}

// Takes what belongs to a barrier out of a list, in order.
template <class Item>
std::vector<Item> take(std::vector<Item>& items, u32 barrier) {
    std::vector<Item> found;
    auto left = items.begin();
    for (Item& item : items)
        if (item.barrier == barrier)
            found.push_back(item);
        else
            *left++ = item;
    items.erase(left, items.end());
    return found;
}

}  // namespace

bool is_barrier(Context* c, Warp* w, u32 site, u32 lane, u32 address) {
    return Access{c, w, site, lane}.open(address, false);
}

void settle_barrier(Context* c, u32 barrier) {
    if (!c->async || !c->async->with_barrier) return;
    for (Queue& queue : c->async->queues) {
        if (queue.arrivals.empty() && queue.bulks.empty()) continue;
        for (const Arrival& arrival : take(queue.arrivals, barrier)) {
            c->async->with_barrier--;
            land_before(c, queue, arrival.lanes, arrival.order);
            each_lane(c, queue.warp, arrival.site, arrival.lanes, [&](Access& access, u32) {
                access.address = barrier;
                if (access.reload()) access.arrive(1, false, true);
            });
        }
        for (const Bulk& bulk : take(queue.bulks, barrier)) {
            c->async->with_barrier--;
            land_bulk(c, queue, bulk);
            Access access{c, queue.warp, bulk.site, bulk.lane, barrier};
            if (access.reload() && access.expect(-(i64)bulk.bytes)) access.close();
        }
    }
}

// --- instructions ---------------------------------------------------------------------------

extern "C" void vg_mbarrier_init(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic,
                                 const u32* counts) {
    count(c, site, address, mask);
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (!access.reach_memory(address[lane], generic, Use::WRITE)) return;
        if (!counts[lane] || counts[lane] > MOST) return access.invalid("a barrier for 1 to 1048575 arrivals");
        async_state(c).arrived[access.address] = Arrived{};
        put(c, access.address, Counts{counts[lane], counts[lane], 0, 0});
    });
}

extern "C" void vg_mbarrier_inval(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic) {
    count(c, site, address, mask);
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (!access.open(address[lane], generic)) return;
        settle_barrier(c, access.address);
        memset(c->shared + access.address, 0, 8);
    });
}

// Every lane's arrival follows the one before it; `states` receives what each found.
extern "C" void vg_mbarrier_arrive(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic,
                                   const u32* counts, const u32* bytes, u64* states, u32 drop, u32 may_complete) {
    count(c, site, address, mask);
    memset(states, 0, LANES * sizeof(u64));
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (!access.open(address[lane], generic)) return;
        if (access.n.pending < counts[lane]) {
            // the phase may have ended already, for all that this warp can know
            settle_barrier(c, access.address);
            if (!access.reload()) return;
        }
        states[lane] = encode(access.n);
        if (access.expect(bytes[lane])) access.arrive(counts[lane], drop, may_complete);
    });
}

// More bytes are expected, or some came.
extern "C" void vg_mbarrier_bytes(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic,
                                  const u32* bytes, u32 complete) {
    count(c, site, address, mask);
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (!access.open(address[lane], generic)) return;
        if (access.expect(complete ? -(i64)bytes[lane] : (i64)bytes[lane])) access.close();
    });
}

// The lanes whose phase is over. Tests are not counted: how often a loop tests depends on the order in which warps run.
extern "C" u32 vg_mbarrier_test(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic,
                                const u32* phases) {
    u32 over = 0;
    u64 last = 0;
    u32 phase = 2;  // unknown
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (phase == 2 || address[lane] != last) {
            last = address[lane], phase = 3;
            if (access.open(last, generic)) {
                settle_barrier(c, access.address);
                phase = access.reload() ? access.n.phase : 3;
                if (phase != (phases[lane] & 1)) access.order();
            }
        }
        // where there is no barrier nobody waits for it
        over |= (u32)(phase != (phases[lane] & 1)) << lane;
    });
    return over;
}

extern "C" void vg_cp_async_arrive(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 generic,
                                   u32 increment) {
    count(c, site, address, mask);
    Queue& queue = queue_of(c, w);
    u32 order = queue.issued++;
    each_lane(c, w, site, mask, [&](Access& access, u32 lane) {
        if (!access.open(address[lane], generic)) return;
        if (increment) access.n.pending++, put(c, access.address, access.n);
        Arrival* last = queue.arrivals.empty() ? nullptr : &queue.arrivals.back();
        if (last && last->order == order && last->barrier == access.address) {
            last->lanes |= 1u << lane;
            return;
        }
        queue.arrivals.push_back({1u << lane, access.address, order, site});
        async_state(c).with_barrier++;
    });
}
