// Copies and fills: linear, pitched and of volumes; and copies to and from a program's variables.
//
// The device's side must lie inside one buffer. Arrays (textures) and peers are not covered. Fills and copies are put
// down for the time model, by where the bytes lie, whatever the caller says. Managed memory counts as the host's, whose
// accesses to it are not seen.
#include <cstring>

#include "cudart.h"
#include "host_memory.h"
#include "host_side.h"
#include "print.h"

namespace {

bool in_device_memory(const void* pointer) {
    Allocation* a = find_allocation((u64)pointer);
    return a && !a->host;
}

void note_copy(const void* to, const void* from, u64 bytes) {
    bool there = in_device_memory(to), here = in_device_memory(from);
    if (there || here) note_operation(!there ? "device-to-host" : !here ? "host-to-device" : "copy", bytes);
}

// Copies to memory of the host that is not pinned are over when the call returns, and so is what came before in the stream.
cudaError_t submit_copy(cudaStream_t stream, const void* to, const std::function<cudaError_t()>& work) {
    cudaError_t error = submit(stream, cudaGraphNodeTypeMemcpy, work);
    if (error == cudaSuccess && !capturing(stream) && !find_allocation((u64)to)) wait_for_stream(stream);
    return error;
}

struct Sides { bool to_device, from_device; };

Sides sides(const void* to, const void* from, cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDefault) return {find_allocation((u64)to) != nullptr, find_allocation((u64)from) != nullptr};
    return {kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
            kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice};
}

// Whether bytes may be touched: all of them in one buffer, or, on the host's side, in memory that nobody told us of.
bool reachable(const void* pointer, size_t bytes, bool on_device) {
    Allocation* a = find_allocation((u64)pointer);
    if (!a) return !on_device;
    return !a->freed && bytes <= a->bytes && (u64)pointer - a->base <= a->bytes - bytes;
}

cudaError_t move(void* to, const void* from, size_t bytes, Sides s) {
    if (!reachable(to, bytes, s.to_device) || !reachable(from, bytes, s.from_device)) return cudaErrorInvalidValue;
    begin_device_work();
    Allocation *source = find_allocation((u64)from), *target = find_allocation((u64)to);
    bool old = is_left_over((u64)from, bytes) || (source && is_of_earlier_call(source, (u64)from - source->base, bytes));
    if (engine().settings.checks && old)
        report("left-over", "copy of " + std::to_string(bytes) + " bytes that an earlier call wrote, and this one did not");
    move_bytes(to, from, bytes);
    if (target) mark_written((u64)to, bytes), device_wrote(target, (u64)to - target->base, bytes);
    end_device_work();
    return cudaSuccess;
}

cudaError_t set(void* pointer, int value, size_t bytes) {
    if (!reachable(pointer, bytes, true)) return cudaErrorInvalidValue;
    begin_device_work();
    memset(pointer, value, bytes);
    mark_written((u64)pointer, bytes);
    Allocation* a = find_allocation((u64)pointer);
    device_wrote(a, (u64)pointer - a->base, bytes);
    end_device_work();
    return cudaSuccess;
}

bool valid(cudaMemcpyKind kind) { return (unsigned)kind <= (unsigned)cudaMemcpyDefault; }

ModuleVariable* variable(const void* symbol) {
    auto it = runtime().variables.find(symbol);
    if (it != runtime().variables.end()) return &it->second;
    for (auto& entry : runtime().variables)  // a managed variable is its own pointer
        if (entry.second.managed && entry.second.address && entry.second.address == (u64)symbol) return &entry.second;
    return nullptr;
}

cudaError_t copy_symbol(const void* symbol, void* other, size_t bytes, size_t offset, cudaMemcpyKind kind,
                        bool to_symbol,
                        cudaStream_t stream) {
    ModuleVariable* v = variable(symbol);
    REQUIRE(v, cudaErrorInvalidSymbol);
    REQUIRE(offset <= v->bytes && bytes <= v->bytes - offset, cudaErrorInvalidValue);
    auto wrong = to_symbol ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    REQUIRE(valid(kind) && kind != cudaMemcpyHostToHost && kind != wrong, cudaErrorInvalidMemcpyDirection);
    REQUIRE(variable_address(*v), cudaErrorInvalidSymbol);
    auto* place = (char*)v->address + offset;
    return submit(stream, cudaGraphNodeTypeMemcpy, [=] {
        return to_symbol ? copy(place, other, bytes, kind) : copy(other, place, bytes, kind);
    });
}

}  // namespace

void note_operation(const char* kind, u64 bytes) {
    engine().operations.push_back({kind, bytes, engine().launches.size()});
}

// Of a managed variable, the pointer by which host code knows it.
static void set_pointer(void** place, u64 address) {
    if (HostSide* apart = host_apart())
        apart->write((u64)place, &address, sizeof address);
    else
        *place = (void*)address;
}

