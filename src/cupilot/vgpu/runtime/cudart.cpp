// The CUDA runtime that candidates are linked with: registration, launches, memory, streams, events,
// attributes. Kernels are translated on their first launch by a callback into Python.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "engine.h"

namespace {

struct Image { const void* data; u64 bytes; u32 index; };
struct Registered { u32 image; std::string name; KernelInfo* kernel = nullptr; };
struct ModuleVariable { u32 image; std::string name; u64 address; u64 bytes; bool constant; };
struct Configuration { dim3 grid, block; size_t shared; cudaStream_t stream; };
struct Event { u64 launches, operations; };

using Translate = int (*)(u32 image, const char* name, u32 kernel);
using Resident = u32 (*)(const char* name, u32 threads, u64 dynamic_shared);
using Elapsed = double (*)(u64 first_launch, u64 end_launch);

struct Runtime {
    std::vector<Image> images;
    std::map<const void*, Registered*> functions;
    std::map<const void*, ModuleVariable> variables;
    std::vector<KernelInfo*> kernels;
    std::vector<Configuration> configurations;
    Translate translate = nullptr;
    Resident resident = nullptr;
    Elapsed elapsed = nullptr;
    cudaError_t last = cudaSuccess;
    u64 streams = 0;
};

Runtime& runtime() {
    static Runtime* instance = new Runtime;
    return *instance;
}

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) runtime().last = error;
    return error;
}

cudaError_t unsupported(const char* what) {
    report(nullptr, "unsupported", std::string("unsupported on the virtual GPU: the runtime call ") + what);
    return fail(cudaErrorNotSupported);
}

KernelInfo* kernel_of(Registered* r) {
    if (r->kernel) return r->kernel;
    auto* k = new KernelInfo;
    k->name = r->name;
    runtime().kernels.push_back(k);
    u32 id = k->id = (u32)runtime().kernels.size() - 1;
    if (!runtime().translate || runtime().translate(r->image, r->name.c_str(), id) != 0) {
        if (k->error.empty()) k->error = "the kernel could not be translated";
    }
    r->kernel = k;
    return k;
}

Registered* registered(const void* function) {
    auto it = runtime().functions.find(function);
    return it == runtime().functions.end() ? nullptr : it->second;
}

cudaError_t launch(Registered* r, dim3 grid, dim3 block, void** args, size_t shared) {
    if (!r) return fail(cudaErrorInvalidDeviceFunction);
    KernelInfo* k = kernel_of(r);
    if (!k->function) {
        report(nullptr, "unsupported", k->error);
        return fail(cudaErrorNotSupported);
    }
    const DeviceInfo& d = engine().device;
    u64 threads = (u64)block.x * block.y * block.z;
    if (!threads || !grid.x || !grid.y || !grid.z || threads > (u64)d.threads_per_block || block.z > 64 || grid.y > 65535 ||
        grid.z > 65535 || grid.x > 2147483647u)
        return fail(cudaErrorInvalidConfiguration);
    if (k->max_threads && threads > k->max_threads) return fail(cudaErrorInvalidValue);
    u64 limit = std::max<u64>(d.shared_per_block, k->max_dynamic_shared + k->shared_bytes);
    if (k->shared_bytes + shared > limit || k->shared_bytes > d.shared_per_block) return fail(cudaErrorInvalidValue);
    u32 resident = runtime().resident ? runtime().resident(r->name.c_str(), (u32)threads, shared) : 1;
    if (!resident) return fail(cudaErrorLaunchOutOfResources);
    const u32 g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    return fail((cudaError_t)run_launch(k, g, b, args, shared, resident));
}

void note_operation(const char* kind, u64 bytes) {
    engine().operations.push_back({kind, bytes, engine().launches.size()});
}

// Copies between buffers; the device side must lie inside one buffer.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (!bytes) return cudaSuccess;
    Allocation* target = find_allocation((u64)to);
    Allocation* source = find_allocation((u64)from);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) to_device = target, from_device = source;
    auto inside = [&](Allocation* a, const void* p) {
        return a && !a->freed && (u64)p + bytes <= a->base + a->bytes;
    };
    if ((to_device && !inside(target, to)) || (from_device && !inside(source, from))) return fail(cudaErrorInvalidValue);
    memmove(to, from, bytes);
    if (target) mark_written((u64)to, bytes);
    if (to_device && from_device) note_operation("copy", bytes);
    return cudaSuccess;
}

}  // namespace

// --- control by the worker process ------------------------------------------------------------

struct FindingView { const char* kind; const char* message; };
struct SiteView { u64 requests, sectors, wavefronts, lane_bytes; };
struct LaunchView {
    const char* kernel;
    u32 grid[3], block[3], dynamic_shared, resident;
    u64 id, blocks_run;
    const u64* counts;
    u64 basic_blocks, sites, allocations;
};

