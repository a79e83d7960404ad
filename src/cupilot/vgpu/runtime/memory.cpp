// Loads and stores as translated code calls them, by space and width; generic addresses find their space here.
#include "global.h"
#include "shared.h"

// Window of a generic address: 0 is global memory.
static inline u32 window(u64 address) { return (u32)(address >> 56); }

#define ARGS(T) Context *c, Warp *w, u32 site, const T *address, u32 mask, void *data

template <int W, int V, bool STORE>
static void generic_access(ARGS(u64), void (*local)(ARGS(u64))) {
    u32 shared = 0, own = 0;
    u32 inner[LANES] = {};
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        if (window(address[i]) == SHARED_WINDOW) shared |= 1u << i, inner[i] = (u32)address[i];
        if (window(address[i]) == LOCAL_WINDOW) own |= 1u << i;
    }
    if (shared) shared_access<W, V, STORE>(c, w, site, inner, shared, data);
    if (own) local(c, w, site, address, own, data);
    if (mask & ~shared & ~own) global_access<W, V, STORE>(c, w, site, address, mask & ~shared & ~own, data);
}

// Each address that lanes differ in is a pass of its own (CUDA C++ Best Practices Guide, "Constant Memory"), through a
// small cache whose misses are counted as sectors. Kernel parameters come the same way.
static void count_constants(Context* c, Site& s, const u64* address, u32 mask, u32 bytes) {
    constexpr u32 LINE = 64;
    s.requests++, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
    for (u32 left = mask; left;) {
        u64 one = address[__builtin_ctz(left)], line = one / LINE;
        u32 same = 0;
        for (u32 bits = left; bits; bits &= bits - 1)
            if (address[__builtin_ctz(bits)] == one) same |= bits & -bits;
        left &= ~same;
        s.wavefront_total++;
        u64 *begin = c->constants, *end = begin + LANES, *found = std::find(begin, end, line);
        s.sector_total += found == end;
        std::rotate(begin, found == end ? end - 1 : found, found == end ? end : found + 1);
        *begin = line;
    }
}

template <int W, int V>
static void const_access(ARGS(u64)) {
    if (mask) count_constants(c, c->sites[site], address, mask, W * V);
    u32 fine = careful_lanes(c, w, site, address, mask, W * V, false, false);
    for (u32 bits = mask & ~fine; bits; bits &= bits - 1) clear_lane<W, V>(__builtin_ctz(bits), data);
    move_lanes<W, V, false>(fine, data, [&](int i) { return address[i]; });
}

#define FORM(W, V)                                                                                                       \
    extern "C" void vg_ld_local_##W##_##V(ARGS(u64));                                                                    \
    extern "C" void vg_st_local_##W##_##V(ARGS(u64));                                                                    \
    extern "C" void vg_ld_global_##W##_##V(ARGS(u64)) { global_access<W, V, false>(c, w, site, address, mask, data); }  \
    extern "C" void vg_st_global_##W##_##V(ARGS(u64)) { global_access<W, V, true>(c, w, site, address, mask, data); }   \
    extern "C" void vg_ld_shared_##W##_##V(ARGS(u32)) { shared_access<W, V, false>(c, w, site, address, mask, data); }  \
    extern "C" void vg_st_shared_##W##_##V(ARGS(u32)) { shared_access<W, V, true>(c, w, site, address, mask, data); }   \
    extern "C" void vg_ld_generic_##W##_##V(ARGS(u64)) {                                                                 \
        generic_access<W, V, false>(c, w, site, address, mask, data, vg_ld_local_##W##_##V);                             \
    }                                                                                                                    \
    extern "C" void vg_st_generic_##W##_##V(ARGS(u64)) {                                                                 \
        generic_access<W, V, true>(c, w, site, address, mask, data, vg_st_local_##W##_##V);                              \
    }                                                                                                                    \
    extern "C" void vg_ld_const_##W##_##V(ARGS(u64)) { const_access<W, V>(c, w, site, address, mask, data); }

FORM(1, 1) FORM(1, 2) FORM(1, 4) FORM(2, 1) FORM(2, 2) FORM(2, 4)
FORM(4, 1) FORM(4, 2) FORM(4, 4) FORM(8, 1) FORM(8, 2)

// --- groups of shared loads -----------------------------------------------------------------

