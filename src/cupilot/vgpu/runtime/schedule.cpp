// Running a launch: blocks one after the other (or on several threads), warps of a block in turn.
//
// A block that gets nowhere for long waits for others (a grid-wide barrier, a lock): then the next blocks start beside
// it, up to as many as fit on the device. One that looks at nothing which others change only has much to do; one that
// sleeps is taken at its word.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "block.h"
#include "host_memory.h"
#include "print.h"

// Of how many blocks it is kept where they read.
constexpr u64 EXTENTS = 256;
// A sample has at least this many blocks, unless they cost a multiple of the budget.
constexpr u64 MINIMUM_SAMPLE = 3, OVERSPENT = 4;
constexpr u64 BLOCK_SAMPLE_LIMIT = 256;
// Turns of a block after which it may be waiting for another one; turns between looks at the others.
constexpr u64 PATIENCE = 1 << 15, TURNS = 64;
constexpr u64 PARAM_BYTES = 32768;

Engine& engine() {
    static Engine instance;
    return instance;
}

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

// Why a block is asked for: there is room, or those that run get nowhere, or all of them sleep.
enum class Need { NEXT, STUCK, ASLEEP };

// One host thread's work: residents take blocks from a source until it has no more.
struct Worker {
    LaunchState& l;
    u8* params;
    Tally tally;
    std::vector<std::unique_ptr<Resident>> residents;
    bool looks = false;  // at memory that others change
    u64 begun = 0, heaviest = 0;  // warp instructions: before the block that runs alone, and of the one that had most
    bool apart = false;           // what was counted since then is of one block,
    u64 alone_block = 0;          // this one

    Worker(LaunchState& launch, u8* arguments) : l(launch), params(arguments) {
        tally.counts.assign(2 * l.kernel->block_instructions.size(), 0);
        tally.sites.assign(l.kernel->sites.size(), Site{});
        for (size_t i = 0; i < tally.sites.size(); i++) {
            const SiteInfo& info = l.kernel->sites[i];
            tally.sites[i].relaxed = info.relaxed, tally.sites[i].wanted = info.wanted;
            looks |= info.space != Space::SHARED && (info.relaxed || info.wanted & SAME_ADDRESS);
        }
        tally.traffic.assign(engine().by_index.size(), Traffic{});
    }

    Resident& resident(size_t number) {
        while (residents.size() <= number) residents.push_back(std::make_unique<Resident>(l, tally, params));
        return *residents[number];
    }

    // `next(need)` gives a block's number or, when there are no more, l.blocks; `beside` blocks run at once, and in an
    // order of our own as many as one of them has waited for.
    template <class Next>
    void run(Next next, u64 beside, u64 most) {
        std::vector<Resident*> active, idle;
        auto start = [&](Need need) {
            u64 block = next(need);
            if (block >= l.blocks) return false;
            apart = active.empty();
            if (apart) begun = instructions(0), alone_block = block, tally.running.clear();
            if (idle.empty()) idle.push_back(&resident(residents.size()));
            active.push_back(idle.back());
            idle.pop_back();
            active.back()->begin(block);
            return true;
        };
        while (active.size() < beside && start(Need::NEXT)) {
        }
        u64 since_progress = 0;
        bool changed = true;  // some block woke or ended: whoever sleeps looks again; else the one that has slept longest does for all
        while (!active.empty() && !l.stop) {
            bool alone = active.size() == 1, all = changed, seen = false;
            changed = false;
            for (size_t i = 0; i < active.size() && !l.stop;) {
                Resident& block = *active[i];
                bool slept = block.asleep, going = true;
                if (slept && seen && !all) {
                    i++;
                    continue;
                }
                seen |= slept;
                for (u64 turn = 0; going && !l.stop && turn < (alone ? PATIENCE : TURNS); turn++) {
                    going = block.advance();
                    if (block.asleep) break;
                }
                changed |= !going || (slept && !block.asleep);
                if (going) {
                    i++;
                    continue;
                }
                if (apart) ended_alone();
                idle.push_back(active[i]);
                active.erase(active.begin() + (i64)i);
                since_progress = 0;
            }
            if (active.size() < beside && start(Need::NEXT)) continue;
            bool waits = looks || l.any_published.load(std::memory_order_relaxed);
            bool asleep = !changed && std::all_of(active.begin(), active.end(), [](Resident* block) { return block->asleep; });
            bool started = false;
            if (!active.empty() && waits && (asleep || alone || ++since_progress * TURNS >= PATIENCE)) {
                since_progress = 0;
                started = active.size() < most && start(asleep ? Need::ASLEEP : Need::STUCK);
                if (started && engine().settings.order) beside = active.size();
            }
            changed |= asleep && !started;  // nobody is to come: each has to look for itself
        }
    }

