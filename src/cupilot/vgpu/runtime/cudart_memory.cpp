// Memory: device buffers, managed and pinned memory, registered host memory, pools in name only.
//
// Host memory that kernels may touch counts as written, because the host's stores are not seen.
#include <sys/mman.h>

#include <algorithm>

#include "cudart.h"
#include "host_side.h"

namespace {

constexpr size_t PITCH_BYTES = 512;

cudaError_t make(void** pointer, size_t bytes, cudaMemoryType type, unsigned flags, const char* name) {
    REQUIRE(pointer, cudaErrorInvalidValue);
    Runtime& r = runtime();
    bool on_device = type == cudaMemoryTypeDevice;
    u64 total = engine().device.dram_bytes;
    REQUIRE(!on_device || !total || (bytes <= total && r.device_bytes <= total - bytes), cudaErrorMemoryAllocation);
    u64 address = allocate(bytes, name, !on_device);
    REQUIRE(address, cudaErrorMemoryAllocation);
    if (!on_device) find_allocation(address)->all_written = true;
    find_allocation(address)->managed = type == cudaMemoryTypeManaged;
    r.buffers[address] = {bytes, type, flags};
    if (on_device) r.device_bytes += bytes;
    *pointer = (void*)address;
    return cudaSuccess;
}

// Frees even after a sticky error, which is still what the caller is told.
cudaError_t unmake(void* pointer, bool host) {
    Guard guard(runtime().lock);
    Runtime& r = runtime();
    cudaError_t before = settled();
    if (!pointer) return fail(before);
    auto it = r.buffers.find((u64)pointer);
    if (it == r.buffers.end()) return fail(!host && release((u64)pointer) ? before : cudaErrorInvalidValue);
    REQUIRE((it->second.type == cudaMemoryTypeHost) == host && !(it->second.flags & 0x10000), cudaErrorInvalidValue);
    if (it->second.type == cudaMemoryTypeDevice) r.device_bytes -= it->second.bytes;
    r.buffers.erase(it);
    release((u64)pointer);
    return fail(before);
}

const auto by_address = [](u64 x, Allocation* a) { return x < a->base; };
constexpr unsigned REGISTERED = 0x10000;  // a flag of ours: memory that the program brought

// An allocation's book-keeping, moved to memory that exists already.
bool adopt(u64 address, u64 bytes) {
    u64 made = allocate(bytes, "cudaHostRegister", true);
    if (!made) return false;
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    Allocation* a = find_allocation(made);
    e.allocations.erase(std::find(e.allocations.begin(), e.allocations.end(), a));
    munmap((void*)made, (bytes + 4095) / 4096 * 4096);
    a->base = address, a->all_written = true;
    e.allocations.insert(std::upper_bound(e.allocations.begin(), e.allocations.end(), address, by_address), a);
    return true;
}

bool overlaps(u64 address, u64 bytes) {
    for (Allocation* a : engine().allocations)
        if (!a->freed && a->base < address + bytes && address < a->base + a->bytes) return true;
    return false;
}

std::pair<const u64, Buffer>* buffer_around(const void* pointer) {
    auto& all = runtime().buffers;
    auto it = all.upper_bound((u64)pointer);
    if (it == all.begin()) return nullptr;
    --it;
    return (u64)pointer < it->first + std::max<u64>(it->second.bytes, 1) ? &*it : nullptr;
}

}  // namespace

void forget_buffers() {
    for (auto& entry : runtime().buffers)
        if (!(entry.second.flags & REGISTERED)) release(entry.first);
    runtime().buffers.clear();
    runtime().device_bytes = 0;
}

