#include "global.h"

namespace {

[[gnu::noinline]] void settle_now(Allocation* a, u32 launch, u64 offset, u64 bytes) {
    bring_up(a->writers, launch, offset, bytes, settle_writers);
}

inline void settle_pages(Allocation* a, u32 launch, u64 offset, u64 bytes) {
    if (a->writers.launches[offset / PAGE] != launch || offset % PAGE + bytes > PAGE) settle_now(a, launch, offset, bytes);
}

bool read_before(const Allocation* a, u32 launch, u64 offset, u64 bytes) {
    for (u64 page = offset / PAGE; page <= (offset + bytes - 1) / PAGE; page++)
        if (a->readers.launches[page] == launch) return true;
    return false;
}

bool visible(Context* c, u8 mark) {
    LaunchState& l = *c->launch;
    return mark == MANY ? l.any_published.load(std::memory_order_relaxed)
                        : l.published[mark].load(std::memory_order_relaxed);
}

// One run of a read that is not plainly fine.
void look_at_read(Context* c, const Site& s, const Allocation* a, u64 first, Run run, u32 bytes, Faults& faults) {
    u32 launch = c->launch->number;
    for (u32 bits = lanes_in(s, run); bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        u64 offset = first + s.delta[lane] - a->base;
        for (u64 b = 0; b < bytes; b++) {
            u8 state = state_of(a->writers, offset + b);
            bool marked = a->writers.launches[(offset + b) / PAGE] == launch;
            bool unwritten = state == NEVER && !a->all_written && !a->sampled && every(a->writers, offset, bytes, none_written);
            bool raced = !s.relaxed && marked && state >= MARK && state != c->block_mark && !visible(c, state);
            if (!unwritten && !raced) continue;
            faults.add(lane, s.delta[lane] + (i64)b, raced ? Fault::GLOBAL_RACE : unwritten_fault(a), state, true);
            break;
        }
    }
}

}  // namespace

void check_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes) {
    u32 launch = c->launch->number;
    bool contested = a->store_launch == launch;
    Faults faults;
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u64 offset = first + run.delta - a->base;
        if (contested) settle_pages(a, launch, offset, run.bytes);
        if (faults.any()) {  // count the other threads
            look_at_read(c, s, a, first, run, bytes, faults);
            continue;
        }
        bool fine = every(a->writers, offset, run.bytes, [&](const u8* state, u64 count) {
            return !contested       ? marked_written(state, count)
                   : a->all_written ? mine_or_old(state, count, c->block_mark)
                                    : only(state, count, WRITTEN, c->block_mark);
        });
        if (!fine) look_at_read(c, s, a, first, run, bytes, faults);
        if (contested && !s.relaxed && !faults.any()) {
            bring_up(a->readers, launch, offset, run.bytes, forget_readers);
            mark_reads(a->readers, offset, run.bytes, c->block_mark);
        }
    }
    faults.report(c, w, site, s, Use::READ, Space::GLOBAL, first, bytes);
}

// Writing what is there already harms nobody, whoever wrote it.
static bool same_value(const Site& s, u64 first, const void* data, u32 item, u32 bytes, u32 lane) {
    for (u32 v = 0; v < bytes / item; v++)
        if (memcmp((const u8*)(first + s.delta[lane]) + v * item, (const u8*)data + (v * LANES + lane) * item, item)) return false;
    return true;
}

// One run of a write that is not plainly fine.
static void look_at_write(Context* c, const Site& s, const Allocation* a, u64 first, Run run, u32 bytes, const void* data,
                          u32 item, bool was_read, Faults& faults) {
    for (u32 bits = lanes_in(s, run); bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        if (same_value(s, first, data, item, bytes, lane)) continue;
        u64 offset = first + s.delta[lane] - a->base;
        for (u64 b = 0; b < bytes; b++) {
            u8 writer = state_of(a->writers, offset + b), reader = was_read ? state_of(a->readers, offset + b) : 0;
            bool by_other = writer >= MARK && writer != c->block_mark && !visible(c, writer);
            bool read_by_other = reader >= MARK && reader != c->block_mark && !visible(c, reader);
            if (!by_other && !read_by_other) continue;
            faults.add(lane, s.delta[lane] + (i64)b, Fault::GLOBAL_RACE, by_other ? writer : reader, by_other);
            break;
        }
    }
}