    void ended_alone() {
        heaviest = std::max(heaviest, instructions(0) - begun);
        bool sampled = engine().settings.sample_budget;
        if (!sampled && alone_block % std::max<u64>(1, l.blocks / EXTENTS)) return;
        for (u64 i = 0; i < tally.running.size(); i++) {
            const Extent& extent = tally.running[i];
            if (extent.first <= extent.last) tally.extents.push_back({alone_block, i, extent.first, extent.last});
        }
    }

    // Of all basic blocks, by warps (0) or by active lanes (1).
    u64 instructions(size_t by) const {
        u64 total = 0;
        const auto& each = l.kernel->block_instructions;
        for (size_t b = 0; b < each.size(); b++) total += tally.counts[2 * b + by] * each[b];
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
        Aside &to = l.aside, &from = tally.aside;
        to.prints += from.prints, to.heap_calls += from.heap_calls;
        to.sleep_ns += from.sleep_ns, to.clock_cycles += from.clock_cycles, to.clock_ns += from.clock_ns;
        to.longest_sleep_ns = std::max(to.longest_sleep_ns, from.longest_sleep_ns);
        to.longest_clock_cycles = std::max(to.longest_clock_cycles, from.longest_clock_cycles);
        to.longest_clock_ns = std::max(to.longest_clock_ns, from.longest_clock_ns);
        to.host_read_bytes += from.host_read_bytes, to.host_write_bytes += from.host_write_bytes;
        l.lane_instructions += instructions(1);
        l.heaviest = std::max(l.heaviest, heaviest);
        l.extents.insert(l.extents.end(), tally.extents.begin(), tally.extents.end());
    }
};

// Evenly spread blocks until the budget is spent: the same blocks every time. Where blocks sleep until others come, their
// neighbours start as well; if that does not help soon, or blocks wait in another way, the launch runs whole.
struct Sample {
    LaunchState& l;
    Worker& worker;
    std::vector<bool> drawn;
    std::vector<u64> waiting;  // drawn, to be started from the back
    u64 limit, tries = 0, started = 0, in_order = 0, helpers = 0, above = 0, below = 0;
    double position = 0.5;
    bool whole = false;

    Sample(LaunchState& launch, Worker& by) : l(launch), worker(by), drawn(launch.blocks, false) {
        limit = std::min(l.blocks, BLOCK_SAMPLE_LIMIT);
    }

    bool enough() const {
        u64 spent = worker.instructions(1) / engine().settings.sample_budget;
        return started >= limit || spent >= OVERSPENT || (spent >= 1 && started >= MINIMUM_SAMPLE);
    }

    // One block, or for another order a few: those are started to the last, so that every order runs what order 0 does.
    void draw() {
        const u64 order = engine().settings.order;
        u64 count = order ? std::min(std::max(MINIMUM_SAMPLE, started / 2), limit - started) : 1;
        for (; waiting.size() < count && tries < 8 * limit + 64; tries++) {
            u64 index = std::min<u64>((u64)(position * l.blocks), l.blocks - 1);
            position = std::fmod(position + 0.6180339887498949, 1.0);
            if (!drawn[index]) waiting.push_back(index);
            drawn[index] = true;
        }
        std::vector<u64> kept = waiting;
        for (u64 i = 0; order && i < kept.size(); i++) waiting[Permutation(kept.size(), order + started)(i)] = kept[i];
    }

    // The nearest block to the last drawn one that has not run, by turns after and before it.
    u64 neighbour() {
        while (above < l.blocks && drawn[above]) above++;
        while (below && drawn[below]) below--;
        bool up = above < l.blocks, down = !drawn[below];
        return up && (!down || helpers % 2) ? above : down ? below : l.blocks;
    }

