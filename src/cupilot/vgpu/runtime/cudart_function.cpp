// Attributes and occupancy of kernels. Registers are ptxas's; the rest is read from the PTX.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cudart.h"
#include "findings.h"

namespace {

// The largest block that can be launched: by the device, the launch bounds and the registers.
int largest_block(Registered* r, KernelInfo* k) {
    u32 limit = (u32)engine().device.threads_per_block;
    if (k->max_threads) limit = std::min(limit, k->max_threads);
    u32 threads = limit;
    while (threads > LANES && !resident_blocks(r, threads, 0)) threads = (threads - 1) / LANES * LANES;
    return (int)threads;
}

// The number after `.target sm_` in an image.
int target_of(u32 image) {
    static const char mark[] = ".target sm_";
    const Image& i = runtime().images[image];
    auto* start = (const char*)memmem(i.data, i.bytes, mark, sizeof mark - 1);
    return start ? atoi(start + sizeof mark - 1) : 0;
}

}  // namespace

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r && out, cudaErrorInvalidDeviceFunction);
    KernelInfo* k = kernel_of(r);
    if (!k->function) {
        report_untranslated(*k);
        write_journal();
        return fail(cudaErrorNotSupported);
    }
    const DeviceInfo& d = engine().device;
    *out = cudaFuncAttributes{};
    out->sharedSizeBytes = k->shared_bytes, out->localSizeBytes = k->local_bytes;
    for (auto& entry : runtime().variables)
        if (entry.second.image == r->image && entry.second.constant) out->constSizeBytes += entry.second.bytes;
    out->maxThreadsPerBlock = largest_block(r, k);
    out->numRegs = runtime().registers ? (int)runtime().registers(r->name.c_str()) : 0;
    out->ptxVersion = target_of(r->image), out->binaryVersion = 10 * d.major + d.minor;
    u64 most = std::min<u64>(k->max_dynamic_shared, d.shared_per_block_optin - k->shared_bytes);
    out->maxDynamicSharedSizeBytes = (int)most;
    out->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r, cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        KernelInfo* k = kernel_of(r);
        u64 limit = engine().device.shared_per_block_optin;
        REQUIRE(value >= 0 && (u64)value + k->shared_bytes <= limit, cudaErrorInvalidValue);
        k->max_dynamic_shared = (u32)value;
    } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        REQUIRE(value >= -1 && value <= 100, cudaErrorInvalidValue);
    } else {
        return unsupported("cudaFuncSetAttribute with a cluster attribute");
    }
    return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
    ENTER;
    return registered(function) ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig) {
    ENTER;
    return registered(function) ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* bytes) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r, cudaErrorInvalidDeviceFunction);
    KernelInfo* k = kernel_of(r);
    REQUIRE(index < k->param_sizes.size(), cudaErrorInvalidValue);
    if (offset) *offset = k->param_offsets[index];
    if (bytes) *bytes = k->param_sizes[index];
    return cudaSuccess;
}

// --- occupancy --------------------------------------------------------------------------------

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r, cudaErrorInvalidDeviceFunction);
    REQUIRE(blocks && threads > 0, cudaErrorInvalidValue);
    *blocks = (int)resident_blocks(r, (u32)threads, shared);
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

// The most dynamic shared memory with which so many blocks still fit.
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int threads) {
    ENTER;
    Registered* r = registered(function);
    REQUIRE(r, cudaErrorInvalidDeviceFunction);
    REQUIRE(bytes && blocks > 0 && threads > 0, cudaErrorInvalidValue);
    REQUIRE(resident_blocks(r, (u32)threads, 0) >= (u32)blocks, cudaErrorInvalidValue);
    u64 low = 0, high = engine().device.shared_per_block_optin + 1;
    while (high - low > 1) {
        u64 middle = (low + high) / 2;
        (resident_blocks(r, (u32)threads, middle) >= (u32)blocks ? low : high) = middle;
    }
    *bytes = low;
    return cudaSuccess;
}

}  // extern "C"
