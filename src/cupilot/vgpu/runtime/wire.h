// What the worker process, which has the engine, and the host process, which has a candidate's host code, say to each other.
//
// The worker gives commands (load, call); while the host process carries one out it makes requests, which are calls of the
// CUDA runtime, and while one of those is carried out the worker may ask for memory or have a function called. So exactly
// one side speaks at any time. The host process trusts the worker. The worker trusts nothing that it reads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace wire {

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;

// Memory that both processes map at the same address: pinned and managed memory.
constexpr u64 SHARED_MEMORY = 0x100000000000, SHARED_BYTES = 64ull << 30;
// Where device memory lies, which the host process does not have.
constexpr u64 DEVICE_MEMORY = 0x110000000000, DEVICE_END = 0x500000000000;

enum Message : u32 {
    // from the worker
    CONFINE = 1, LOAD, ENTRIES, CALL, RELEASE,  // commands; vgpu/host.py mirrors them
    ANSWER, READ, WRITE, RUN, RUN_CALLBACK,
    // from the host process
    DONE = 64, REQUEST, DATA, RAN, FAULT,
};
struct Head { u32 message, number; u64 bytes; };

// Requests that are not simply a call with its arguments; calls have smaller numbers.
enum Special : u32 {
    REGISTER_IMAGE = 1000, REGISTER_FUNCTION, REGISTER_VARIABLE, INITIALIZE_MODULE, PARAMETER_SIZES, LAUNCH, UNSUPPORTED,
    FAILED, NODES, EDGES, CAPTURE_INFO, FUNCTION_NAME, SET_POOL, GET_POOL, FREED_BY_NODE,
};
enum NodeList : u32 { ALL_NODES, ROOT_NODES, DEPENDENCIES, DEPENDENTS };

constexpr u64 MOST_REQUEST = 512 << 20, MOST_REPLY = 1 << 20;
constexpr u32 MOST_NODES = 1 << 20, MOST_DEPTH = 32;

class Writer {
  public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes(&value, sizeof value);
    }
    void bytes(const void* from, size_t count) { data.append((const char*)from, count); }
    void text(const std::string& value) {
        put((u32)value.size());
        bytes(value.data(), value.size());
    }
    std::string data;
};

// Reads what a Writer wrote; what is not there reads as zero, and `good` says so.
class Reader {
  public:
    Reader(const void* from, size_t count) : at((const char*)from), left(count) {}
    template <class T>
    T take() {
        T value{};
        const void* from = bytes(sizeof value);
        if (from) memcpy((void*)&value, from, sizeof value);
        return value;
    }
    const char* bytes(size_t count) {
        if (count > left) return good = false, left = 0, nullptr;
        const char* start = at;
        at += count, left -= count;
        return start;
    }
    std::string text() {
        size_t count = take<u32>();
        const char* from = bytes(count);
        return from ? std::string(from, count) : "";
    }
    bool done() const { return good && !left; }
    const char* at;
    size_t left;
    bool good = true;
};

// --- arguments, by their types in CUDA's header ---------------------------------------------------

template <class T, class = void>
struct IsComplete : std::false_type {};
template <class T>
struct IsComplete<T, std::enable_if_t<!std::is_void_v<T> && !std::is_function_v<T> && (sizeof(T) > 0)>> : std::true_type {};

using Nodes = const cudaGraphNode_t*;
using Edges = const cudaGraphEdgeData*;
using KernelNode = const cudaKernelNodeParams*;

// A pointer to one value that the call reads, or writes if it is not const; all other pointers are only numbers.
template <class A>
constexpr bool is_reference = std::is_pointer_v<A> && !std::is_same_v<A, Nodes> && !std::is_same_v<A, Edges> &&
                              !std::is_same_v<A, KernelNode> && IsComplete<std::remove_pointer_t<A>>::value;

// Of arguments, the first that is a count of something before it.
template <class... A>
u64 count_after(size_t place, A... arguments) {
    u64 found = 0;
    size_t at = 0;
    bool known = false;
    auto look = [&](auto value) {
        if constexpr (std::is_same_v<decltype(value), size_t>)
            if (at > place && !known) found = value, known = true;
        at++;
    };
    (look(arguments), ...);
    return found;
}

}  // namespace wire
