#include "global.h"

namespace {

// The marks of older launches say no more than that a byte was written.
inline void settle_pages(Allocation* a, u32 launch, u64 offset, u64 bytes) {
    if (a->state_launch[offset / PAGE] == launch && offset % PAGE + bytes <= PAGE) return;
    for (u64 page = offset / PAGE; page <= (offset + bytes - 1) / PAGE; page++) {
        if (a->state_launch[page] == launch) continue;
        if (a->state_launch[page]) settle(a->state + page * PAGE, PAGE);
        a->state_launch[page] = launch;
    }
}

void settle_readers(Allocation* a, u32 launch, u64 offset, u64 bytes) {
    for (u64 page = offset / PAGE; page <= (offset + bytes - 1) / PAGE; page++) {
        if (a->reader_launch[page] == launch) continue;
        if (a->reader_launch[page]) memset(a->readers + page * PAGE, 0, PAGE);
        a->reader_launch[page] = launch;
    }
}

bool visible(Context* c, u8 mark) {
    LaunchState& l = *c->launch;
    return mark == MANY ? l.any_published.load(std::memory_order_relaxed)
                        : l.published[mark].load(std::memory_order_relaxed);
}

void race(Context* c, Warp* w, u32 site, const Site& s, u64 first, i64 delta, u32 bytes, bool store, const char* what) {
    u64 at = first + delta;
    access_finding(c, w, site, lane_at(s, delta, bytes), at, bytes, store, "", "global-race",
                   near_text(at) + what);
}

// One run of a read that is not plainly fine; false after a finding.
bool look_at_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, Run run, u32 bytes) {
    u64 offset = first + run.delta - a->base;
    u32 launch = c->launch->number;
    for (u64 b = 0; b < run.bytes; b++) {
        u8 state = a->state[offset + b];
        bool marked = a->state_launch[(offset + b) / PAGE] == launch;
        if (state == NEVER && !a->all_written && !a->sampled) {
            u32 lane = lane_at(s, run.delta + (i64)b, bytes);
            u64 at = first + s.delta[lane];
            if (!none_written(a->state + (at - a->base), bytes)) continue;
            access_finding(c, w, site, lane, at, bytes, false, "", "uninitialized", near_text(at));
            return false;
        }
        if (!s.relaxed && marked && state >= MARK && state != c->block_mark && !visible(c, state)) {
            race(c, w, site, s, first, run.delta + (i64)b, bytes, false, "; another block wrote it in this launch");
            return false;
        }
    }
    return true;
}

}  // namespace

void check_read(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes) {
    u32 launch = c->launch->number;
    bool contested = a->store_launch == launch;
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u64 offset = first + run.delta - a->base;
        const u8* state = a->state + offset;
        if (contested) settle_pages(a, launch, offset, run.bytes);
        bool fine = !contested       ? all_written(state, run.bytes)
                    : a->all_written ? mine_or_old(state, run.bytes, c->block_mark)
                                     : only(state, run.bytes, WRITTEN, c->block_mark);
        if (!fine && !look_at_read(c, w, site, s, a, first, run, bytes)) return;
        if (contested && !s.relaxed) {
            settle_readers(a, launch, offset, run.bytes);
            mark_readers(a->readers + offset, run.bytes, c->block_mark);
        }
    }
}

// Writing what is there already harms nobody, whoever wrote it.
static bool same_value(const Site& s, u64 first, const void* data, u32 item, u32 bytes, u32 lane) {
    for (u32 v = 0; v < bytes / item; v++)
        if (memcmp((const u8*)(first + s.delta[lane]) + v * item, (const u8*)data + (v * LANES + lane) * item, item)) return false;
    return true;
}

void check_write(Context* c, Warp* w, u32 site, const Site& s, Allocation* a, u64 first, u32 bytes, const void* data,
                 u32 item) {
    u32 launch = c->launch->number;
    a->stored = true, a->store_launch = launch;
    for (u32 n = 0; n < s.runs; n++) {
        Run run = s.run[n];
        u64 offset = first + run.delta - a->base;
        settle_pages(a, launch, offset, run.bytes);
        u8* state = a->state + offset;
        if (c->checks && !s.relaxed) {
            bool read_before = a->reader_launch[offset / PAGE] == launch;
            bool fine = mine_or_old(state, run.bytes, c->block_mark) &&
                        (!read_before || only(a->readers + offset, run.bytes, 0, c->block_mark));
            for (u64 b = 0; !fine && b < run.bytes; b++) {
                u8 writer = state[b], reader = read_before ? a->readers[offset + b] : 0;
                bool by_other = writer >= MARK && writer != c->block_mark && !visible(c, writer);
                bool read_by_other = reader >= MARK && reader != c->block_mark && !visible(c, reader);
                if (!by_other && !read_by_other) continue;
                u32 lane = lane_at(s, run.delta + (i64)b, bytes);
                if (same_value(s, first, data, item, bytes, lane)) continue;
                race(c, w, site, s, first, run.delta + (i64)b, bytes, true,
                     by_other ? "; another block wrote it in this launch" : "; another block read it in this launch");
                fine = true;
            }
        }
        fill_state(state, run.bytes, s.relaxed ? (u8)WRITTEN : c->block_mark);
    }
}

u32 careful_lanes(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 bytes, bool store, bool counted) {
    u32 fine = 0;
    bool told = false;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        Allocation* a = find_allocation(address[i]);
        bool inside = a && !a->freed && address[i] + bytes <= a->base + a->bytes;
        bool aligned = address[i] % bytes == 0;
        if (inside && aligned) {
            fine |= 1u << i;
        } else if (!told) {
            told = true;
            const char* kind = a && a->freed ? "use-after-free" : inside ? "misaligned" : "out-of-bounds";
            access_finding(c, w, site, i, address[i], bytes, store, "", kind, near_text(address[i]));
        }
    }
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
            c->sites[site].sector_total += s.sectors, c->sites[site].wavefront_total += std::max(s.passes, (s.lines + 3) / 4);
            pass_caches(c, s, a, first, store);
        }
        if (store) {
            a->stored = true, a->store_launch = c->launch->number;
            for (u32 n = 0; n < s.runs; n++) {
                u64 offset = first + s.run[n].delta - a->base;
                settle_pages(a, c->launch->number, offset, s.run[n].bytes);
                fill_state(a->state + offset, s.run[n].bytes, c->block_mark);
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