    u64 operator()(Need need) {
        bool stuck = need != Need::NEXT;
        whole |= need == Need::STUCK || (stuck && ++helpers > BLOCK_SAMPLE_LIMIT);
        if (waiting.empty() && !whole && !stuck && !enough()) draw(), above = below = waiting.empty() ? below : waiting.back();
        if (waiting.empty()) {
            if (!whole && !stuck) return l.blocks;
            while (in_order < l.blocks && drawn[in_order]) in_order++;
            u64 block = whole ? in_order : neighbour();
            if (block >= l.blocks) return l.blocks;
            drawn[block] = true;
            waiting.push_back(block);
        }
        u64 block = waiting.back();
        waiting.pop_back(), started++;
        return block;
    }
};

void run_sample(LaunchState& l, u8* params, u64 most) {
    Worker worker(l, params);
    Sample sample(l, worker);
    worker.run([&](Need need) { return sample(need); }, 1, most);
    l.blocks_run = sample.started;
    worker.merge();
    if (l.blocks_run < l.blocks)
        for (Allocation* a : engine().by_index)
            if (a->store_launch == l.number) a->sampled = a->partial = true;
}

void run_all(LaunchState& l, u8* params, u64 most) {
    BlockOrder order(l.blocks, engine().settings.order);
    u32 count = (u32)std::min<u64>(engine().settings.threads, l.blocks);
    auto work = [&] {
        Worker worker(l, params);
        // a grid that may wait for itself starts as a whole
        worker.run([&](Need need) { return order.next(need != Need::NEXT); }, l.cooperative ? l.blocks : 1, most);
        worker.merge();
    };
    if (l.cooperative || l.kernel->allocates) count = 1;
    std::vector<std::thread> threads;
    for (u32 i = 1; i < count; i++) threads.emplace_back(work);
    work();
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
extern "C" u64 vg_clock(Context* c, u32 nanoseconds) {
    Aside& aside = c->tally->aside;
    if (nanoseconds)
        aside.clock_ns += 1024, aside.longest_clock_ns = std::max(aside.longest_clock_ns, c->seen_ns += 1024);
    else
        aside.clock_cycles += 64, aside.longest_clock_cycles = std::max(aside.longest_clock_cycles, c->seen_cycles += 64);
    return (c->clock += 64) * (nanoseconds ? 16 : 1);
}

// The longest that one of the lanes asks for counts for the warp.
extern "C" void vg_sleep(Context* c, Warp* w, const u32* ns, u32 mask) {
    u32 longest = 0;
    for (u32 bits = mask; bits; bits &= bits - 1) longest = std::max(longest, ns[__builtin_ctz(bits)]);
    longest = std::min(longest, 1000000u);  // PTX ISA, nanosleep: a millisecond at most
    w->slept += longest;
    Aside& aside = c->tally->aside;
    aside.sleep_ns += longest, aside.longest_sleep_ns = std::max<u64>(aside.longest_sleep_ns, w->slept);
}

int run_launch(KernelInfo* kernel, const u32 grid[3], const u32 block[3], void** args, u64 dynamic_shared, u32 resident) {
    Engine& e = engine();
    Opened opened;
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
    if (!kept) kept = allocate_given(PARAM_BYTES, "kernel parameters");
    u8* params = (u8*)kept;
    for (size_t i = 0; i < kernel->param_offsets.size(); i++)
        memcpy(params + kernel->param_offsets[i], args[i], kernel->param_sizes[i]);
    if (l->cooperative) {
        static u64 workspace = 0;
        if (!workspace) workspace = allocate_given(4096, "grid workspace");
        memset((void*)workspace, 0, 4096);
        l->workspace = workspace;
    }
    begin_device_work();
    u64 most = std::max<u64>(1, (u64)l->resident * (u64)std::max(e.device.sms, 1));
    if (e.settings.sample_budget && !l->cooperative)
        run_sample(*l, params, most);
    else
        run_all(*l, params, most);
    end_device_work(l);
    if (!l->printed.empty()) device_print(l->printed);
    // cudaErrorLaunchFailure stands for whatever else stops a kernel
    return l->error ? l->error : l->stop ? 719 : 0;
}
