// The device: its properties and attributes (from the device's data sheet), limits, and settings that change nothing.
//
// What a data sheet of ours does not hold is what GPUs of these generations have in common; textures, surfaces and
// interoperability are not there, so their attributes are zero.
#include <cstdio>
#include <cstring>

#include "cudart.h"
#include "print.h"

namespace {

constexpr int RUNTIME_VERSION = CUDART_VERSION;

std::map<int, u64>& limits() {
    static auto* all = new std::map<int, u64>{{cudaLimitStackSize, 1024},
                                              {cudaLimitPrintfFifoSize, 1 << 20},
                                              {cudaLimitMallocHeapSize, 8 << 20},
                                              {cudaLimitDevRuntimeSyncDepth, 2},
                                              {cudaLimitDevRuntimePendingLaunchCount, 2048},
                                              {cudaLimitMaxL2FetchGranularity, 64},
                                              {cudaLimitPersistingL2CacheSize, 0}};
    return *all;
}

int registers_per_block() { return 65536; }
int reserved_shared() { return engine().device.major >= 8 ? 1024 : 0; }
bool of_a_data_centre() {
    const DeviceInfo& d = engine().device;
    return d.minor == 0 && d.major >= 7 && d.major <= 10;
}
// fp32 operations per fp64 operation
int double_ratio() { return of_a_data_centre() ? 2 : engine().device.major == 7 ? 32 : 64; }
// Width and clock of the memory, such that programs that multiply the two find the data sheet's bandwidth.
int bus_bits() { return of_a_data_centre() ? 5120 : 384; }
int memory_clock_khz() { return (int)(engine().device.dram_bytes_per_s / (2.0 * bus_bits() / 8) / 1e3); }

using Attributes = std::map<int, i64>;

void add_sizes(Attributes& a) {
    const DeviceInfo& d = engine().device;
    a[cudaDevAttrMaxThreadsPerBlock] = d.threads_per_block;
    a[cudaDevAttrMaxBlockDimX] = a[cudaDevAttrMaxBlockDimY] = 1024, a[cudaDevAttrMaxBlockDimZ] = 64;
    a[cudaDevAttrMaxGridDimX] = 2147483647, a[cudaDevAttrMaxGridDimY] = a[cudaDevAttrMaxGridDimZ] = 65535;
    a[cudaDevAttrWarpSize] = LANES, a[cudaDevAttrMultiProcessorCount] = d.sms;
    a[cudaDevAttrMaxSharedMemoryPerBlock] = d.shared_per_block;
    a[cudaDevAttrMaxSharedMemoryPerBlockOptin] = d.shared_per_block_optin;
    a[cudaDevAttrMaxSharedMemoryPerMultiprocessor] = d.shared_per_sm;
    a[cudaDevAttrReservedSharedMemoryPerBlock] = reserved_shared();
    a[cudaDevAttrMaxThreadsPerMultiProcessor] = d.threads_per_sm;
    a[cudaDevAttrMaxBlocksPerMultiprocessor] = d.blocks_per_sm;
    a[cudaDevAttrMaxRegistersPerBlock] = registers_per_block();
    a[cudaDevAttrMaxRegistersPerMultiprocessor] = d.registers_per_sm;
    a[cudaDevAttrL2CacheSize] = d.l2_bytes, a[cudaDevAttrTotalConstantMemory] = 65536;
    a[cudaDevAttrMaxPitch] = 2147483647, a[cudaDevAttrTextureAlignment] = a[cudaDevAttrSurfaceAlignment] = 512;
    a[cudaDevAttrTexturePitchAlignment] = 32;
}

void add_abilities(Attributes& a) {
    const DeviceInfo& d = engine().device;
    a[cudaDevAttrClockRate] = d.clock_khz;
    a[cudaDevAttrMemoryClockRate] = memory_clock_khz(), a[cudaDevAttrGlobalMemoryBusWidth] = bus_bits();
    a[cudaDevAttrComputeCapabilityMajor] = d.major, a[cudaDevAttrComputeCapabilityMinor] = d.minor;
    a[cudaDevAttrSingleToDoublePrecisionPerfRatio] = double_ratio();
    a[cudaDevAttrComputeMode] = cudaComputeModeDefault;
    if (d.major >= 8) {
        a[cudaDevAttrMaxPersistingL2CacheSize] = (i64)(d.l2_bytes / 4 * 3);
        a[cudaDevAttrMaxAccessPolicyWindowSize] = 128 << 20;
    }
    a[cudaDevAttrAsyncEngineCount] = 2, a[cudaDevAttrMemSyncDomainCount] = 1;
    for (int yes : {cudaDevAttrGpuOverlap, cudaDevAttrCanMapHostMemory, cudaDevAttrConcurrentKernels,
                    cudaDevAttrUnifiedAddressing, cudaDevAttrStreamPrioritiesSupported,
                    cudaDevAttrGlobalL1CacheSupported, cudaDevAttrLocalL1CacheSupported, cudaDevAttrManagedMemory,
                    cudaDevAttrConcurrentManagedAccess,
                    cudaDevAttrComputePreemptionSupported, cudaDevAttrCanUseHostPointerForRegisteredMem,
                    cudaDevAttrCooperativeLaunch, cudaDevAttrHostRegisterSupported, cudaDevAttrMemoryPoolsSupported})
        a[yes] = 1;
    // the rest of what can be asked for: not there
    for (int id = 1; id < cudaDevAttrMax; id++) a.emplace(id, 0);
}

cudaError_t check_device(int device) { return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
    REQUIRE(device, cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return check_device(device); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return check_device(device); }
cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
    REQUIRE(count, cudaErrorInvalidValue);
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    *flags = cudaDeviceScheduleAuto | cudaDeviceMapHost;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceReset() {
    Guard guard(runtime().lock);
    flush_prints();
    forget_buffers();
    runtime().side_work.clear();
    runtime().pending = runtime().sticky = last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (cudaError_t error = check_device(device)) return error;
    Attributes all;
    add_sizes(all), add_abilities(all);
    auto it = all.find(attribute);
    REQUIRE(value && it != all.end(), cudaErrorInvalidValue);
    *value = (int)it->second;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (cudaError_t error = check_device(device)) return error;
    const DeviceInfo& d = engine().device;
    Attributes a;
    add_sizes(a), add_abilities(a);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", d.name);
    p->major = d.major, p->minor = d.minor, p->multiProcessorCount = d.sms, p->warpSize = LANES;
    p->totalGlobalMem = d.dram_bytes, p->sharedMemPerBlock = d.shared_per_block;
    p->sharedMemPerBlockOptin = d.shared_per_block_optin, p->sharedMemPerMultiprocessor = d.shared_per_sm;
    p->reservedSharedMemPerBlock = (size_t)reserved_shared();
    p->regsPerBlock = registers_per_block(), p->regsPerMultiprocessor = d.registers_per_sm;
    p->memoryBusWidth = bus_bits();
    p->persistingL2CacheMaxSize = (int)a[cudaDevAttrMaxPersistingL2CacheSize];
    p->accessPolicyMaxWindowSize = (int)a[cudaDevAttrMaxAccessPolicyWindowSize];
    p->l2CacheSize = (int)d.l2_bytes, p->maxThreadsPerBlock = d.threads_per_block;
    p->maxThreadsPerMultiProcessor = d.threads_per_sm, p->maxBlocksPerMultiProcessor = d.blocks_per_sm;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536, p->memPitch = 2147483647, p->asyncEngineCount = 2;
    p->textureAlignment = p->surfaceAlignment = 512, p->texturePitchAlignment = 32;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory = p->concurrentManagedAccess = 1;
    p->computePreemptionSupported = p->canUseHostPointerForRegisteredMem = p->cooperativeLaunch = 1;
    p->hostRegisterSupported = p->memoryPoolsSupported = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int device) { return cudaGetDeviceProperties(p, device); }

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
    if (cudaError_t error = check_device(device)) return error;
    snprintf(text, (size_t)bytes, "0000:00:00.0");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
    REQUIRE(device && text && !strcmp(text, "0000:00:00.0"), cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) { return fail(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    REQUIRE(device == 0 && peer == 0, cudaErrorInvalidDevice);
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return fail(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return fail(cudaErrorInvalidDevice); }

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

// --- limits and preferences -------------------------------------------------------------------

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    ENTER;
    REQUIRE(limits().count(limit), cudaErrorUnsupportedLimit);
    limits()[limit] = value;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    ENTER;
    REQUIRE(value && limits().count(limit), cudaErrorUnsupportedLimit);
    *value = limits()[limit];
    return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
    *config = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
}
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }

// --- the last error ---------------------------------------------------------------------------

cudaError_t cudaPeekAtLastError() {
    Guard guard(runtime().lock);
    return runtime().sticky != cudaSuccess ? runtime().sticky : last_error;
}
cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

}  // extern "C"
