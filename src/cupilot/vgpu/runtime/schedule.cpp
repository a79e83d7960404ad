// Running a launch: blocks one after the other (or on several threads), warps of a block in turn.
//
// A block that gets nowhere for long waits for others (a grid-wide barrier, a lock): then the next blocks start beside
// it, up to as many as fit on the device. One that looks at nothing which others change only has much to do; one that
// sleeps is taken at its word.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "block.h"
#include "host_memory.h"
#include "print.h"
#include "sample.h"

// Of how many blocks it is kept where they read.
constexpr u64 EXTENTS = 256;
// A sample has at least this many blocks, unless they cost a multiple of the budget.
constexpr u64 MINIMUM_SAMPLE = 16, OVERSPENT = 8;
constexpr u64 BLOCK_SAMPLE_LIMIT = 256;
// A launch that all in all costs no more than so many budgets runs whole: then nothing is left to guess.
constexpr u64 WHOLE_BUDGETS = 4;
// Where blocks differ so much that the mean of their work, or of what they move, is less certain than this, the sample may
// have more blocks and cost more, by these factors.
constexpr double UNCERTAIN = 0.02;
constexpr u64 MORE_BLOCKS = 4, MORE_BUDGETS = 16;
// Counts of sampled blocks are kept in such parts of what one block of the middle counts, because others stand for less.
constexpr double FINENESS = 4096;
// Of a launch that runs whole, what blocks cost is kept by so many stretches of the grid.
constexpr u64 STRETCHES = 1024;
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
    bool waits = false;  // perhaps until it has changed
    Meetings* meetings;
    u64 heaviest = 0;     // warp instructions of the block that had most, among those that ran alone
    bool apart = false;   // what was counted since then is of one block,
    u64 alone_block = 0;  // this one
    BlockCost begun;      // what had been moved before it

    Worker(LaunchState& launch, u8* arguments, Meetings* met = nullptr) : l(launch), params(arguments), meetings(met) {
        tally.counts.assign(2 * l.kernel->block_instructions.size(), 0);
        tally.critical.assign(l.kernel->block_instructions.size(), 0);
        tally.sites.assign(l.kernel->sites.size(), Site{});
        for (size_t i = 0; i < tally.sites.size(); i++) {
            const SiteInfo& info = l.kernel->sites[i];
            tally.sites[i].relaxed = info.relaxed, tally.sites[i].wanted = info.wanted;
            looks |= info.space != Space::SHARED && (info.relaxed || info.wanted & SAME_ADDRESS);
            waits |= info.space != Space::SHARED && ((info.relaxed && !info.store) || info.wanted & WAITS);
        }
        tally.traffic.assign(engine().by_index.size(), Traffic{});
    }

    Resident& resident(size_t number) {
        while (residents.size() <= number) residents.push_back(std::make_unique<Resident>(l, tally, params, waits ? meetings : nullptr));
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
            if (apart) begun = moved(), alone_block = block, tally.running.clear();
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
                ended(block);
                idle.push_back(active[i]);
                active.erase(active.begin() + (i64)i);
                since_progress = 0;
            }
            if (active.size() < beside && start(Need::NEXT)) continue;
            bool may_wait = looks || l.any_published.load(std::memory_order_relaxed);
            bool asleep = !changed && std::all_of(active.begin(), active.end(), [](Resident* block) { return block->asleep; });
            bool started = false;
            if (!active.empty() && may_wait && (asleep || alone || ++since_progress * TURNS >= PATIENCE)) {
                since_progress = 0;
                bool polling = std::any_of(active.begin(), active.end(), [](Resident* block) { return block->polling; });
                started = active.size() < most && start(asleep && !polling ? Need::ASLEEP : Need::STUCK);
                if (started && engine().settings.order) beside = active.size();
            }
            changed |= asleep && !started;  // nobody is to come: each has to look for itself
        }
        for (Resident* block : active) block->take_counts(tally);  // that were stopped
    }

    // What the others did meanwhile is not told apart, so only blocks that ran alone are known one by one.
    void ended(Resident& block) {
        BlockCost cost = block.take_counts(tally), now = moved();
        if (!apart) return;
        heaviest = std::max(heaviest, cost.work);
        cost.block = alone_block;
        cost.sectors = cost.most_sectors = now.sectors - begun.sectors, cost.stored_bytes = now.stored_bytes - begun.stored_bytes;
        cost.wavefronts = cost.most_wavefronts = now.wavefronts - begun.wavefronts;
        bool sampled = engine().settings.sample_budget;
        keep(cost, sampled);
        if (!sampled && alone_block % std::max<u64>(1, l.blocks / EXTENTS)) return;
        for (u64 i = 0; i < tally.running.size(); i++) {
            const Extent& extent = tally.running[i];
            if (extent.first <= extent.last) tally.extents.push_back({alone_block, i, extent.first, extent.last});
        }
    }

    void keep(const BlockCost& cost, bool apart_from_others) {
        if (apart_from_others || l.blocks <= STRETCHES) {
            tally.costs.push_back(cost);
            return;
        }
        if (tally.costs.empty()) tally.costs.resize(STRETCHES);
        BlockCost& to = tally.costs[cost.block * STRETCHES / l.blocks];
        to.block = to.blocks ? std::min(to.block, cost.block) : cost.block, to.blocks++;
        to.work += cost.work, to.most_work = std::max(to.most_work, cost.work);
        to.path += cost.path, to.longest_path = std::max(to.longest_path, cost.path);
        to.sectors += cost.sectors, to.most_sectors = std::max(to.most_sectors, cost.sectors);
        to.wavefronts += cost.wavefronts, to.most_wavefronts = std::max(to.most_wavefronts, cost.wavefronts);
        to.stored_bytes += cost.stored_bytes;
    }

    // Until now, by all blocks.
    BlockCost moved() const {
        BlockCost found;
        for (const Traffic& t : tally.traffic) found.sectors += t.l2_read + t.l2_write;
        for (size_t i = 0; i < tally.sites.size(); i++) {
            const SiteInfo& info = l.kernel->sites[i];
            found.wavefronts += tally.sites[i].wavefront_total;
            if (info.store && (info.space == Space::GLOBAL || info.space == Space::GENERIC))
                found.stored_bytes += tally.sites[i].lane_bytes;
        }
        return found;
    }

    // Of all basic blocks, by warps (0) or by active lanes (1).
    u64 instructions(size_t by) const {
        u64 total = 0;
        const auto& each = l.kernel->block_instructions;
        for (size_t b = 0; b < each.size(); b++) total += tally.counts[2 * b + by] * each[b];
        return total;
    }

    // Each count `times`, rounded up: what happened once must not be lost.
    void merge(double times = 1) {
        std::lock_guard<std::mutex> guard(l.mutex);
        auto add = [times](u64& to, u64 count) { to += times == 1 ? count : (u64)std::ceil(times * (double)count); };
        for (size_t i = 0; i < tally.counts.size(); i++) add(l.counts[i], tally.counts[i]);
        for (size_t i = 0; i < tally.critical.size(); i++) add(l.critical[i], tally.critical[i]);
        for (size_t i = 0; i < tally.sites.size(); i++) {
            Site &to = l.sites[i], &from = tally.sites[i];
            add(to.requests, from.requests), add(to.sector_total, from.sector_total);
            add(to.wavefront_total, from.wavefront_total), add(to.lane_bytes, from.lane_bytes);
            add_up(from);
            add_counted(to.counted, from.counted, add);
        }
        if (l.traffic.size() < tally.traffic.size()) l.traffic.resize(tally.traffic.size());
        for (size_t i = 0; i < tally.traffic.size(); i++) {
            const Traffic& t = tally.traffic[i];
            Traffic& o = l.traffic[i];
            add(o.l2_read, t.l2_read), add(o.l2_write, t.l2_write), add(o.miss_read, t.miss_read);
            add(o.miss_write, t.miss_write), add(o.unique_read, t.unique_read), add(o.unique_write, t.unique_write);
        }
        Aside &to = l.aside, &from = tally.aside;
        add(to.prints, from.prints), add(to.heap_calls, from.heap_calls);
        add(to.sleep_ns, from.sleep_ns), add(to.clock_cycles, from.clock_cycles), add(to.clock_ns, from.clock_ns);
        to.longest_sleep_ns = std::max(to.longest_sleep_ns, from.longest_sleep_ns);
        to.longest_clock_cycles = std::max(to.longest_clock_cycles, from.longest_clock_cycles);
        to.longest_clock_ns = std::max(to.longest_clock_ns, from.longest_clock_ns);
        // a sector counts once, whichever blocks want it
        to.host_read_bytes += from.host_read_bytes, to.host_write_bytes += from.host_write_bytes;
        l.lane_instructions += instructions(1);
        l.heaviest = std::max(l.heaviest, heaviest);
        l.extents.insert(l.extents.end(), tally.extents.begin(), tally.extents.end());
        for (const BlockCost& cost : tally.costs)
            if (cost.blocks) l.costs.push_back(cost);
    }
};

