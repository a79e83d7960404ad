// Running a launch: blocks one after the other (or on several threads), warps of a block in turn.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "engine.h"

enum { EXITED = 0, AT_BARRIER = 1, YIELDED = 2, TRAPPED = 3 };
// Back edges a warp may take before another warp runs: small, so that the warps of a block advance
// together through a loop and the cache model sees the interleaving that hardware has.
constexpr i32 FUEL = 1;
// A sample has at least this many blocks, unless they cost a multiple of the budget.
constexpr u64 MINIMUM_SAMPLE = 3, OVERSPENT = 4;
constexpr u64 BLOCK_SAMPLE_LIMIT = 256;

Engine& engine() {
    static Engine instance;
    return instance;
}

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void report(LaunchState* launch, const std::string& kind, const std::string& message) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    if (e.findings.size() < e.settings.findings_limit) e.findings.push_back({kind, message});
    if (launch && e.findings.size() >= e.settings.findings_limit) launch->stop = true;
}

std::string place(Context* c, Warp* w, u32 line, u32 lane) {
    char text[512];
    snprintf(text, sizeof text, ", kernel %s, line %u, block (%u, %u, %u), thread (%u, %u, %u)",
             c->launch->kernel->name.c_str(), line, c->ctaid[0], c->ctaid[1], c->ctaid[2], w->tid[0][lane], w->tid[1][lane],
             w->tid[2][lane]);
    return text;
}

// --- one block ------------------------------------------------------------------------------

namespace {

struct Worker {
    Context context{};
    std::vector<u64> counts;
    std::vector<Site> sites;
    u8* warps = nullptr;
    u8* shared = nullptr;
    u32 warp_stride = 0, warp_count = 0;
    u64 shared_bytes = 0, rounds = 0;

    ~Worker() {
        free(warps);
        free(shared);
        for (size_t i = 0; i < context.stamps.size(); i++)
            if (context.stamps[i]) munmap(context.stamps[i], 2 * (engine().by_index[i]->bytes / 32 + 2) * sizeof(u32));
    }

    Warp* warp(u32 i) { return (Warp*)(warps + (u64)i * warp_stride); }

    void prepare(LaunchState& l, u8* params) {
        KernelInfo& k = *l.kernel;
        Engine& e = engine();
        u32 threads = l.block[0] * l.block[1] * l.block[2];
        warp_count = (threads + LANES - 1) / LANES;
        warp_stride = (k.warp_bytes + 63) / 64 * 64;
        warps = (u8*)aligned_alloc(64, (u64)warp_stride * warp_count);
        memset(warps, 0, (u64)warp_stride * warp_count);
        shared_bytes = k.shared_bytes + l.dynamic_shared;
        shared = (u8*)aligned_alloc(64, (shared_bytes + 127) / 64 * 64);
        counts.assign(2 * k.block_instructions.size(), 0);
        sites.assign(k.sites.size(), Site{});
        Context& c = context;
        c.params = params, c.shared = shared, c.shared_bytes = shared_bytes, c.counts = counts.data();
        c.variables = k.variables.data(), c.dynamic_shared_bytes = l.dynamic_shared;
        c.sites = sites.data(), c.launch = &l, c.stamp = 0;
        memcpy(c.nctaid, l.grid, 12), memcpy(c.ntid, l.block, 12);
        // a block's share of the caches, given the blocks that run beside it
        u64 carved = shared_bytes * l.resident;
        u64 l1 = e.device.l1_bytes > carved ? e.device.l1_bytes - carved : 0;
        c.l1.resize(std::max<u64>(l1 / l.resident, 4096), 8);
        u64 beside = std::min<u64>((u64)l.resident * e.device.sms, l.blocks);
        c.l2.resize(std::max<u64>(e.device.l2_bytes / std::max<u64>(beside, 1), 32768), 16);
        c.traffic.assign(e.by_index.size(), Traffic{});
    }

