// One block on the virtual GPU: its memory, its warps' turns, its barriers.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "chain.h"
#include "engine.h"
#include "order.h"

enum State : u8 { EXITED = 0, AT_BARRIER = 1, YIELDED = 2, TRAPPED = 3 };
// Back edges a warp may take before another warp runs: small, so that the warps of a block advance
// together through a loop and the cache model sees the interleaving that hardware has.
constexpr i32 FUEL = 1;

// Memory for one resident block; used again for the next one.
struct Resident {
    Context context{};
    LaunchState& l;
    std::vector<u8> state;
    std::vector<u32> turns;  // the warps in the order of their turns
    std::vector<u64> counts;  // by warp: executions and active lanes of each basic block
    u8* warps = nullptr;
    u8* shared = nullptr;  // values, then states, then readers
    u32 warp_stride = 0, warp_count = 0;
    u64 shared_bytes = 0, local_size = 0, rounds = 0;
    bool asleep = false;   // whatever could run the last time slept, or looked in vain,
    bool polling = false;  // some without sleeping
    BlockTime time;

    Resident(LaunchState& launch, Tally& tally, u8* params, Meetings* meetings) : l(launch) {
        KernelInfo& k = *l.kernel;
        Engine& e = engine();
        u32 threads = l.block[0] * l.block[1] * l.block[2];
        warp_count = (threads + LANES - 1) / LANES;
        warp_stride = (k.warp_bytes + 63) / 64 * 64;
        warps = (u8*)aligned_alloc(64, (u64)warp_stride * warp_count);
        memset(warps, 0, (u64)warp_stride * warp_count);
        shared_bytes = k.shared_bytes + l.dynamic_shared;
        u64 room = (shared_bytes + 127) / 64 * 64;
        shared = (u8*)aligned_alloc(64, 3 * room);
        memset(shared, 0xff, room), memset(shared + room, 0, 2 * room);
        Context& c = context;
        c.params = params, c.shared = shared, c.shared_bytes = shared_bytes;
        counts.assign(warp_count * tally.counts.size(), 0), c.counts = counts.data();
        time.meetings = meetings, time.counts = counts.data(), time.warps = warp_count, time.kernel = &k, c.time = &time;
        c.shared_state = shared + room, c.shared_readers = shared + 2 * room;
        c.block_low = c.interval_low = FULL, c.block_high = c.interval_high = 0;
        c.variables = k.variables.data(), c.dynamic_shared_bytes = l.dynamic_shared;
        c.sites = tally.sites.data(), c.launch = &l, c.tally = &tally, c.checks = e.settings.checks;
        memcpy(c.nctaid, l.grid, 12), memcpy(c.ntid, l.block, 12);
        c.local_bytes = k.local_bytes;
        local_size = (u64)warp_count * LANES * ((c.local_bytes + 3) / 4 * 4);
        if (local_size) c.local = (u8*)lazy_pages(local_size);
        // a block's share of the caches, given the blocks that run beside it
        u64 sms = std::max<u64>(e.device.sms, 1);
        u64 beside = std::min<u64>(l.resident, (l.blocks + sms - 1) / sms), carved = shared_bytes * beside;
        u64 l1 = e.device.l1_bytes > carved ? e.device.l1_bytes - carved : 0;
        // pointer chases leave L1 within a quarter of its size: as with four ways
        c.l1.resize(std::max<u64>(l1 / beside, 4096), 4);
        c.l2.resize(std::max<u64>(e.device.l2_bytes / std::min<u64>(l.resident * sms, l.blocks), 32768), 8);
        place_threads();
        Permutation order(warp_count, e.settings.order);
        for (u32 i = 0; i < warp_count; i++) turns.push_back(e.settings.order ? (u32)order(i) : i);
    }

    ~Resident() {
        free(warps);
        free(shared);
        if (local_size) munmap(context.local, local_size);
        free_async(&context);
    }

    Warp* warp(u32 i) { return (Warp*)(warps + (u64)i * warp_stride); }
    u64* counts_of(u32 warp) { return counts.data() + (u64)warp * 2 * l.kernel->block_instructions.size(); }

    // Add what the block's warps counted to the tally, and forget it.
    BlockCost take_counts(Tally& tally) {
        const auto &each = l.kernel->block_instructions, &cycles = l.kernel->block_cycles;
        BlockCost cost;
        u32 slowest = 0;
        time.end();
        for (u32 i = 0; i < warp_count; i++) {
            u64 path = 0, *row = counts_of(i);
            for (size_t b = 0; b < each.size(); b++) cost.work += row[2 * b] * each[b], path += row[2 * b] * cycles[b];
            if (path > cost.path) cost.path = path, slowest = i;
        }
        for (size_t b = 0; b < each.size(); b++) tally.critical[b] += counts_of(slowest)[2 * b];
        for (u32 i = 0; i < warp_count; i++)
            for (size_t n = 0; n < tally.counts.size(); n++) tally.counts[n] += counts_of(i)[n];
        std::fill(counts.begin(), counts.end(), 0);
        cost.most_work = cost.work, cost.longest_path = cost.path, cost.blocks = 1;
        return cost;
    }

