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

// One run of a read that is not plainly fine; whether there was a fault.
bool look_at_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, Run run, u32 bytes) {
    auto bad = [&](i64 delta, auto lane) -> std::optional<Bad> {
        u64 offset = first + delta - a->base;
        u8 state = state_of(a->writers, offset);
        if (state == NEVER && a->partial) {
            become_incomplete(c);
            return {};
        }
        if (state == NEVER && !a->all_written && !a->sampled) {
            if (!every(a->writers, first + s.delta[lane()] - a->base, bytes, none_written)) return {};
            return Bad{a->left_over ? Fault::LEFT_OVER : Fault::UNINITIALIZED};
        }
        bool marked = a->writers.launches[offset / PAGE] == c->launch->number;
        if (s.relaxed || !marked || state < MARK || state == c->block_mark || visible(c, state)) return {};
        return Bad{Fault::GLOBAL_RACE, state, true};
    };
    return report_first(c, w, site, s, Use::READ, Space::GLOBAL, first, run, bytes, bad);
}

}  // namespace

void check_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes) {
    u32 launch = c->launch->number;
    bool contested = a->store_launch == launch;
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u64 offset = first + run.delta - a->base;
        if (contested) settle_pages(a, launch, offset, run.bytes);
        bool fine = every(a->writers, offset, run.bytes, [&](const u8* state, u64 count) {
            return !contested       ? marked_written(state, count)
                   : a->all_written && !a->partial ? mine_or_old(state, count, c->block_mark)
                                                   : only(state, count, WRITTEN, c->block_mark);
        });
        if (!fine && look_at_read(c, w, site, s, a, first, run, bytes)) return;
        if (contested && !s.relaxed) {
            bring_up(a->readers, launch, offset, run.bytes, forget_readers);
            mark_reads(a->readers, offset, run.bytes, c->block_mark);
        }
    }
}

// Writing what is there already harms nobody, whoever wrote it.
static bool same_value(const Site& s, u64 first, const void* data, u32 item, u32 bytes, u32 lane) {
    for (u32 v = 0; v < bytes / item; v++)
        if (memcmp((const u8*)(first + s.delta[lane]) + v * item, (const u8*)data + (v * LANES + lane) * item, item)) return false;
    return true;
}

// One run of a write that is not plainly fine.
static void look_at_write(Context* c, Warp* w, u32 site, const Site& s, const Allocation* a, u64 first, Run run, u32 bytes,
                          const void* data, u32 item) {
    u32 launch = c->launch->number;
    auto mark_at = [&](const Marks& m, u64 offset) { return m.launches[offset / PAGE] == launch ? state_of(m, offset) : (u8)NEVER; };
    auto by_other = [&](u8 mark) { return mark >= MARK && mark != c->block_mark && !visible(c, mark); };
    auto bad = [&](i64 delta, auto lane) -> std::optional<Bad> {
        u64 offset = first + delta - a->base;
        u8 writer = mark_at(a->writers, offset), reader = mark_at(a->readers, offset);
        bool wrote = by_other(writer);
        if ((!wrote && !by_other(reader)) || same_value(s, first, data, item, bytes, lane())) return {};
        return Bad{Fault::GLOBAL_RACE, wrote ? writer : reader, wrote};
    };
    report_first(c, w, site, s, Use::WRITE, Space::GLOBAL, first, run, bytes, bad);
}

void check_write(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes, const void* data,
                 u32 item) {
    u32 launch = c->launch->number;
    begin_stores(c, a);
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
            if (!fine) look_at_write(c, w, site, s, a, first, run, bytes, data, item);
        }
        mark_stored(c, a, offset, run.bytes, s.relaxed ? (u8)WRITTEN : c->block_mark);
    }
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
            report(c, w, site, faulty[fault], store ? Use::WRITE : Use::READ, Space::GLOBAL, address[first_faulty], bytes,
                   (Fault)fault);
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
            begin_stores(c, a);
            for (u32 n = 0; n < s.runs; n++) {
                u64 offset = first + s.run[n].delta - a->base;
                settle_pages(a, c->launch->number, offset, s.run[n].bytes);
                mark_stored(c, a, offset, s.run[n].bytes, c->block_mark);
            }
        } else if (c->checks && needs_look(c, a)) {
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