    void place_threads(LaunchState& l) {
        u32 threads = l.block[0] * l.block[1] * l.block[2];
        for (u32 i = 0; i < warp_count; i++) {
            Warp* w = warp(i);
            w->pc = 0, w->exited = 0, w->rpc = FULL, w->sp = 0, w->index = i, w->live = 0;
            for (u32 lane = 0; lane < LANES; lane++) {
                u32 t = i * LANES + lane;
                if (t < threads) w->live |= 1u << lane;
                w->tid[0][lane] = t % l.block[0];
                w->tid[1][lane] = t / l.block[0] % l.block[1];
                w->tid[2][lane] = t / l.block[0] / l.block[1];
            }
            w->mask = w->live;
        }
    }

    void run_block(LaunchState& l, u64 index) {
        Context& c = context;
        c.ctaid[0] = (u32)(index % l.grid[0]);
        c.ctaid[1] = (u32)(index / l.grid[0] % l.grid[1]);
        c.ctaid[2] = (u32)(index / l.grid[0] / l.grid[1]);
        c.stamp++;
        c.l1.clear(), c.l2.clear();
        memset(shared, 0xff, shared_bytes);  // NaN: what nobody wrote must not look like a value
        place_threads(l);
        std::vector<u8> state(warp_count, YIELDED);
        while (!l.stop && advance(l, state)) {
        }
    }

    // Let every runnable warp run once; then open barriers. False when the block is done.
    bool advance(LaunchState& l, std::vector<u8>& state) {
        bool running = false, waiting = false;
        for (u32 i = 0; i < warp_count; i++) {
            if (state[i] != YIELDED) continue;
            Warp* w = warp(i);
            w->fuel = FUEL;
            state[i] = (u8)l.kernel->function(w, &context);
            if (state[i] == TRAPPED) trap(l, w);
            if (state[i] == AT_BARRIER) arrive(w);
        }
        if ((++rounds & 255) == 0) look_at_clock(l);
        for (u32 i = 0; i < warp_count; i++) running |= state[i] == YIELDED, waiting |= state[i] == AT_BARRIER;
        if (running) return true;
        if (!waiting) return false;
        open_barriers(l, state);
        return true;
    }

    // A barrier is a basic block of its own, and the warp goes on in the next one.
    // First source line of the block a warp is in.
    u32 line_of(Warp* w) { return context.launch->kernel->block_lines[w->pc]; }
    u32 barrier_line(Warp* w) { return context.launch->kernel->block_lines[w->pc - 1]; }

    void arrive(Warp* w) {
        u32 expected = w->live & ~w->exited;
        if (w->mask == expected) return;
        report(context.launch, "divergent-barrier",
               "a barrier was reached by some threads of a warp only" +
                   place(&context, w, barrier_line(w), __builtin_ctz(w->mask)));
        context.launch->stop = true;
    }

    void open_barriers(LaunchState& l, std::vector<u8>& state) {
        u32 first = FULL;
        for (u32 i = 0; i < warp_count; i++) {
            if (state[i] != AT_BARRIER) continue;
            if (first == FULL) first = warp(i)->barrier;
            if (warp(i)->barrier != first) {
                report(&l, "deadlock", "warps of a block wait at different barriers" +
                       place(&context, warp(i), barrier_line(warp(i)), __builtin_ctz(warp(i)->mask)));
                l.stop = true;
                return;
            }
        }
        for (u32 i = 0; i < warp_count; i++)
            if (state[i] == AT_BARRIER) state[i] = YIELDED;
    }

    void trap(LaunchState& l, Warp* w) {
        report(&l, "trap", "the kernel executed trap" + place(&context, w, line_of(w), __builtin_ctz(w->mask | 1u << 31)));
        l.stop = true;
    }

    void look_at_clock(LaunchState& l) {
        Engine& e = engine();
        if (e.settings.deadline_s <= 0 || steady_seconds() < e.settings.deadline_s) return;
        l.stop = true;
        e.timed_out = true;
        for (u32 i = 0; i < warp_count; i++) {
            Warp* w = warp(i);
            u32 alive = w->live & ~w->exited;
            if (!alive) continue;
            report(&l, "time-out", "still running" + place(&context, w, line_of(w), __builtin_ctz(alive)));
            return;
        }
    }

