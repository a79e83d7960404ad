// Running a launch: blocks one after the other (or on several threads), warps of a block in turn.
//
// A block that gets nowhere for long waits for others (a grid-wide barrier, a lock): then the next blocks start beside
// it, up to as many as fit on the device.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "engine.h"
#include "print.h"

enum State : u8 { EXITED = 0, AT_BARRIER = 1, YIELDED = 2, TRAPPED = 3 };
// Back edges a warp may take before another warp runs: small, so that the warps of a block advance
// together through a loop and the cache model sees the interleaving that hardware has.
constexpr i32 FUEL = 1;
// A sample has at least this many blocks, unless they cost a multiple of the budget.
constexpr u64 MINIMUM_SAMPLE = 3, OVERSPENT = 4;
constexpr u64 BLOCK_SAMPLE_LIMIT = 256;
// Turns of a block after which it may be waiting for another one; turns between looks at the others.
constexpr u64 PARAM_BYTES = 32768;
constexpr u64 PATIENCE = 1 << 15, TURNS = 64;

Engine& engine() {
    static Engine instance;
    return instance;
}

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

// --- one block ------------------------------------------------------------------------------

// Memory for one resident block; used again for the next one.
struct Resident {
    Context context{};
    LaunchState& l;
    std::vector<u8> state;
    u8* warps = nullptr;
    u8* shared = nullptr;  // values, then states, then readers
    u32 warp_stride = 0, warp_count = 0;
    u64 shared_bytes = 0, local_size = 0, rounds = 0;

    Resident(LaunchState& launch, Tally& tally, u8* params) : l(launch) {
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
        c.params = params, c.shared = shared, c.shared_bytes = shared_bytes, c.counts = tally.counts.data();
        c.shared_state = shared + room, c.shared_readers = shared + 2 * room;
        c.block_low = c.interval_low = FULL, c.block_high = c.interval_high = 0;
        c.variables = k.variables.data(), c.dynamic_shared_bytes = l.dynamic_shared;
        c.sites = tally.sites.data(), c.launch = &l, c.tally = &tally, c.checks = e.settings.checks;
        memcpy(c.nctaid, l.grid, 12), memcpy(c.ntid, l.block, 12);
        c.local_bytes = k.local_bytes;
        local_size = (u64)warp_count * LANES * ((c.local_bytes + 3) / 4 * 4);
        if (local_size) c.local = (u8*)lazy_pages(local_size);
        // a block's share of the caches, given the blocks that run beside it
        u64 carved = shared_bytes * l.resident;
        u64 l1 = e.device.l1_bytes > carved ? e.device.l1_bytes - carved : 0;
        c.l1.resize(std::max<u64>(l1 / l.resident, 4096));
        u64 beside = std::min<u64>((u64)l.resident * e.device.sms, l.blocks);
        c.l2.resize(std::max<u64>(e.device.l2_bytes / std::max<u64>(beside, 1), 32768));
        place_threads();
    }

    ~Resident() {
        free(warps);
        free(shared);
        if (local_size) munmap(context.local, local_size);
        free_async(&context);
    }

    Warp* warp(u32 i) { return (Warp*)(warps + (u64)i * warp_stride); }

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
        c.clock = 0;
        c.l1.clear(), c.l2.clear(), c.misses.clear();
        clear_shared();
        for (Barrier& b : c.barriers) b = Barrier{};
        begin_async(&c);
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
            w->pc = 0, w->exited = 0, w->rpc = FULL, w->sp = 0, w->frame = 0, w->saved = 0, w->mask = w->live;
        }
    }

    // Let every runnable warp run once; then open barriers. False when the block is done.
    bool advance() {
        for (u32 i = 0; i < warp_count; i++) {
            if (state[i] != YIELDED) continue;
            Warp* w = warp(i);
            w->fuel = FUEL;
            state[i] = (u8)l.kernel->function(w, &context);
            if (state[i] == YIELDED && l.kernel->takes_turns && w->sp && ++w->turns % 32 == 0) change_lanes(w);
            if (state[i] == TRAPPED) trap(w);
            if (state[i] == AT_BARRIER) state[i] = gather(w) ? YIELDED : AT_BARRIER;
            if (state[i] == AT_BARRIER) arrive(w);
        }
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
            report(&l, "divergent-barrier",
                   "a barrier was reached by some threads of a warp only" +
                       place(&context, w, barrier_line(w), __builtin_ctz(w->mask)));
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
        for (u32 i = 0; i < warp_count && !l.stop; i++) {
            if (state[i] != AT_BARRIER) continue;
            report(&l, "deadlock", "warps of a block wait at a barrier that the others never reach" +
                   place(&context, warp(i), barrier_line(warp(i)), __builtin_ctz(warp(i)->mask)));
            l.stop = true;
        }
    }

    void trap(Warp* w) {
        if (!l.stop)
            report(&l, "trap", "the kernel executed trap" + place(&context, w, line_of(w), __builtin_ctz(w->mask | 1u << 31)));
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
            report(&l, "time-out", "still running" + place(&context, w, line_of(w), __builtin_ctz(alive)));
            return;
        }
    }
};