// Blocks that are drawn until the budget is spent. Where blocks sleep until others come, their neighbours start as well; if that
// does not help soon, or blocks wait in another way, the launch runs whole. Each place of the grid is counted apart.
struct Sample {
    LaunchState& l;
    u8* params;
    Draw draw;
    Meetings meetings;
    std::array<std::unique_ptr<Worker>, Places::COUNT> workers;
    std::array<u64, Places::COUNT> run_of{};  // blocks of each place that ran
    std::vector<u64> waiting;                 // drawn, to be started from the back
    u32 main = 0;                             // the place that most blocks are at
    u64 spent[3] = {};                        // lane instructions, at other places, at that one and of rare blocks
    u64 limit, started = 0, in_order = 0, helpers = 0, above = 0, below = 0;
    Spread work, sectors;
    bool whole = false, looked = false;

    Sample(LaunchState& launch, u8* arguments, u64 seed) : l(launch), params(arguments), draw(launch.grid, seed) {
        limit = std::min(l.blocks, BLOCK_SAMPLE_LIMIT);
        for (u32 p = 0; p < Places::COUNT; p++)
            if (draw.places().size(p) > draw.places().size(main)) main = p;
    }

    bool is_uneven() const { return std::max(work.standard_error(), sectors.standard_error()) > UNCERTAIN; }