void check_write(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes, const void* data,
                 u32 item) {
    u32 launch = c->launch->number;
    Faults faults;
    a->stored = true, a->store_launch = launch;
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u64 offset = first + run.delta - a->base;
        settle_pages(a, launch, offset, run.bytes);
        if (c->checks && !s.relaxed) {
            bool was_read = read_before(a, launch, offset, run.bytes);
            if (was_read) bring_up(a->readers, launch, offset, run.bytes, forget_readers);
            auto mine = [&](const u8* state, u64 count) { return mine_or_old(state, count, c->block_mark); };
            auto unread = [&](const u8* state, u64 count) { return only(state, count, NEVER, c->block_mark); };
            bool fine = every(a->writers, offset, run.bytes, mine) &&
                        (!was_read || every(a->readers, offset, run.bytes, unread));
            if (!fine) look_at_write(c, s, a, first, run, bytes, data, item, was_read, faults);
        }
        fill(a->writers, offset, run.bytes, s.relaxed ? (u8)WRITTEN : c->block_mark);
    }
    faults.report(c, w, site, s, Use::WRITE, Space::GLOBAL, first, bytes);
}

u32 careful_lanes(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 bytes, bool store, bool counted) {
    u32 fine = 0, faulty[3] = {}, first_faulty = LANES;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        Allocation* a = find_allocation(address[i]);
        bool inside = a && !a->freed && address[i] + bytes <= a->base + a->bytes;
        if (inside && address[i] % bytes == 0)
            fine |= 1u << i;
        else
            faulty[(u32)global_fault(a, address[i], bytes)] |= 1u << i, first_faulty = std::min(first_faulty, i);
    }
    for (u32 fault = 0; fault < 3; fault++)
        if (first_faulty < LANES && faulty[fault] >> first_faulty & 1)
            report({c, w, site, faulty[fault], first_faulty, store ? Use::WRITE : Use::READ, Space::GLOBAL,
                    address[first_faulty], bytes}, (Fault)fault);
    // lanes of each buffer form a request of their own
    for (u32 left = fine; left;) {
        u64 first = address[__builtin_ctz(left)];
        Allocation* a = find_allocation(first);
        u32 part = 0;
        for (u32 bits = left; bits; bits &= bits - 1)
            if (address[__builtin_ctz(bits)] - a->base < a->bytes) part |= bits & -bits;
        // lanes too far apart for one pattern go one by one
        Site s;
        learn(s, address, part, bytes);
        if (!s.valid) part = 1u << __builtin_ctz(left), learn(s, address, part, bytes);
        if (counted) {
            learn_lines(s, first, bytes);
            c->sites[site].sector_total += s.sectors, c->sites[site].wavefront_total += s.wavefronts;
            pass_caches(c, s, a, first, store);
        }
        if (store) {
            a->stored = true, a->store_launch = c->launch->number;
            for (u32 n = 0; n < s.runs; n++) {
                u64 offset = first + s.run[n].delta - a->base;
                settle_pages(a, c->launch->number, offset, s.run[n].bytes);
                fill(a->writers, offset, s.run[n].bytes, c->block_mark);
            }
        } else if (c->checks && (!a->all_written || a->store_launch == c->launch->number)) {
            check_read(c, w, site, s, a, first, bytes);
        }
        left &= ~part;
    }
    return fine;
}

void publish(Context* c, Warp* w) {
    order_shared(c, 1u << w->index, false);
    c->launch->published[c->block_mark].store(true, std::memory_order_relaxed);
    c->launch->any_published.store(true, std::memory_order_relaxed);
}