    void begin(u64 index) {
        Context& c = context;
        c.ctaid[0] = (u32)(index % l.grid[0]);
        c.ctaid[1] = (u32)(index / l.grid[0] % l.grid[1]);
        c.ctaid[2] = (u32)(index / l.grid[0] / l.grid[1]);
        c.sm = (u32)(index % (u64)std::max(engine().device.sms, 1)), c.sms = (u32)engine().device.sms;
        c.workspace = l.workspace;
        c.stamp = ++engine().block_count;
        // marks are bytes: two blocks share one only by chance, and never neighbours
        c.block_mark = (u8)(MARK + (u32)(index * 2654435761u >> 7) % 250);
        u64 nobody = 0;
        if (!l.block_of[c.block_mark].compare_exchange_strong(nobody, index + 1)) l.block_of[c.block_mark] = SEVERAL;
        // no two blocks begin at the same time, so that nobody can go by what the clock shows
        c.clock = mixed(((u64)l.number << 40) + index) >> 28 & ~63ull;
        c.seen_cycles = c.seen_ns = 0, asleep = c.incomplete = false;
        c.faulty.clear();
        c.l1.clear(), c.l2.clear(), c.misses.clear();
        clear_shared();
        for (Barrier& b : c.barriers) b = Barrier{};
        begin_async(&c);
        time.begin(index);
        start_warps();
        state.assign(warp_count, YIELDED);
        rounds = 0;
    }

    // Only what the last block touched; values become NaN, so that what nobody wrote does not look like one.
    void clear_shared() {
        Context& c = context;
        u32 low = std::min(c.block_low, c.interval_low), high = std::max(c.block_high, c.interval_high);
        if (!c.checks) low = 0, high = (u32)shared_bytes;
        if (low < high) {
            memset(c.shared + low, 0xff, high - low);
            memset(c.shared_state + low, 0, high - low), memset(c.shared_readers + low, 0, high - low);
        }
        c.block_low = c.interval_low = FULL, c.block_high = c.interval_high = 0;
    }

    // The same in every block, so it is done once.
    void place_threads() {
        u32 threads = l.block[0] * l.block[1] * l.block[2];
        for (u32 i = 0; i < warp_count; i++) {
            Warp* w = warp(i);
            w->index = i, w->live = 0;
            for (u32 lane = 0; lane < LANES; lane++) {
                u32 t = i * LANES + lane;
                if (t < threads) w->live |= 1u << lane;
                w->tid[0][lane] = t % l.block[0];
                w->tid[1][lane] = t / l.block[0] % l.block[1];
                w->tid[2][lane] = t / l.block[0] / l.block[1];
            }
        }
    }

    void start_warps() {
        for (u32 i = 0; i < warp_count; i++) {
            Warp* w = warp(i);
            w->pc = 0, w->exited = 0, w->rpc = FULL, w->sp = 0, w->frame = 0, w->saved = 0, w->slept = 0, w->mask = w->live;
        }
    }

    // Let every runnable warp run once; then open barriers. False when the block is done.
    bool advance() {
        u32 awake = 0, ran = 0;
        polling = false;
        for (u32 i : turns) {
            if (state[i] != YIELDED) continue;
            Warp* w = warp(i);
            w->fuel = FUEL, context.counts = counts_of(i);
            state[i] = (u8)l.kernel->function(w, &context);
            // lanes of its own may be what a warp waits for: they have had their turns when it still polls
            bool parted = l.kernel->takes_turns && w->sp, idle = (w->fuel < 0 && !parted) || time.polls(i, parted);
            ran++, awake += state[i] != YIELDED || !idle;
            polling |= state[i] == YIELDED && w->fuel >= 0;
            if (state[i] == YIELDED && l.kernel->takes_turns && w->sp && ++w->turns % 32 == 0) change_lanes(w);
            if (state[i] == TRAPPED) trap(w);
            if (state[i] == AT_BARRIER) state[i] = gather(w) ? YIELDED : AT_BARRIER;
            if (state[i] == AT_BARRIER) arrive(w);
        }
        asleep = ran && !awake;
        if ((++rounds & 255) == 0) look_at_clock();
        bool running = false, waiting = false;
        for (u32 i = 0; i < warp_count; i++) running |= state[i] == YIELDED, waiting |= state[i] == AT_BARRIER;
        if (!waiting && !running) end_async(&context);
        if (!waiting) return running;
        if (!open_barriers() && !running) deadlock();
        return !l.stop;
    }