// Where a variable lies; it gets its initial value when it is first asked for. 0 when the PTX does not hold it.
u64 variable_address(ModuleVariable& v) {
    if (!v.address && runtime().locate) v.address = runtime().locate(v.image, v.name.c_str());
    if (v.managed) set_pointer(v.managed, v.address);
    return v.address;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return copy_rows(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind) {
    REQUIRE(valid(kind), cudaErrorInvalidMemcpyDirection);
    if (!width || !height) return cudaSuccess;
    REQUIRE(height == 1 || (width <= to_pitch && width <= from_pitch), cudaErrorInvalidPitchValue);
    Sides s = sides(to, from, kind);
    Opened opened;
    for (size_t row = 0; row < height; row++)
        if (cudaError_t error = move((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, s))
            return fail(error);
    note_copy(to, from, width * height);
    return cudaSuccess;
}

cudaError_t copy_volume(const cudaMemcpy3DParms& p) {
    if (p.srcArray || p.dstArray) return unsupported("cudaMemcpy3D with arrays");
    cudaPitchedPtr to = p.dstPtr, from = p.srcPtr;
    if (!p.extent.width || !p.extent.height) return cudaSuccess;
    // else slices would lie in each other
    REQUIRE(p.extent.depth <= 1 || (p.extent.height <= to.ysize && p.extent.height <= from.ysize),
            cudaErrorInvalidPitchValue);
    for (size_t z = 0; z < p.extent.depth; z++) {
        char* t = (char*)to.ptr + ((z + p.dstPos.z) * to.ysize + p.dstPos.y) * to.pitch + p.dstPos.x;
        char* f = (char*)from.ptr + ((z + p.srcPos.z) * from.ysize + p.srcPos.y) * from.pitch + p.srcPos.x;
        cudaError_t error = copy_rows(t, to.pitch, f, from.pitch, p.extent.width, p.extent.height, p.kind);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t fill(void* pointer, int value, size_t bytes) { return fill_rows(pointer, bytes, value, bytes, 1); }

cudaError_t fill_rows(void* pointer, size_t pitch, int value, size_t width, size_t height) {
    if (!width || !height) return cudaSuccess;
    REQUIRE(height == 1 || width <= pitch, cudaErrorInvalidPitchValue);
    Opened opened;
    for (size_t row = 0; row < height; row++)
        if (cudaError_t error = set((char*)pointer + row * pitch, value, width)) return fail(error);
    note_operation("fill", width * height);
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    return submit_copy(stream, to, [=] { return copy(to, from, bytes, kind); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    flush_prints();
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    REQUIRE(width <= to_pitch && width <= from_pitch, cudaErrorInvalidPitchValue);
    return submit_copy(stream, to, [=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); });
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    flush_prints();
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
    ENTER;
    REQUIRE(p, cudaErrorInvalidValue);
    cudaMemcpy3DParms kept = *p;
    return submit(stream, cudaGraphNodeTypeMemcpy, [=] { return copy_volume(kept); });
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
    flush_prints();
    return cudaMemcpy3DAsync(p, nullptr);
}

// There is one device, which is its own only peer.
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
    REQUIRE(!to_device && !from_device, cudaErrorInvalidDevice);
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
    ENTER;
    return submit(stream, cudaGraphNodeTypeMemset, [=] { return fill(pointer, value, bytes); });
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) { return cudaMemsetAsync(pointer, value, bytes,
                       nullptr); }

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    ENTER;
    return submit(stream, cudaGraphNodeTypeMemset, [=] { return fill_rows(pointer, pitch, value, width, height); });
}
cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(pointer, pitch, value, width, height, nullptr);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent extent, cudaStream_t stream) {
    ENTER;
    REQUIRE(extent.depth <= 1 || extent.height <= p.ysize, cudaErrorInvalidPitchValue);
    return submit(stream, cudaGraphNodeTypeMemset, [=] {
        if (!extent.width || !extent.height) return cudaSuccess;
        for (size_t z = 0; z < extent.depth; z++) {
            char* slice = (char*)p.ptr + z * p.ysize * p.pitch;
            if (cudaError_t error = fill_rows(slice, p.pitch, value, extent.width, extent.height)) return error;
        }
        return cudaSuccess;
    });
}
cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent extent) {
    return cudaMemset3DAsync(p, value, extent, nullptr);
}

// --- variables --------------------------------------------------------------------------------

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind,
                                    cudaStream_t stream) {
    ENTER;
    return copy_symbol(symbol, (void*)from, bytes, offset, kind, true, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
    return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
    ENTER;
    return copy_symbol(symbol, to, bytes, offset, kind, false, stream);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
    flush_prints();
    return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr);
}

cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
    ENTER;
    ModuleVariable* v = variable(symbol);
    REQUIRE(v && pointer && variable_address(*v), cudaErrorInvalidSymbol);
    *pointer = (void*)v->address;
    return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    ENTER;
    ModuleVariable* v = variable(symbol);
    REQUIRE(v && bytes, cudaErrorInvalidSymbol);
    *bytes = v->bytes;
    return cudaSuccess;
}

}  // extern "C"