// Number of loads, then for each its offset from the base and its own site.
struct GroupTable { u32 count; struct Load { i32 offset; u32 site; } load[1]; };

// No runs are left when the lanes are too far apart to be told so.
static void learn_group(Site& s, const GroupTable& t) {
    std::vector<Run> all;
    bool near = true;
    for (u32 n = 0; n < t.count; n++) {
        near &= t.load[n].offset > -(1 << 30) && t.load[n].offset < 1 << 30;
        for (u32 r = 0; near && r < s.runs; r++) all.push_back({s.run[r].delta + t.load[n].offset, s.run[r].bytes});
    }
    if (!near) all.clear();
    std::sort(all.begin(), all.end(), [](Run x, Run y) { return x.delta < y.delta; });
    s.group_runs.clear();
    for (Run run : all) {
        if (s.group_runs.empty() || run.delta > s.group_runs.back().delta + (i32)s.group_runs.back().bytes)
            s.group_runs.push_back(run);
        else
            s.group_runs.back().bytes =
                (u32)std::max<i32>((i32)s.group_runs.back().bytes, run.delta + (i32)run.bytes - s.group_runs.back().delta);
    }
}

// Every byte was written by this warp or before the last barrier; then it is read by this warp now.
static bool group_is_fine(Context* c, Warp* w, const Site& s, u32 first) {
    u8 me = warp_mark(w);
    for (Run run : s.group_runs)
        if (!only(c->shared_state + first + run.delta, run.bytes, WRITTEN, me)) return false;
    for (Run run : s.group_runs) mark_readers(c->shared_readers + first + run.delta, run.bytes, me);
    return true;
}

template <int W, int V>
static void load_group(Context* c, Warp* w, u32 site, const u32* address, u32 mask, u8* data, const GroupTable& t) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u32 first = address[__builtin_ctz(mask)];
    if (!same_pattern(s, address, mask, first)) learn(s, address, mask, BYTES), learn_group(s, t);
    bool near = !s.group_runs.empty();
    i64 low = near ? (i64)first + s.group_runs.front().delta : -1;
    i64 high = near ? (i64)first + s.group_runs.back().delta + s.group_runs.back().bytes : 0;
    bool aligned = true;
    for (u32 n = 0; n < t.count; n++) aligned &= (first + t.load[n].offset) % BYTES == 0;
    bool fine = low >= 0 && high <= (i64)c->shared_bytes && aligned && !s.misaligned;
    if (fine && c->checks) {
        c->interval_low = std::min(c->interval_low, (u32)low), c->interval_high = std::max(c->interval_high, (u32)high);
        fine = group_is_fine(c, w, s, first);
    }
    if (!fine) {
        // one by one, so that each is told of at its own place
        for (u32 n = 0; n < t.count; n++) {
            alignas(64) u32 moved[LANES];
            for (int i = 0; i < LANES; i++) moved[i] = address[i] + (u32)t.load[n].offset;
            shared_access<W, V, false>(c, w, t.load[n].site, moved, mask, data + n * BYTES * LANES);
        }
        return;
    }
    s.requests++, s.wavefront_total += s.passes, s.lane_bytes += (u64)__builtin_popcount(mask) * BYTES;
    const u8* base = c->shared;
    for (u32 n = 0; n < t.count; n++) {
        const u8* from = base + t.load[n].offset;
        move_pattern<W, V, false>(s, data + n * BYTES * LANES, [from, address](int i) { return from + address[i]; });
    }
}

#define GROUP(V)                                                                                              \
    extern "C" void vg_ld_group_4_##V(Context* c, Warp* w, u32 site, const u32* address, u32 mask, void* data, \
                                      const GroupTable* table) {                                              \
        load_group<4, V>(c, w, site, address, mask, (u8*)data, *table);                                       \
    }
GROUP(1) GROUP(2) GROUP(4)

// --- other instructions ---------------------------------------------------------------------

static bool in_shared(Space space, u64 address) {
    return space == Space::SHARED || (space == Space::GENERIC && window(address) == SHARED_WINDOW);
}