    // Lanes that loop may wait for lanes of their own warp: let those go on first. Either they stand where all will meet,
    // and then go beyond it alone, or they have not begun their way.
    void change_lanes(Warp* w) {
        StackEntry& top = w->stack[w->sp - 1];
        u32 others = top.mask & ~w->exited & ~w->mask;
        if (!others || top.frame != w->frame) return;
        StackEntry now{w->pc, w->mask, w->rpc, w->frame, w->saved, {}};
        if (top.pc == w->rpc) {
            now.rpc = top.rpc, w->rpc = top.rpc;
        } else if (top.rpc != w->rpc) {
            return;
        }
        w->pc = top.pc, w->mask = others;
        top = now;
    }

    // --- barriers ---------------------------------------------------------------------------

    // First source line of the block a warp is in; a barrier is a basic block of its own, and the warp goes on in the next.
    u32 line_of(Warp* w) { return l.kernel->block_lines[w->pc]; }
    u32 barrier_line(Warp* w) { return l.kernel->block_lines[w->pc - 1]; }

    // Lanes that went ahead to a barrier wait for those that loop behind them; together they come to it again.
    bool gather(Warp* w) {
        if (!l.kernel->takes_turns || !w->sp || w->mask == (w->live & ~w->exited)) return false;
        StackEntry& top = w->stack[w->sp - 1];
        u32 barrier = w->pc - 1, others = top.mask & ~w->exited;
        if (!others) return w->sp--, gather(w);
        if (top.rpc != w->rpc || top.frame != w->frame) return false;
        if (top.pc == barrier) {
            w->pc = barrier, w->mask |= others, w->sp--;
        } else {
            StackEntry now{barrier, w->mask, w->rpc, w->frame, w->saved, {}};
            w->pc = top.pc, w->mask = others;
            top = now;
        }
        return true;
    }

    void arrive(Warp* w) {
        u32 expected = w->live & ~w->exited;
        if (w->mask != expected) {
            report(&context, w, "divergent-barrier", "only some threads of a warp reached a barrier", barrier_line(w),
                   w->mask);
            l.stop = true;
            return;
        }
        Barrier& b = context.barriers[w->barrier & 15];
        b.arrived |= 1u << w->index, b.waiting |= 1u << w->index, b.threads = w->barrier_threads;
        u32 votes = w->votes & w->mask;
        b.popc += (u32)__builtin_popcount(votes), b.any |= votes != 0, b.all &= votes == w->mask;
    }

    u32 left() {
        u32 warps = 0;
        for (u32 i = 0; i < warp_count; i++)
            if (state[i] != EXITED) warps |= 1u << i;
        return warps;
    }

    // Open every barrier that has all it waits for; true when some warp can go on.
    bool open_barriers() {
        bool opened = false;
        u32 there = left();
        for (Barrier& b : context.barriers) {
            if (!b.arrived) continue;
            bool all = !b.threads && (b.arrived & there) == there;
            bool enough = b.threads && (u32)__builtin_popcount(b.arrived) * LANES >= b.threads;
            if (!all && !enough) continue;
            order_shared(&context, b.arrived, (b.arrived & there) == there);
            for (u32 i = 0; i < warp_count; i++)
                if (b.waiting >> i & 1) state[i] = YIELDED, opened = true;
            u32 popc = b.popc, any = b.any, every = b.all;
            b = Barrier{};
            b.result_popc = popc, b.result_any = any, b.result_all = every;
        }
        return opened;
    }

    void deadlock() {
        if (l.stop) return;
        u32 line = 0;  // of the first warp that waits
        for (u32 i = 0; i < warp_count; i++) {
            if (state[i] != AT_BARRIER || (line && barrier_line(warp(i)) != line)) continue;
            line = barrier_line(warp(i));
            report(&context, warp(i), "deadlock", "warps of a block wait at a barrier that the others never reach", line,
                   warp(i)->mask);
        }
        l.stop = true;
    }

    void trap(Warp* w) {
        if (!l.stop) report(&context, w, "trap", "the kernel executed trap", line_of(w), w->mask);
        l.stop = true;
    }

    void look_at_clock() {
        Engine& e = engine();
        if (e.settings.deadline_s <= 0 || steady_seconds() < e.settings.deadline_s) return;
        if (l.stop) return;
        l.stop = true, l.error = 702;  // cudaErrorLaunchTimeout
        e.timed_out = true;
        for (u32 i = 0; i < warp_count; i++) {
            Warp* w = warp(i);
            u32 alive = w->live & ~w->exited;
            if (!alive) continue;
            report(&context, w, "time-out", "still running", line_of(w), alive & -alive);
            return;
        }
    }
};
