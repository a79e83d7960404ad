// How the worker process steers the runtime and asks what happened. Mirrored in cupilot/vgpu/machine.py.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cudart.h"
#include "findings.h"
#include "print.h"

constexpr u32 PROGRAM_FINDINGS = 50;  // that are told of a whole program

struct SiteView { u64 requests, sectors, wavefronts, lane_bytes; };
struct LaunchView {
    const char* kernel;
    u32 grid[3], block[3], dynamic_shared, resident;
    u64 id, blocks_run, heaviest, incomplete;
    const u64* counts;
    u64 basic_blocks, sites, allocations;
    const u64* critical;
    double scale;
    u64 chain_cycles, chain_hops;
};

// Findings reach the journal as they are made, so that a program that crashes afterwards does not take them along.
void write_journal() {
    Runtime& r = runtime();
    if (r.journal < 0) return;
    for (; r.journalled < engine().findings.size(); r.journalled++) {
        std::string entry = to_json(engine().findings[r.journalled]) + '\n';
        if (write(r.journal, entry.data(), entry.size()) < 0) return;
    }
}

// The buffers that the launch last asked about moved something in or out of: a program may have had any number of others.
static std::vector<u32> touched;

extern "C" {

void vgc_callbacks(Translate translate, Resident resident, Elapsed elapsed, Locate locate, Registers registers) {
    Runtime& r = runtime();
    r.translate = translate, r.resident = resident, r.elapsed = elapsed, r.locate = locate, r.registers = registers;
}

void vgc_rare_blocks(RareBlocks rare_blocks) { engine().rare_blocks = rare_blocks; }

void vgc_device(const DeviceInfo* device) { engine().device = *device; }

void vgc_settings(u64 sample_budget, double seconds_left, u32 threads) {
    Settings& s = engine().settings;
    s.sample_budget = sample_budget, s.threads = threads;
    s.deadline_s = seconds_left > 0 ? steady_seconds() + seconds_left : 0;
}

void vgc_checks(int on) { engine().settings.checks = on != 0; }

// From now on a whole program runs in this process; its findings go to a file, a line of JSON each.
int vgc_program(const char* journal) {
    runtime().program = true;
    engine().settings.program = true, engine().settings.findings_limit = PROGRAM_FINDINGS;
    runtime().journal = open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    atexit(flush_prints);
    return runtime().journal >= 0;
}

u64 vgc_image(u32 index, const void** data) {
    *data = runtime().images[index].data;
    return runtime().images[index].bytes;
}

// PTX given as text, without a host program around it.
u32 vgc_register_ptx(const char* text, u64 bytes) {
    Runtime& r = runtime();
    r.images.push_back({text, bytes});
    return (u32)r.images.size() - 1;
}

// Gives the error of the launch or of the kernel, and forgets it.
int vgc_launch_kernel(u32 image, const char* name, const u32* grid, const u32* block, u64 shared, void** args,
                      u32 cooperative) {
    static auto* known = new std::map<std::pair<u32, std::string>, Registered>;
    Registered& r = (*known)[{image, name}];
    r.image = image, r.name = name;
    LaunchShape shape{dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared};
    shape.cooperative = cooperative != 0;
    cudaError_t error = launch(&r, shape, args);
    if (error == cudaSuccess) error = runtime().pending;
    runtime().pending = cudaSuccess;
    return fail(error);
}

void vgc_kernel_allocates(u32 id) { runtime().kernels[id]->allocates = true; }
void vgc_kernel_error(u32 id, const char* text, u32 line, const char* file) {
    KernelInfo& k = *runtime().kernels[id];
    k.error = text, k.error_line = line;
    if (line && *file) k.files[line] = file;
}

// The lines of a kernel's code that are in a file.
void vgc_kernel_file(u32 id, const char* name, u32 count, const u32* lines) {
    for (u32 i = 0; i < count; i++) runtime().kernels[id]->files[lines[i]] = name;
}

void vgc_kernel(u32 id, void* function, u32 warp_bytes, u32 local_bytes, u32 takes_turns, u32 shared_bytes, u32 param_bytes,
                u32 max_threads, u32 params, const u32* offsets, const u32* sizes, u32 blocks, const u32* instructions,
                const u32* lines, u32 sites, const SiteInfo* site_info, u32 variables, const u64* addresses) {
    KernelInfo& k = *runtime().kernels[id];
    k.function = (KernelFunction)function;
    k.warp_bytes = warp_bytes, k.local_bytes = local_bytes, k.takes_turns = takes_turns != 0, k.shared_bytes = shared_bytes;
    k.param_bytes = param_bytes, k.max_threads = max_threads;
    k.param_offsets.assign(offsets, offsets + params), k.param_sizes.assign(sizes, sizes + params);
    k.block_instructions.assign(instructions, instructions + blocks), k.block_lines.assign(lines, lines + blocks);
    k.sites.assign(site_info, site_info + sites);
    k.variables.assign(addresses, addresses + variables);
    k.block_cycles = k.block_instructions;
}

// Cycles of a lone warp's way through each basic block.
void vgc_kernel_cycles(u32 id, const u32* cycles) {
    KernelInfo& k = *runtime().kernels[id];
    k.block_cycles.assign(cycles, cycles + k.block_instructions.size());
}

// Address of a module's variable, made on first use; initial values are the caller's to copy when it is fresh.
u64 vgc_variable(u32 image, const char* name, u64 bytes, u32* fresh) {
    static auto* made = new std::map<std::pair<u32, std::string>, u64>;
    *fresh = 0;
    u64& address = (*made)[{image, name}];
    if (!address) {
        bool managed = false;
        for (auto& entry : runtime().variables)
            managed |= entry.second.managed && entry.second.image == image && entry.second.name == name;
        address = allocate(bytes, name, managed);
        mark_written(address, bytes);  // module variables start as zero or with their initial value
        if (Allocation* a = find_allocation(address)) a->variable = true, a->managed = managed;
        *fresh = 1;
    }
    for (auto& entry : runtime().variables)
        if (entry.second.image == image && entry.second.name == name) entry.second.address = address;
    return address;
}

// Content for a buffer from whoever runs the machine: no copy of the program's.
void vgc_upload(u64 address, const void* from, u64 bytes) {
    Opened opened;
    memcpy((void*)address, from, bytes);
    mark_written(address, bytes);
    if (Allocation* a = find_allocation(address)) a->given = !a->variable;
}

// The initial value of a variable that is not zero.
void vgc_first(u64 address, const void* from, u64 bytes) {
    Opened opened;
    memcpy((void*)address, from, bytes);
    if (Allocation* a = find_allocation(address)) a->first.assign((const char*)from, bytes);
}

void vgc_handover(u64 cycles) { engine().settings.handover = cycles; }
void vgc_sample_seed(u64 seed) { engine().settings.sample_seed = seed; }
void vgc_order(u64 seed) { engine().settings.order = seed; }

void vgc_begin() {
    Engine& e = engine();
    Runtime& r = runtime();
    Guard guard(r.lock);
    begin_call();
    for (LaunchState* l : e.launches) delete l;
    e.launches.clear(), e.operations.clear(), e.findings.clear();
    e.timed_out = false;
    r.pending = r.sticky = last_error = cudaSuccess;
    r.timed_launches = r.timed_operations = r.journalled = 0, r.timing = false;
    r.side_work.clear(), r.returned = r.waited = false;
}

u64 vgc_launches() { return engine().launches.size(); }
u64 vgc_findings() { return engine().findings.size(); }
u64 vgc_operations() { return engine().operations.size(); }

// The error that nobody has asked for yet, of a call or of a kernel.
int vgc_last_error() { return settled() != cudaSuccess ? runtime().sticky : last_error; }

// As JSON; valid until the next call.
const char* vgc_finding(u64 i) {
    static auto* text = new std::string;
    *text = to_json(engine().findings[i]);
    return text->c_str();
}

u64 vgc_operation(u64 i, const char** kind) {
    *kind = engine().operations[i].kind.c_str();
    return engine().operations[i].bytes;
}

void vgc_launch(u64 i, LaunchView* out) {
    LaunchState& l = *engine().launches[i];
    out->kernel = l.kernel->name.c_str(), out->id = l.kernel->id;
    memcpy(out->grid, l.grid, 12), memcpy(out->block, l.block, 12);
    out->dynamic_shared = l.dynamic_shared, out->resident = l.resident, out->blocks_run = l.blocks_run;
    out->heaviest = l.heaviest, out->critical = l.critical.data(), out->scale = l.scale;
    out->chain_cycles = l.chain_cycles, out->chain_hops = l.chain_hops;
    out->incomplete = l.incomplete;
    out->counts = l.counts.data(), out->basic_blocks = l.counts.size() / 2, out->sites = l.sites.size();
    touched.clear();
    for (u32 a = 0; a < l.traffic.size(); a++)
        if (l.traffic[a].l2_read || l.traffic[a].l2_write) touched.push_back(a);
    out->allocations = touched.size();
}

void vgc_launch_site(u64 i, u64 site, SiteView* out) {
    const Site& s = engine().launches[i]->sites[site];
    *out = {s.requests, s.sector_total, s.wavefront_total, s.lane_bytes};
}

// Traffic of one of the buffers that vgc_launch counted; returns the buffer's size.
u64 vgc_launch_traffic(u64 i, u64 number, Traffic* out) {
    *out = engine().launches[i]->traffic[touched[number]];
    return engine().by_index[touched[number]]->bytes;
}

// Where such a buffer is: 0 on the device, 1 on the host, 2 managed, and this launch brought its pages.
u32 vgc_launch_place(u64 i, u64 number) {
    const Allocation* a = engine().by_index[touched[number]];
    if (!a->host) return 0;
    const auto& moved = engine().launches[i]->moved;
    return !a->managed ? 1 : std::count(moved.begin(), moved.end(), a->index) ? 2 : 0;
}

void vgc_launch_aside(u64 i, Aside* out) { *out = engine().launches[i]->aside; }

// Where blocks read such a buffer: how many of them are known, and as many (block, first line, last line) as there is room for.
u64 vgc_launch_extents(u64 i, u64 number, u64 room, u64* out) {
    u64 found = 0;
    for (const Extent& extent : engine().launches[i]->extents) {
        if (extent.allocation != touched[number]) continue;
        if (found < room) out[3 * found] = extent.block, out[3 * found + 1] = extent.first, out[3 * found + 2] = extent.last;
        found++;
    }
    return found;
}

// What blocks cost: how many entries there are, and as many as there is room for.
u64 vgc_launch_costs(u64 i, u64 room, BlockCost* out) {
    const auto& costs = engine().launches[i]->costs;
    std::copy_n(costs.begin(), std::min<u64>(room, costs.size()), out);
    return costs.size();
}

}  // extern "C"
