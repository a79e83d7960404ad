// What the parts of our CUDA runtime share: registered code, buffers, streams, errors.
//
// Everything is done at once, in the order of the calls; of streams it is kept what waits for what. Errors follow CUDA: a call
// that cannot be carried out returns its error; a kernel that fails does so later, at the next call that would
// notice, and from then on every call returns that error until cudaDeviceReset.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine.h"

struct Image { const void* data; u64 bytes; };
struct Registered {
    u32 image;
    std::string name;
    KernelInfo* kernel = nullptr;
    std::map<std::pair<u32, u64>, u32> resident;  // blocks per multiprocessor, by threads and dynamic shared memory
};
struct ModuleVariable { u32 image; std::string name; u64 address, bytes; bool constant; void** managed = nullptr; };
// A buffer that a program asked for.
struct Buffer { u64 bytes; cudaMemoryType type; unsigned flags; };

// By stream: the last of its work that comes before.
using Order = std::map<u64, u64>;
// Work that neither the host nor the default stream has waited for.
struct SideWork { u64 stream, number; std::string what, kernel; };

struct Graph;
struct Node;
struct Stream {
    unsigned flags = 0;
    int priority = 0;
    u64 id = 0;
    Graph* capture = nullptr;  // where its work goes instead of being done
    std::vector<Node*> tail;   // what the next captured work comes after
    std::map<int, cudaLaunchAttributeValue> attributes;
    Order order;
    bool asked = false;  // whether the work in it is done, and told no
};
struct Event {
    unsigned flags = 0;
    bool recorded = false, asked = false;
    Order order;
    double time_s = 0;  // modelled
    Graph* capture = nullptr;
    std::vector<Node*> tail;
};

using Translate = int (*)(u32 image, const char* name, u32 kernel);
using Resident = u32 (*)(const char* name, u32 threads, u64 dynamic_shared);
using Elapsed = double (*)(u64 first_launch, u64 end_launch, u64 first_operation, u64 end_operation);
using Locate = u64 (*)(u32 image, const char* name);
using Registers = u32 (*)(const char* name);

struct Runtime {
    std::recursive_mutex lock;  // host threads take turns
    std::vector<Image> images;
    std::map<const void*, Registered*> functions;
    std::set<const Registered*> handles;
    std::map<const void*, ModuleVariable> variables;
    std::vector<KernelInfo*> kernels;
    std::map<u64, Buffer> buffers;  // by address
    u64 device_bytes = 0;           // of the buffers in device memory
    std::set<Stream*> streams;
    std::set<Event*> events;
    u64 stream_ids = 2, captures = 0, works = 0;
    std::vector<SideWork> side_work;
    u64 main_work = 0, seen_work = 0;                    // the default stream's last, and the last that the host has waited for
    std::map<u32, std::pair<u64, u64>> launched_by;  // of launches of this call: the stream (0 is the default one) and its work
    cudaStream_t running = nullptr;  // the stream whose work is being done
    bool returned = false;           // the wrapper; nothing may be launched until the next call begins
    bool waited = false;             // the host has waited for work of this call, so the next work begins later
    Stream first;  // the attributes of the default stream
    std::map<int, u64> pool;  // settings of the memory pool
    Translate translate = nullptr;
    Resident resident = nullptr;
    Elapsed elapsed = nullptr;
    Locate locate = nullptr;
    Registers registers = nullptr;
    cudaError_t pending = cudaSuccess;  // of a kernel, not noticed yet
    cudaError_t sticky = cudaSuccess;   // noticed; stays
    // the modelled clock: what was launched is added when somebody looks at it
    double clock_s = 0;
    u64 timed_launches = 0, timed_operations = 0;
    bool program = false;   // a whole program: launches are forgotten once they have been timed
    bool timing = false;    // an event was recorded
    int journal = -1;       // where findings are written as soon as they are made
    u64 journalled = 0;
};

Runtime& runtime();

// The error that cudaGetLastError gives; every host thread has its own.
extern thread_local cudaError_t last_error;

inline cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

// A call that this runtime does not have: a finding, because a program may not look at the error.
cudaError_t unsupported(const std::string& what);
// Error of an earlier kernel, now noticed.
cudaError_t settled();
void write_journal();

using Guard = std::lock_guard<std::recursive_mutex>;
#define ENTER                                \
    Guard guard(runtime().lock);             \
    if (cudaError_t failed = settled()) return fail(failed)
#define REQUIRE(condition, error) \
    if (!(condition)) return fail(error)

extern "C" char __cudaInitModule(void** handle);
KernelInfo* kernel_of(Registered* r);
u32 resident_blocks(Registered* r, u32 threads, u64 shared);
Registered* registered(const void* function);

struct LaunchShape { dim3 grid, block; size_t shared; bool cooperative = false; };
cudaError_t launch(Registered* r, const LaunchShape& shape, void** args);
// A launch in a stream: now, or later when the stream is captured (the arguments are copied then).
cudaError_t launch_in(cudaStream_t stream, Registered* r, const LaunchShape& shape, void** args);

// Something beside launches that takes time.
void note_operation(const char* kind, u64 bytes);

// Work in a stream: done now, or recorded while the stream is captured.
cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, const std::function<cudaError_t()>& work);
// Every piece of work in a stream begins with this; refused after the wrapper has returned.
cudaError_t begin_work(cudaStream_t stream, const std::string& what, const std::string& kernel = "");
// Buffers that hold what work has stored which a stream's next work does not wait for; after it, those that it has read.
std::vector<Allocation*> unordered_buffers(cudaStream_t stream);
void see_what_was_read(const std::vector<Allocation*>& unordered, const std::string& kernel);
// The host or the default stream waits.
void wait_for(const Order& order);
void wait_for_stream(cudaStream_t stream);
// An event comes after the work of the stream it is recorded in; a stream's next work comes after an event.
void put_in_order(Event* event, cudaStream_t recorded_in);
void put_in_order(cudaStream_t stream, const Event* event);
// What a query says; a yes counts as waiting.
bool ready(const Order& order, bool& asked);
bool ready(cudaStream_t stream);
bool known_stream(cudaStream_t stream);
bool capturing(cudaStream_t stream);
bool known_event(cudaEvent_t event);
// Adds what was done since the last look to the modelled clock.
double clock_now();
void forget_launches();

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind);
cudaError_t fill(void* pointer, int value, size_t bytes);
cudaError_t copy_volume(const cudaMemcpy3DParms& p);
cudaError_t fill_rows(void* pointer, size_t pitch, int value, size_t width, size_t height);
void forget_buffers();
u64 variable_address(ModuleVariable& v);