extern "C" {

// A buffer for whoever runs the machine, whatever the last call's kernels did; 0 when there is no room.
u64 vgc_allocate(u64 bytes) {
    Guard guard(runtime().lock);
    void* pointer = nullptr;
    return make(&pointer, bytes, cudaMemoryTypeDevice, 0, "argument") == cudaSuccess ? (u64)pointer : 0;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    ENTER;
    return make(pointer, bytes, cudaMemoryTypeDevice, 0, "cudaMalloc");
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    // a captured allocation is made at once, and is there for every launch of the graph
    if (cudaError_t error = cudaMalloc(pointer, bytes)) return error;
    return capturing(stream) ? submit(stream, cudaGraphNodeTypeMemAlloc, nullptr) : cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t stream) {
    return cudaMallocAsync(pointer, bytes, stream);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
    ENTER;
    REQUIRE(bytes && (flags == cudaMemAttachGlobal || flags == cudaMemAttachHost), cudaErrorInvalidValue);
    return make(pointer, bytes, cudaMemoryTypeManaged, flags, "cudaMallocManaged");
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    ENTER;
    REQUIRE(flags < 8, cudaErrorInvalidValue);
    return make(pointer, bytes, cudaMemoryTypeHost, flags | cudaHostAllocMapped, "cudaHostAlloc");
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    ENTER;
    REQUIRE(pitch, cudaErrorInvalidValue);
    *pitch = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return make(pointer, *pitch * height, cudaMemoryTypeDevice, 0, "cudaMallocPitch");
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
    REQUIRE(out, cudaErrorInvalidValue);
    out->xsize = extent.width, out->ysize = extent.height;
    return cudaMallocPitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}

cudaError_t cudaFree(void* pointer) { return unmake(pointer, false); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    return capturing(stream) ? submit(stream, cudaGraphNodeTypeMemFree, nullptr) : unmake(pointer, false);
}
cudaError_t cudaFreeHost(void* pointer) { return unmake(pointer, true); }

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
    ENTER;
    REQUIRE(pointer && bytes && flags < 16, cudaErrorInvalidValue);
    REQUIRE(!overlaps((u64)pointer, bytes), cudaErrorHostMemoryAlreadyRegistered);
    REQUIRE(!host_apart() || host_apart()->mirror((u64)pointer, bytes), cudaErrorMemoryAllocation);
    REQUIRE(adopt((u64)pointer, bytes), cudaErrorMemoryAllocation);
    runtime().buffers[(u64)pointer] = {bytes, cudaMemoryTypeHost, flags | REGISTERED};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
    ENTER;
    auto it = runtime().buffers.find((u64)pointer);
    REQUIRE(it != runtime().buffers.end() && it->second.flags & REGISTERED, cudaErrorHostMemoryNotRegistered);
    runtime().buffers.erase(it);
    if (HostSide* apart = host_apart()) apart->forget((u64)pointer);
    Engine& e = engine();
    std::lock_guard<std::mutex> lock(e.mutex);
    Allocation* a = find_allocation((u64)pointer);
    a->freed = true;
    e.allocations.erase(std::find(e.allocations.begin(), e.allocations.end(), a));
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    ENTER;
    auto* b = buffer_around(host);
    REQUIRE(device && b && b->second.type != cudaMemoryTypeDevice, cudaErrorInvalidValue);
    *device = host;  // one address space
    return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
    ENTER;
    auto* b = buffer_around(host);
    REQUIRE(flags && b && b->second.type == cudaMemoryTypeHost, cudaErrorInvalidValue);
    *flags = b->second.flags & ~REGISTERED;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
    ENTER;
    REQUIRE(out, cudaErrorInvalidValue);
    *out = cudaPointerAttributes{};
    auto* b = buffer_around(pointer);
    Allocation* a = find_allocation((u64)pointer);
    bool known = a && !a->freed;
    out->type = !known ? cudaMemoryTypeUnregistered : b ? b->second.type : cudaMemoryTypeDevice;
    out->device = known ? 0 : cudaInvalidDeviceId;
    out->devicePointer = known ? (void*)pointer : nullptr;
    // host memory that CUDA does not know is still a host pointer
    out->hostPointer = out->type == cudaMemoryTypeDevice ? nullptr : (void*)pointer;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    ENTER;
    REQUIRE(free && total, cudaErrorInvalidValue);
    *total = engine().device.dram_bytes;
    *free = *total - std::min<u64>(*total, runtime().device_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation place, unsigned,
                                 cudaStream_t stream) {
    ENTER;
    auto* b = buffer_around(pointer);
    REQUIRE(bytes && b && b->second.type == cudaMemoryTypeManaged, cudaErrorInvalidValue);
    if (cudaError_t error = begin_work(stream, "a prefetch")) return error;
    find_allocation((u64)pointer)->moved = place.type == cudaMemLocationTypeDevice;
    note_operation("migration", bytes);
    return cudaSuccess;
}

// --- advice, which changes nothing here ---------------------------------------------------------

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise, cudaMemLocation) {
    ENTER;
    auto* b = buffer_around(pointer);
    REQUIRE(bytes && b && b->second.type == cudaMemoryTypeManaged, cudaErrorInvalidValue);
    return cudaSuccess;
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, size_t, unsigned) {
    ENTER;
    REQUIRE(known_stream(stream) && buffer_around(pointer), cudaErrorInvalidValue);
    return cudaSuccess;
}

// There is one pool, without settings.
static cudaMemPool_t the_pool() { return (cudaMemPool_t)&runtime(); }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    REQUIRE(pool && device == 0, cudaErrorInvalidDevice);
    *pool = the_pool();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { return cudaDeviceGetDefaultMemPool(pool,
                              0); }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    ENTER;
    REQUIRE(value, cudaErrorInvalidValue);
    if (attribute == cudaMemPoolAttrReleaseThreshold) runtime().pool[attribute] = *(u64*)value;
    return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    REQUIRE(value, cudaErrorInvalidValue);
    if (attribute <= cudaMemPoolReuseAllowInternalDependencies)
        *(int*)value = 1;
    else
        *(u64*)value = attribute == cudaMemPoolAttrReleaseThreshold ? runtime().pool[attribute] : runtime().device_bytes;
    return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }

}  // extern "C"