extern "C" {

void vgc_callbacks(Translate translate, Resident resident, Elapsed elapsed) {
    runtime().translate = translate, runtime().resident = resident, runtime().elapsed = elapsed;
}

void vgc_device(const DeviceInfo* device) { engine().device = *device; }

void vgc_settings(u64 sample_budget, double seconds_left, u32 threads) {
    Settings& s = engine().settings;
    s.sample_budget = sample_budget, s.threads = threads;
    s.deadline_s = seconds_left > 0 ? steady_seconds() + seconds_left : 0;
}

u64 vgc_image(u32 index, const void** data) {
    *data = runtime().images[index].data;
    return runtime().images[index].bytes;
}

// PTX given as text, without a host program around it.
u32 vgc_register_ptx(const char* text, u64 bytes) {
    Runtime& r = runtime();
    r.images.push_back({text, bytes, (u32)r.images.size()});
    return r.images.back().index;
}

int vgc_launch_kernel(u32 image, const char* name, const u32* grid, const u32* block, u64 shared, void** args) {
    static std::map<std::pair<u32, std::string>, Registered> known;
    Registered& r = known[{image, name}];
    r.image = image, r.name = name;
    return launch(&r, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), args, shared);
}

void vgc_kernel_error(u32 id, const char* message) { runtime().kernels[id]->error = message; }

void vgc_kernel(u32 id, void* function, u32 warp_bytes, u32 local_bytes, u32 shared_bytes, u32 param_bytes, u32 max_threads, u32 params,
                const u32* offsets, const u32* sizes, u32 blocks, const u32* instructions, const u32* lines, u32 sites,
                const SiteInfo* site_info, u32 variables, const u64* addresses) {
    KernelInfo& k = *runtime().kernels[id];
    k.function = (KernelFunction)function;
    k.warp_bytes = warp_bytes, k.local_bytes = local_bytes, k.shared_bytes = shared_bytes, k.param_bytes = param_bytes, k.max_threads = max_threads;
    k.param_offsets.assign(offsets, offsets + params), k.param_sizes.assign(sizes, sizes + params);
    k.block_instructions.assign(instructions, instructions + blocks), k.block_lines.assign(lines, lines + blocks);
    k.sites.assign(site_info, site_info + sites);
    k.variables.assign(addresses, addresses + variables);
}

// Address of a module's variable, made on first use; initial values are the caller's to copy.
u64 vgc_variable(u32 image, const char* name, u64 bytes, u32* fresh) {
    static std::map<std::pair<u32, std::string>, u64> made;
    *fresh = 0;
    for (auto& entry : runtime().variables)
        if (entry.second.image == image && entry.second.name == name && entry.second.address) return entry.second.address;
    u64& address = made[{image, name}];
    if (!address) {
        address = allocate(bytes, name);
        mark_written(address, bytes);  // module variables start as zero or with their initial value
        *fresh = 1;
        for (auto& entry : runtime().variables)
            if (entry.second.image == image && entry.second.name == name) entry.second.address = address;
    }
    return address;
}

void vgc_begin() {
    Engine& e = engine();
    for (LaunchState* l : e.launches) delete l;
    e.launches.clear(), e.operations.clear(), e.findings.clear();
    e.timed_out = false;
    runtime().last = cudaSuccess;
}

u64 vgc_launches() { return engine().launches.size(); }
u64 vgc_findings() { return engine().findings.size(); }
u64 vgc_operations() { return engine().operations.size(); }
int vgc_last_error() { return runtime().last; }

void vgc_finding(u64 i, FindingView* out) {
    *out = {engine().findings[i].kind.c_str(), engine().findings[i].message.c_str()};
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
    out->counts = l.counts.data(), out->basic_blocks = l.counts.size() / 2, out->sites = l.sites.size();
    out->allocations = l.traffic.size();
}

void vgc_launch_site(u64 i, u64 site, SiteView* out) {
    const Site& s = engine().launches[i]->sites[site];
    *out = {s.requests, s.sector_total, s.wavefront_total, s.lane_bytes};
}

// Traffic of one allocation in a launch; returns the allocation's size.
u64 vgc_launch_traffic(u64 i, u64 allocation, Traffic* out) {
    *out = engine().launches[i]->traffic[allocation];
    return engine().by_index[allocation]->bytes;
}

// --- registration -----------------------------------------------------------------------------

void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper { int magic, version; const void* data; void* more; };
    struct Header { u32 magic; unsigned short version, header_bytes; u64 bytes; };
    auto* w = (Wrapper*)wrapper;
    auto* h = (const Header*)w->data;
    Runtime& r = runtime();
    r.images.push_back({w->data, h->header_bytes + h->bytes, (u32)r.images.size()});
    return (void**)(u64)r.images.size();  // index + 1
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    auto* r = new Registered;
    r->image = (u32)(u64)handle - 1, r->name = name;
    runtime().functions[host] = r;
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int constant, int) {
    runtime().variables[host] = {(u32)(u64)handle - 1, name, 0, bytes, constant != 0};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
    runtime().configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    auto& all = runtime().configurations;
    if (all.empty()) return fail(cudaErrorMissingConfiguration);
    Configuration c = all.back();
    all.pop_back();
    *grid = c.grid, *block = c.block, *shared = c.shared, *(cudaStream_t*)stream = c.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = (cudaKernel_t)registered(host);
    return *kernel ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
    return launch((Registered*)kernel, grid, block, args, shared);
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
    return launch(registered(host), grid, block, args, shared);
}