static u8* reach_shared(Context* c, Warp* w, u32 site, u32 lanes, u32 address, u32 bytes, Use use) {
    u32 lane = __builtin_ctz(lanes);
    if ((u64)address + bytes > c->shared_bytes || address % bytes) {
        u32 addresses[LANES];
        std::fill_n(addresses, LANES, address);
        careful_shared(c, w, site, addresses, lanes, bytes, use, false);
        return nullptr;
    }
    if (c->checks) {
        Site s;
        s.mask = 1u << lane, s.runs = 1, s.run[0] = {0, bytes}, s.delta[lane] = 0;
        // atomics are meant to meet: they neither leave marks nor stumble over those of others
        s.relaxed = use == Use::UPDATE;
        c->interval_low = std::min(c->interval_low, address), c->interval_high = std::max(c->interval_high, address + bytes);
        if (use == Use::UPDATE && !all_written(c->shared_state + address, bytes))
            report(c, w, site, lanes, use, Space::SHARED, address, bytes, Fault::UNINITIALIZED);
        if (use != Use::WRITE) check_shared_read(c, w, site, s, address, bytes);
        if (use == Use::WRITE) {
            alignas(16) u8 nothing[16 * LANES] = {};
            check_shared_write(c, w, site, s, address, bytes, nothing, bytes);
        }
        if (use == Use::UPDATE) fill_state(c->shared_state + address, bytes, WRITTEN);
    }
    return c->shared + address;
}

u8* reach(Context* c, Warp* w, u32 site, u32 lanes, Space space, u64 address, u32 bytes, Use use) {
    if (in_shared(space, address)) return reach_shared(c, w, site, lanes, (u32)address, bytes, use);
    bool store = use != Use::READ;
    Allocation* a = c->sites[site].allocation;
    if (!a || address < a->base || address + bytes > a->base + a->bytes || a->freed)
        a = c->sites[site].allocation = find_allocation(address);
    bool inside = a && !a->freed && address + bytes <= a->base + a->bytes;
    if (!inside || address % bytes) {
        report(c, w, site, lanes, use, Space::GLOBAL, address, bytes, global_fault(a, address, bytes));
        return nullptr;
    }
    u64 offset = address - a->base;
    if (use != Use::WRITE && c->checks && !a->all_written && !a->sampled && !every(a->writers, offset, bytes, marked_written))
        report(c, w, site, lanes, use, Space::GLOBAL, address, bytes, a->left_over ? Fault::LEFT_OVER : Fault::UNINITIALIZED);
    if (use != Use::WRITE && a->partial && !every(a->writers, offset, bytes, marked_written)) become_incomplete(c);
    if (store) {
        a->stored = true;
        bring_up(a->writers, c->launch->number, offset, bytes, settle_writers);
        if (!a->all_written || c->incomplete)
            mark_stored(c, a, offset, bytes, WRITTEN);
        else if (!every(a->writers, offset, bytes, marked_written))
            fill_never(a->writers, offset, bytes);
    }
    return (u8*)address;
}

void count_request(Context* c, u32 site, Space space, const u64* address, u32 mask, u32 bytes, bool store) {
    if (!mask) return;
    Site& s = c->sites[site];
    u64 first = address[__builtin_ctz(mask)];
    if (in_shared(space, first)) {
        // kept as a pattern of its own, so that the banks are looked at once
        if (!same_pattern(s, address, mask, first)) learn(s, address, mask, bytes);
        s.requests++, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes, s.wavefront_total += s.passes;
        return;
    }
    if (!same_pattern(s, address, mask, first)) learn(s, address, mask, bytes);
    Allocation* a = find_allocation(first + s.low);
    if (a && first + s.high + bytes <= a->base + a->bytes) {
        count_global(c, s, a, first, mask, bytes, store);
        return;
    }
    // lanes of each buffer pass the caches on their own
    s.requests++, s.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
    for (u32 left = mask; left;) {
        a = find_allocation(address[__builtin_ctz(left)]);
        u32 part = 0;
        for (u32 bits = left; bits; bits &= bits - 1)
            if (find_allocation(address[__builtin_ctz(bits)]) == a) part |= bits & -bits;
        left &= ~part;
        if (!a) continue;
        Site one;
        learn(one, address, part, bytes);
        learn_lines(one, address[__builtin_ctz(part)], bytes);
        s.sector_total += one.sectors, s.wavefront_total += one.wavefronts;
        pass_caches(c, one, a, address[__builtin_ctz(part)], store);
    }
}

extern "C" void vg_publish(Context* c, Warp* w) { publish(c, w); }