    // Lane instructions of the whole launch, at the rate of the blocks that ran.
    double estimate() const {
        u64 rare = 0;
        for (u32 p = Places::GRID; p < Places::COUNT; p++) rare += run_of[p];
        u64 others = std::max<u64>(1, started - rare);
        return (double)spent[2] + (double)(spent[0] + spent[1]) / (double)others * (double)(l.blocks - std::min(l.blocks, rare));
    }

    bool runs_whole() const { return estimate() <= (double)(WHOLE_BUDGETS * engine().settings.sample_budget); }

    // Which blocks compare otherwise than most of them, once it is known that not all of them run.
    void look_for_rare() {
        looked = true;
        const RareBlocks rare = engine().rare_blocks;
        const u64* found = rare && l.blocks > started ? rare(l.kernel->id, l.grid, l.block, params, draw.seed()) : nullptr;
        if (!found) return;
        u64 count = found[0], picked = found[1];
        draw.set_rare(count, found + 2, found + 2 + count, picked, found + 2 + 2 * count);
        limit = std::min(l.blocks, limit + picked);
    }

    bool enough() const {
        if (started >= MINIMUM_SAMPLE && runs_whole()) return false;
        bool uneven = is_uneven();
        u64 blocks = uneven ? MORE_BLOCKS * limit : limit, budgets = uneven ? MORE_BUDGETS : 1;
        u64 paid = spent[1] / engine().settings.sample_budget;
        return started >= blocks || paid >= std::max(OVERSPENT, budgets) || (paid >= budgets && started >= MINIMUM_SAMPLE);
    }

    // One block, or for another order a few: those are started to the last, so that every order runs what order 0 does.
    void fill() {
        const u64 order = engine().settings.order;
        u64 count = order ? std::max<u64>(3, started / 2) : 1;
        // dear blocks at the edges must not leave nothing for the others, nor the other way round
        u64 most = OVERSPENT * engine().settings.sample_budget;
        bool edges = spent[0] < most, rare = spent[2] < most;
        if (!looked && started >= 2 && !runs_whole() && (started >= MINIMUM_SAMPLE || spent[1] >= most / MINIMUM_SAMPLE)) look_for_rare();
        for (u64 block; waiting.size() < count && (block = draw.next(edges, rare)) < l.blocks;) waiting.push_back(block);
        std::vector<u64> kept = waiting;
        for (u64 i = 0; order && i < kept.size(); i++) waiting[Permutation(kept.size(), order + started)(i)] = kept[i];
    }

    // The nearest block to the last drawn one that has not run, by turns after and before it.
    u64 neighbour() {
        while (above < l.blocks && draw.has(above)) above++;
        while (below && draw.has(below)) below--;
        bool up = above < l.blocks, down = !draw.has(below);
        return up && (!down || helpers % 2) ? above : down ? below : l.blocks;
    }