    u64 lane_instructions(const KernelInfo& k) const {
        u64 total = 0;
        for (size_t b = 0; b < k.block_instructions.size(); b++) total += counts[2 * b + 1] * k.block_instructions[b];
        return total;
    }

    void merge(LaunchState& l) {
        std::lock_guard<std::mutex> guard(l.mutex);
        for (size_t i = 0; i < counts.size(); i++) l.counts[i] += counts[i];
        for (size_t i = 0; i < sites.size(); i++) {
            l.sites[i].requests += sites[i].requests, l.sites[i].sector_total += sites[i].sector_total;
            l.sites[i].wavefront_total += sites[i].wavefront_total, l.sites[i].lane_bytes += sites[i].lane_bytes;
        }
        if (l.traffic.size() < context.traffic.size()) l.traffic.resize(context.traffic.size());
        for (size_t i = 0; i < context.traffic.size(); i++) {
            const Traffic& t = context.traffic[i];
            Traffic& o = l.traffic[i];
            o.l2_read += t.l2_read, o.l2_write += t.l2_write, o.miss_read += t.miss_read, o.miss_write += t.miss_write;
            o.unique_read += t.unique_read, o.unique_write += t.unique_write;
        }
        l.lane_instructions += lane_instructions(*l.kernel);
    }
};

// Evenly spread blocks until the budget is spent: the same blocks every time.
void run_sample(LaunchState& l, u8* params) {
    Worker worker;
    worker.prepare(l, params);
    std::vector<bool> done(l.blocks, false);
    u64 limit = std::min(l.blocks, BLOCK_SAMPLE_LIMIT);
    double position = 0.5;
    for (u64 tries = 0; l.blocks_run < limit && tries < 8 * limit + 64 && !l.stop; tries++) {
        u64 index = std::min<u64>((u64)(position * l.blocks), l.blocks - 1);
        position = std::fmod(position + 0.6180339887498949, 1.0);
        if (done[index]) continue;
        done[index] = true;
        worker.run_block(l, index);
        l.blocks_run++;
        u64 spent = worker.lane_instructions(*l.kernel) / engine().settings.sample_budget;
        if (spent >= OVERSPENT || (spent >= 1 && l.blocks_run >= MINIMUM_SAMPLE)) break;
    }
    worker.merge(l);
}

void run_all(LaunchState& l, u8* params) {
    std::atomic<u64> next{0};
    auto work = [&] {
        Worker worker;
        worker.prepare(l, params);
        for (u64 i; !l.stop && (i = next++) < l.blocks;) worker.run_block(l, i);
        worker.merge(l);
    };
    u32 count = (u32)std::min<u64>(engine().settings.threads, l.blocks);
    std::vector<std::thread> threads;
    for (u32 i = 1; i < count; i++) threads.emplace_back(work);
    work();
    for (auto& t : threads) t.join();
    l.blocks_run = l.blocks;
}

}  // namespace

int run_launch(KernelInfo* kernel, const u32 grid[3], const u32 block[3], void** args, u64 dynamic_shared, u32 resident) {
    Engine& e = engine();
    auto* l = new LaunchState;
    l->kernel = kernel;
    memcpy(l->grid, grid, 12), memcpy(l->block, block, 12);
    l->dynamic_shared = (u32)dynamic_shared;
    l->blocks = (u64)grid[0] * grid[1] * grid[2];
    l->resident = resident ? resident : 1;
    l->counts.assign(2 * kernel->block_instructions.size(), 0);
    l->sites.assign(kernel->sites.size(), Site{});
    e.launches.push_back(l);
    std::vector<u8> params(kernel->param_bytes + 64, 0);
    for (size_t i = 0; i < kernel->param_offsets.size(); i++)
        memcpy(params.data() + kernel->param_offsets[i], args[i], kernel->param_sizes[i]);
    if (e.settings.sample_budget)
        run_sample(*l, params.data());
    else
        run_all(*l, params.data());
    return l->stop ? 700 : 0;  // cudaErrorIllegalAddress stands for every finding that stops a kernel
}