// --- many blocks ----------------------------------------------------------------------------

// One host thread's work: residents take blocks from a source until it has no more.
struct Worker {
    LaunchState& l;
    u8* params;
    Tally tally;
    std::vector<std::unique_ptr<Resident>> residents;

    Worker(LaunchState& launch, u8* arguments, u32 thread) : l(launch), params(arguments) {
        tally.stamps = &engine().stamps[thread];
        tally.counts.assign(2 * l.kernel->block_instructions.size(), 0);
        tally.sites.assign(l.kernel->sites.size(), Site{});
        for (size_t i = 0; i < tally.sites.size(); i++) {
            const SiteInfo& info = l.kernel->sites[i];
            tally.sites[i].relaxed = info.relaxed, tally.sites[i].wanted = info.wanted;
        }
        tally.traffic.assign(engine().by_index.size(), Traffic{});
    }

    Resident& resident(size_t number) {
        while (residents.size() <= number) residents.push_back(std::make_unique<Resident>(l, tally, params));
        return *residents[number];
    }

    // `next(stuck)` gives a block's number or, when there are no more, l.blocks; `beside` blocks start at once.
    template <class Next>
    void run(Next next, u64 beside, u64 most) {
        std::vector<Resident*> active, idle;
        auto start = [&](bool stuck) {
            u64 block = next(stuck);
            if (block >= l.blocks) return false;
            if (idle.empty()) idle.push_back(&resident(residents.size()));
            active.push_back(idle.back());
            idle.pop_back();
            active.back()->begin(block);
            return true;
        };
        while (active.size() < beside && start(false)) {
        }
        u64 since_progress = 0;
        while (!active.empty() && !l.stop) {
            bool alone = active.size() == 1;
            for (size_t i = 0; i < active.size() && !l.stop;) {
                bool going = true;
                for (u64 turn = 0; going && !l.stop && turn < (alone ? PATIENCE : TURNS); turn++) going = active[i]->advance();
                if (going) {
                    i++;
                    continue;
                }
                idle.push_back(active[i]);
                active.erase(active.begin() + (i64)i);
                since_progress = 0;
            }
            if (active.empty()) {
                start(false);
            } else if (alone || ++since_progress * TURNS >= PATIENCE) {
                since_progress = 0;
                if (active.size() < most) start(true);
            }
        }
    }

    u64 lane_instructions() const {
        u64 total = 0;
        const auto& instructions = l.kernel->block_instructions;
        for (size_t b = 0; b < instructions.size(); b++) total += tally.counts[2 * b + 1] * instructions[b];
        return total;
    }

    void merge() {
        std::lock_guard<std::mutex> guard(l.mutex);
        for (size_t i = 0; i < tally.counts.size(); i++) l.counts[i] += tally.counts[i];
        for (size_t i = 0; i < tally.sites.size(); i++) {
            Site &to = l.sites[i], &from = tally.sites[i];
            to.requests += from.requests, to.sector_total += from.sector_total;
            to.wavefront_total += from.wavefront_total, to.lane_bytes += from.lane_bytes;
            add_up(from);
            to.counted += from.counted;
        }
        if (l.traffic.size() < tally.traffic.size()) l.traffic.resize(tally.traffic.size());
        for (size_t i = 0; i < tally.traffic.size(); i++) {
            const Traffic& t = tally.traffic[i];
            Traffic& o = l.traffic[i];
            o.l2_read += t.l2_read, o.l2_write += t.l2_write, o.miss_read += t.miss_read, o.miss_write += t.miss_write;
            o.unique_read += t.unique_read, o.unique_write += t.unique_write;
        }
        l.lane_instructions += lane_instructions();
    }
};