    // A block for those that get nowhere without it.
    u64 helper(Need need) {
        whole |= need == Need::STUCK || (need == Need::ASLEEP && ++helpers > BLOCK_SAMPLE_LIMIT);
        if (!whole && need == Need::NEXT) return l.blocks;
        u64 block = l.blocks;
        if (!waiting.empty()) {
            block = waiting.back();
            waiting.pop_back();
        } else {
            while (in_order < l.blocks && draw.has(in_order)) in_order++;
            block = whole ? in_order : neighbour();
        }
        return taken(block);
    }

    u64 taken(u64 block) {
        if (block >= l.blocks) return l.blocks;
        draw.take(block);
        started++, run_of[draw.places().of(block)]++;
        return block;
    }

    void run(u64 most) {
        while (!l.stop) {
            if (waiting.empty() && !enough()) fill();
            if (waiting.empty()) return;
            u64 first = waiting.back();
            waiting.pop_back();
            above = below = first;
            u32 place = draw.places().of(first);
            if (!workers[place]) workers[place] = std::make_unique<Worker>(l, params, &meetings);
            Worker& worker = *workers[place];
            u64 before = worker.instructions(1);
            size_t known = worker.tally.costs.size();
            bool begun = false;
            auto next = [&](Need need) { return begun ? helper(need) : (begun = true, taken(first)); };
            worker.run(next, 1, most);
            spent[place >= Places::GRID ? 2 : place == main] += worker.instructions(1) - before;
            for (size_t i = known; place == main && i < worker.tally.costs.size(); i++)
                work.add((double)worker.tally.costs[i].work), sectors.add((double)worker.tally.costs[i].sectors);
        }
    }

    // How many blocks each one of a place stands for; those of places of which none ran go with the most. With blocks that
    // came to help others, nothing is left but the grid as a whole.
    double stands_for(u32 place) const {
        if (whole || started >= l.blocks) return 1;
        if (helpers || !run_of[main]) return (double)l.blocks / (double)started;
        u64 size = draw.places().size(place);
        for (u32 p = 0; place == main && p < Places::COUNT; p++)
            if (!run_of[p]) size += draw.places().size(p);
        return (double)size / (double)run_of[place];
    }

    // Counts of each place in proportion to what its blocks stand for, as multiples of a small part.
    void merge() {
        l.scale = started < l.blocks ? stands_for(main) / FINENESS : 1;
        for (u32 p = 0; p < Places::COUNT; p++) {
            if (!workers[p]) continue;
            for (BlockCost& cost : workers[p]->tally.costs) cost.stands_for = stands_for(p);
            workers[p]->merge(stands_for(p) / l.scale);
        }
    }
};

void run_sample(LaunchState& l, u8* params, u64 most) {
    Engine& e = engine();
    // launches of a call have different samples
    Sample sample(l, params, mixed(e.settings.sample_seed + mixed(e.launches.size())));
    sample.run(most);
    l.blocks_run = sample.started;
    l.chain_cycles = sample.meetings.longest, l.chain_hops = sample.meetings.hops;
    sample.merge();
    if (l.blocks_run < l.blocks)
        for (Allocation* a : engine().by_index)
            if (a->store_launch == l.number) a->sampled = a->partial = true;
}

void run_all(LaunchState& l, u8* params, u64 most) {
    BlockOrder order(l.blocks, engine().settings.order);
    u32 count = (u32)std::min<u64>(engine().settings.threads, l.blocks);
    if (l.cooperative || l.kernel->allocates) count = 1;
    Meetings meetings;
    auto work = [&] {
        // blocks of a grid that starts as a whole meet at its own barriers
        Worker worker(l, params, count > 1 || l.cooperative ? nullptr : &meetings);
        // a grid that may wait for itself starts as a whole
        worker.run([&](Need need) { return order.next(need != Need::NEXT); }, l.cooperative ? l.blocks : 1, most);
        worker.merge();
    };
    std::vector<std::thread> threads;
    for (u32 i = 1; i < count; i++) threads.emplace_back(work);
    work();
    for (auto& t : threads) t.join();
    l.blocks_run = l.blocks;
    l.chain_cycles = meetings.longest, l.chain_hops = meetings.hops;
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
    l->counts.assign(2 * kernel->block_instructions.size(), 0), l->critical.assign(kernel->block_instructions.size(), 0);
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