// --- memory -----------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (!pointer) return fail(cudaErrorInvalidValue);
    *pointer = (void*)allocate(bytes, "cudaMalloc");
    return *pointer ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaFree(void* pointer) {
    if (!pointer || release((u64)pointer)) return cudaSuccess;
    return fail(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) { return copy(to, from, bytes, kind); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return copy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    for (size_t row = 0; row < height; row++) {
        cudaError_t error = copy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind);
        if (error != cudaSuccess) return error;
        if (row) engine().operations.pop_back(), engine().operations.back().bytes += width;
    }
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    if (!bytes) return cudaSuccess;
    Allocation* a = find_allocation((u64)pointer);
    if (!a || a->freed || (u64)pointer + bytes > a->base + a->bytes) return fail(cudaErrorInvalidValue);
    memset(pointer, value, bytes);
    mark_written((u64)pointer, bytes);
    note_operation("fill", bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) { return cudaMemset(pointer, value, bytes); }

// --- errors, streams, events ------------------------------------------------------------------

cudaError_t cudaGetLastError() {
    cudaError_t error = runtime().last;
    runtime().last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return runtime().last; }
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidDeviceFunction: return "invalid device function";
        case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
        case cudaErrorIllegalAddress: return "the virtual GPU stopped the kernel";
        case cudaErrorNotSupported: return "operation not supported";
        default: return "CUDA error";
    }
}
const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaDeviceSynchronize() { return runtime().last; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return runtime().last; }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = (cudaStream_t)(++runtime().streams + 16);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = (cudaEvent_t) new Event{};
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    *(Event*)event = {engine().launches.size(), engine().operations.size()};
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete (Event*)event;
    return cudaSuccess;
}
// Time between events is the modelled time of the launches between them.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    if (!runtime().elapsed) return unsupported("cudaEventElapsedTime");
    *ms = (float)(1e3 * runtime().elapsed(((Event*)start)->launches, ((Event*)end)->launches));
    return cudaSuccess;
}

// --- device -----------------------------------------------------------------------------------

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device != 0) return fail(cudaErrorInvalidDevice);
    const DeviceInfo& d = engine().device;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", d.name);
    p->major = d.major, p->minor = d.minor, p->multiProcessorCount = d.sms, p->warpSize = LANES;
    p->totalGlobalMem = d.dram_bytes, p->sharedMemPerBlock = d.shared_per_block;
    p->sharedMemPerBlockOptin = d.shared_per_block_optin, p->sharedMemPerMultiprocessor = d.shared_per_sm;
    p->regsPerBlock = 65536, p->regsPerMultiprocessor = d.registers_per_sm, p->l2CacheSize = (int)d.l2_bytes;
    p->maxThreadsPerBlock = d.threads_per_block, p->maxThreadsPerMultiProcessor = d.threads_per_sm;
    p->maxBlocksPerMultiProcessor = d.blocks_per_sm;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536, p->unifiedAddressing = 1, p->concurrentKernels = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    const DeviceInfo& d = engine().device;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = d.threads_per_block; break;
        case cudaDevAttrWarpSize: *value = LANES; break;
        case cudaDevAttrMultiProcessorCount: *value = d.sms; break;
        case cudaDevAttrClockRate: *value = d.clock_khz; break;
        case cudaDevAttrComputeCapabilityMajor: *value = d.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = d.minor; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)d.shared_per_block; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)d.shared_per_block_optin; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)d.shared_per_sm; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = d.threads_per_sm; break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = d.blocks_per_sm; break;
        case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = d.registers_per_sm; break;
        case cudaDevAttrL2CacheSize: *value = (int)d.l2_bytes; break;
        case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        default: return unsupported("cudaDeviceGetAttribute with this attribute");
    }
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    Registered* r = registered(function);
    if (!r) return fail(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        KernelInfo* k = kernel_of(r);
        if (value < 0 || (u64)value + k->shared_bytes > engine().device.shared_per_block_optin)
            return fail(cudaErrorInvalidValue);
        k->max_dynamic_shared = (u32)value;
    }
    return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads, size_t shared) {
    Registered* r = registered(function);
    if (!r) return fail(cudaErrorInvalidDeviceFunction);
    *blocks = runtime().resident ? (int)runtime().resident(r->name.c_str(), (u32)threads, shared) : 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

}  // extern "C"