// Evenly spread blocks until the budget is spent: the same blocks every time. A block that waits for one that is not in
// the sample makes the launch run whole.
void run_sample(LaunchState& l, u8* params, u64 most) {
    Worker worker(l, params, 0);
    std::vector<bool> done(l.blocks, false);
    u64 limit = std::min(l.blocks, BLOCK_SAMPLE_LIMIT), tries = 0, started = 0, in_order = 0;
    double position = 0.5;
    auto enough = [&] {
        u64 spent = worker.lane_instructions() / engine().settings.sample_budget;
        return started >= limit || spent >= OVERSPENT || (spent >= 1 && started >= MINIMUM_SAMPLE);
    };
    bool whole = false;
    auto next = [&](bool stuck) -> u64 {
        whole |= stuck;
        if (!whole && enough()) return l.blocks;
        for (; !whole && tries < 8 * limit + 64; tries++) {
            u64 index = std::min<u64>((u64)(position * l.blocks), l.blocks - 1);
            position = std::fmod(position + 0.6180339887498949, 1.0);
            if (done[index]) continue;
            done[index] = true, started++;
            return index;
        }
        while (whole && in_order < l.blocks && done[in_order]) in_order++;
        if (!whole || in_order >= l.blocks) return l.blocks;
        done[in_order] = true, started++;
        return in_order;
    };
    worker.run(next, 1, most);
    l.blocks_run = started;
    worker.merge();
    if (l.blocks_run < l.blocks)
        for (Allocation* a : engine().by_index) a->sampled |= a->store_launch == l.number;
}

void run_all(LaunchState& l, u8* params, u64 most) {
    std::atomic<u64> taken{0};
    u32 count = (u32)std::min<u64>(engine().settings.threads, l.blocks);
    auto work = [&](u32 thread) {
        Worker worker(l, params, thread);
        // a grid that may wait for itself starts as a whole
        worker.run([&](bool) { return std::min<u64>(taken++, l.blocks); }, l.cooperative ? l.blocks : 1, most);
        worker.merge();
    };
    if (l.cooperative || l.kernel->allocates) count = 1;
    std::vector<std::thread> threads;
    for (u32 i = 1; i < count; i++) threads.emplace_back(work, i);
    work(0);
    for (auto& t : threads) t.join();
    l.blocks_run = l.blocks;
}

}  // namespace

// An arrival that does not wait.
extern "C" void vg_arrive(Context* c, Warp* w, u32 number, u32 threads) {
    Barrier& b = c->barriers[number & 15];
    b.arrived |= 1u << w->index, b.threads = threads;
}

extern "C" u32 vg_barrier_result(Context* c, u32 number, u32 kind) {
    const Barrier& b = c->barriers[number & 15];
    return kind == 0 ? b.result_popc : kind == 1 ? b.result_any : b.result_all;
}

// Time passes by being looked at: the same every time, and enough for loops that wait.
extern "C" u64 vg_clock(Context* c, u32 nanoseconds) { return (c->clock += 64) * (nanoseconds ? 16 : 1); }

int run_launch(KernelInfo* kernel, const u32 grid[3], const u32 block[3], void** args, u64 dynamic_shared, u32 resident) {
    Engine& e = engine();
    auto* l = new LaunchState;
    l->kernel = kernel;
    memcpy(l->grid, grid, 12), memcpy(l->block, block, 12);
    l->dynamic_shared = (u32)dynamic_shared;
    l->blocks = (u64)grid[0] * grid[1] * grid[2];
    l->resident = resident ? resident : 1;
    l->number = ++e.launch_count;
    l->cooperative = e.settings.cooperative;
    l->counts.assign(2 * kernel->block_instructions.size(), 0);
    l->sites.assign(kernel->sites.size(), Site{});
    e.launches.push_back(l);
    // one buffer for the parameters of all launches: kernels may take their address
    static u64 kept = 0;
    if (!kept) kept = allocate(PARAM_BYTES, "kernel parameters"), mark_written(kept, PARAM_BYTES);
    u8* params = (u8*)kept;
    for (size_t i = 0; i < kernel->param_offsets.size(); i++)
        memcpy(params + kernel->param_offsets[i], args[i], kernel->param_sizes[i]);
    if (l->cooperative) {
        static u64 workspace = 0;
        if (!workspace) workspace = allocate(4096, "grid workspace"), mark_written(workspace, 4096);
        memset((void*)workspace, 0, 4096);
        l->workspace = workspace;
    }
    if (e.stamps.size() < std::max(e.settings.threads, 1u)) e.stamps.resize(std::max(e.settings.threads, 1u));
    u64 most = std::max<u64>(1, (u64)l->resident * (u64)std::max(e.device.sms, 1));
    if (e.settings.sample_budget && !l->cooperative)
        run_sample(*l, params, most);
    else
        run_all(*l, params, most);
    if (!l->printed.empty()) device_print(l->printed);
    // cudaErrorLaunchFailure stands for whatever else stops a kernel
    return l->error ? l->error : l->stop ? 719 : 0;
}
