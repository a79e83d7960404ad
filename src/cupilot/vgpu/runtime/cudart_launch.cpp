// Registration of a program's code and variables, and launches.
// Kernels are translated on their first launch by a callback into Python.
#include <cstring>

#include "cudart.h"
#include "findings.h"
#include "print.h"

Runtime& runtime() {
    static Runtime* instance = new Runtime;
    return *instance;
}

thread_local cudaError_t last_error = cudaSuccess;

namespace {

struct Configuration { dim3 grid, block; size_t shared; cudaStream_t stream; };
thread_local std::vector<Configuration> configurations;

// What CUDA would make of a finding; kinds that are missing here go unnoticed by hardware.
cudaError_t error_of(const std::string& kind) {
    static const std::map<std::string, cudaError_t> errors = {
        {"out-of-bounds", cudaErrorIllegalAddress}, {"use-after-free", cudaErrorIllegalAddress},
        {"freed", cudaErrorIllegalAddress},         {"misaligned", cudaErrorMisalignedAddress},
        {"time-out", cudaErrorLaunchTimeout},       {"deadlock", cudaErrorLaunchTimeout},
        {"assert", cudaErrorAssert},                {"trap", cudaErrorLaunchFailure},
        {"divergent-barrier", cudaErrorLaunchFailure}};
    auto it = errors.find(kind);
    return it == errors.end() ? cudaSuccess : it->second;
}

cudaError_t check_shape(KernelInfo* k, const LaunchShape& s) {
    const DeviceInfo& d = engine().device;
    u64 threads = (u64)s.block.x * s.block.y * s.block.z;
    if (!threads || !s.grid.x || !s.grid.y || !s.grid.z || threads > (u64)d.threads_per_block || s.block.z > 64 ||
        s.grid.y > 65535 || s.grid.z > 65535 || s.grid.x > 2147483647u)
        return cudaErrorInvalidConfiguration;
    if (k->max_threads && threads > k->max_threads) return cudaErrorInvalidValue;
    u64 limit = std::max<u64>(d.shared_per_block, k->max_dynamic_shared + k->shared_bytes);
    if (k->shared_bytes + s.shared > limit || k->shared_bytes > d.shared_per_block) return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t check_function(Registered* r) {
    if (!r) return cudaErrorInvalidDeviceFunction;
    KernelInfo* k = kernel_of(r);
    if (k->function) return cudaSuccess;
    report_untranslated(*k);
    write_journal();
    return cudaErrorNotSupported;
}

cudaError_t run(Registered* r, const LaunchShape& s, void** args, u32 resident) {
    Engine& e = engine();
    const u32 g[3] = {s.grid.x, s.grid.y, s.grid.z}, b[3] = {s.block.x, s.block.y, s.block.z};
    size_t before = e.findings.size();
    e.settings.cooperative = s.cooperative;
    auto error = (cudaError_t)run_launch(r->kernel, g, b, args, s.shared, resident);
    e.settings.cooperative = false;
    for (size_t i = before; i < e.findings.size(); i++) {
        cudaError_t named = error_of(e.findings[i].kind);
        if (named == cudaSuccess) continue;
        error = named;
        break;
    }
    write_journal();
    return error;
}

}  // namespace

cudaError_t unsupported(const std::string& what) {
    report("unsupported", "unsupported on the virtual GPU: the runtime call " + what);
    write_journal();
    return fail(cudaErrorNotSupported);
}

// For calls that are only names here.
int unsupported_call(const char* name) { return unsupported(name); }

cudaError_t settled() {
    Runtime& r = runtime();
    if (r.pending != cudaSuccess && r.sticky == cudaSuccess) r.sticky = r.pending;
    r.pending = cudaSuccess;
    return r.sticky;
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
    if (it != runtime().functions.end()) return it->second;
    auto* handle = (Registered*)function;  // what cudaGetFuncBySymbol gave
    return runtime().handles.count(handle) ? handle : nullptr;
}

// How many blocks a multiprocessor holds; asked for at every launch, so answers are kept.
u32 resident_blocks(Registered* r, u32 threads, u64 shared) {
    if (!runtime().resident) return 1;
    auto [it, fresh] = r->resident.try_emplace({threads, shared}, 0);
    if (fresh) it->second = runtime().resident(r->name.c_str(), threads, shared);
    return it->second;
}

// An error of the kernel itself is left for the next call to notice.
cudaError_t launch(Registered* r, const LaunchShape& shape, void** args) {
    if (cudaError_t error = check_function(r)) return fail(error);
    if (cudaError_t error = check_shape(r->kernel, shape)) return fail(error);
    u32 threads = shape.block.x * shape.block.y * shape.block.z;
    u32 resident = resident_blocks(r, threads, shape.shared);
    REQUIRE(resident, cudaErrorLaunchOutOfResources);
    u64 blocks = (u64)shape.grid.x * shape.grid.y * shape.grid.z;
    REQUIRE(!shape.cooperative || blocks <= (u64)resident * engine().device.sms, cudaErrorCooperativeLaunchTooLarge);
    flush_prints();
    runtime().pending = run(r, shape, args, resident);
    if (runtime().program) forget_launches();
    return cudaSuccess;
}

cudaError_t launch_in(cudaStream_t stream, Registered* r, const LaunchShape& shape, void** args) {
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    if (!capturing(stream)) {
        if (cudaError_t error = begin_work(stream, "a launch", r ? r->name : "")) return error;
        std::vector<Allocation*> unordered = unordered_buffers(stream);
        cudaError_t error = launch(r, shape, args);
        if (error == cudaSuccess) see_what_was_read(unordered, r->name);
        return error;
    }
    if (cudaError_t error = check_function(r)) return fail(error);
    std::vector<std::vector<u8>> kept;
    for (size_t i = 0; i < r->kernel->param_sizes.size(); i++)
        kept.emplace_back((u8*)args[i], (u8*)args[i] + r->kernel->param_sizes[i]);
    return submit(stream, cudaGraphNodeTypeKernel, [=]() mutable {
        std::vector<void*> pointers;
        for (auto& one : kept) pointers.push_back(one.data());
        return launch(r, shape, pointers.data());
    });
}

extern "C" {

// --- registration, called before main -----------------------------------------------------------

void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper { int magic, version; const void* data; void* more; };
    struct Header { u32 magic; unsigned short version, header_bytes; u64 bytes; };
    auto* w = (Wrapper*)wrapper;
    auto* h = (const Header*)w->data;
    Runtime& r = runtime();
    r.images.push_back({w->data, h->header_bytes + h->bytes});
    return (void**)(u64)r.images.size();  // index + 1
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

// Called before managed variables are touched: they get their initial values.
char __cudaInitModule(void** handle) {
    Guard guard(runtime().lock);
    for (auto& entry : runtime().variables)
        if (entry.second.image + 1 == (u64)handle && entry.second.managed && !variable_address(entry.second))
            unsupported("for the managed variable " + entry.second.name);
    return 1;
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
    auto* r = new Registered;
    r->image = (u32)(u64)handle - 1, r->name = name;
    runtime().functions[host] = r;
    runtime().handles.insert(r);
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int constant, int) {
    runtime().variables[host] = {(u32)(u64)handle - 1, name, 0, bytes, constant != 0};
}

void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t bytes, int constant,
                              int) {
    runtime().variables[host] = {(u32)(u64)handle - 1, name, 0, bytes, constant != 0, host};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    REQUIRE(!configurations.empty(), cudaErrorMissingConfiguration);
    Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid, *block = c.block, *shared = c.shared, *(cudaStream_t*)stream = c.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = (cudaKernel_t)registered(host);
    return *kernel ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}

// --- launches ---------------------------------------------------------------------------------

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
    ENTER;
    return launch_in(stream, registered(host), {grid, block, shared}, args);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel((const void*)kernel, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared,
                                        cudaStream_t stream) {
    ENTER;
    return launch_in(stream, registered(host), {grid, block, shared, true}, args);
}

// Attributes that only advise are accepted; clusters are not there.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
    ENTER;
    REQUIRE(config, cudaErrorInvalidValue);
    LaunchShape shape{config->gridDim, config->blockDim, config->dynamicSmemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute& a = config->attrs[i];
        if (a.id == cudaLaunchAttributeCooperative) shape.cooperative = a.val.cooperative != 0;
        if (a.id == cudaLaunchAttributeClusterDimension &&
            (u64)a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z > 1)
            return unsupported("cudaLaunchKernelExC with thread block clusters");
    }
    return launch_in(config->stream, registered(host), shape, args);
}

// Whatever an earlier kernel did: nvcc's stubs ask once, and keep the answer for all calls of the process.
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
    Guard guard(runtime().lock);
    REQUIRE(function, cudaErrorInvalidValue);
    *function = (cudaFunction_t)registered(symbol);
    return *function ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* symbol) {
    return cudaGetFuncBySymbol((cudaFunction_t*)kernel, symbol);
}
cudaError_t cudaFuncGetName(const char** name, const void* function) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r && name, cudaErrorInvalidDeviceFunction);
    *name = r->name.c_str();
    return cudaSuccess;
}

}  // extern "C"
