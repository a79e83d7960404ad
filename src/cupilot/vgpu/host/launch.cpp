// Registration of a candidate's code and variables, and launches.
#include <map>

#include "arguments.h"

namespace {

struct Sizes { bool known; std::vector<u32> bytes; };

const Sizes& sizes_of(const void* function) {
    static auto* kept = new std::map<const void*, Sizes>;
    auto it = kept->find(function);
    if (it != kept->end()) return it->second;
    Writer out;
    out.put(function);
    std::string answer = channel::request(PARAMETER_SIZES, out);
    Reader in(answer.data(), answer.size());
    Sizes found{in.take<u8>() != 0, {}};
    for (u32 count = in.take<u32>(); count && in.good; count--) found.bytes.push_back(in.take<u32>());
    static Sizes none{false, {}};
    return found.known ? (*kept)[function] = found : none;
}

struct Configuration { dim3 grid, block; size_t shared; cudaStream_t stream; };
std::vector<Configuration>& configurations() {
    static auto* all = new std::vector<Configuration>;
    return *all;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream,
                   bool cooperative) {
    Writer out;
    out.put(function), out.put(grid), out.put(block), out.put((u64)shared), out.put(stream), out.put((u8)cooperative);
    put_arguments(out, function, arguments);
    return channel::ask(LAUNCH, out);
}

cudaError_t failed(cudaError_t error) {
    Writer out;
    out.put(error);
    return channel::ask(FAILED, out);
}

}  // namespace

void put_arguments(Writer& out, const void* function, void** arguments) {
    const Sizes& sizes = sizes_of(function);
    out.put((u32)(arguments ? sizes.bytes.size() : 0));
    for (size_t i = 0; arguments && i < sizes.bytes.size(); i++)
        out.put(sizes.bytes[i]), out.bytes(arguments[i], sizes.bytes[i]);
}

// For calls that are only names here and there (cudart_unsupported.cpp).
int unsupported_call(const char* name) {
    Writer out;
    out.text(name);
    return channel::ask(UNSUPPORTED, out);
}

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper { int magic, version; const void* data; void* more; };
    struct Header { u32 magic; unsigned short version, header_bytes; u64 bytes; };
    auto* w = (Wrapper*)wrapper;
    auto* h = (const Header*)w->data;
    Writer out;
    out.bytes(w->data, h->header_bytes + h->bytes);
    std::string answer = channel::request(REGISTER_IMAGE, out);
    return (void**)Reader(answer.data(), answer.size()).take<u64>();
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void** handle) {
    Writer out;
    out.put((u64)handle);
    channel::request(INITIALIZE_MODULE, out);
    return 1;
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    Writer out;
    out.put((u64)handle), out.put((u64)host), out.text(name);
    channel::request(REGISTER_FUNCTION, out);
}

static void register_variable(void** handle, void* host, const char* name, size_t bytes, int constant, bool managed) {
    Writer out;
    out.put((u64)handle), out.put((u64)host), out.put((u64)bytes), out.put((u8)(constant != 0)), out.put((u8)managed);
    out.text(name);
    channel::request(REGISTER_VARIABLE, out);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int constant, int) {
    register_variable(handle, host, name, bytes, constant, false);
}
void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t bytes, int constant, int) {
    register_variable(handle, host, name, bytes, constant, true);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
    configurations().push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations().empty()) return failed(cudaErrorMissingConfiguration);
    Configuration c = configurations().back();
    configurations().pop_back();
    *grid = c.grid, *block = c.block, *shared = c.shared, *(cudaStream_t*)stream = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) { return cudaGetKernel(kernel, host); }

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
    return launch(host, grid, block, args, shared, stream, false);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                               cudaStream_t stream) {
    return launch((const void*)kernel, grid, block, args, shared, stream, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared,
                                        cudaStream_t stream) {
    return launch(host, grid, block, args, shared, stream, true);
}
// Attributes that only advise are accepted; clusters are not there.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
    if (!config) return failed(cudaErrorInvalidValue);
    bool cooperative = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute& a = config->attrs[i];
        if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
        if (a.id == cudaLaunchAttributeClusterDimension &&
            (u64)a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z > 1)
            return (cudaError_t)unsupported_call("cudaLaunchKernelExC with thread block clusters");
    }
    return launch(host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream, cooperative);
}

}  // extern "C"
