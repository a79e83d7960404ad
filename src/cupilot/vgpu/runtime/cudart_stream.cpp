// Streams, events, host functions and the modelled clock.
//
// Work is done when it is submitted, so there is nothing to wait for; that it was waited for is kept (cudart_order.cpp).
// The time between two events is the modelled time of the launches, fills and copies between them, in whatever stream.
#include <cstdio>

#include "cudart.h"
#include "host_side.h"
#include "print.h"

namespace {

constexpr int LOWEST_PRIORITY = 0, HIGHEST_PRIORITY = -5;
constexpr u64 KEPT_LAUNCHES = 256;

Stream* own(cudaStream_t stream) { return (u64)stream > 2 ? (Stream*)stream : nullptr; }

cudaError_t synchronize() {
    Guard guard(runtime().lock);
    runtime().waited = !engine().launches.empty() || !engine().operations.empty();
    flush_prints();
    return fail(settled());
}

}  // namespace

bool known_stream(cudaStream_t stream) { return (u64)stream <= 2 || runtime().streams.count((Stream*)stream); }
bool known_event(cudaEvent_t event) { return runtime().events.count((Event*)event); }
bool capturing(cudaStream_t stream) { return own(stream) && known_stream(stream) && own(stream)->capture; }

double clock_now() {
    Runtime& r = runtime();
    Engine& e = engine();
    u64 launches = e.launches.size(), operations = e.operations.size();
    if (r.elapsed && (launches > r.timed_launches || operations > r.timed_operations))
        r.clock_s += r.elapsed(r.timed_launches, launches, r.timed_operations, operations);
    r.timed_launches = launches, r.timed_operations = operations;
    return r.clock_s;
}

// A program may launch any number of kernels: what is known of each is dropped once it is not needed.
void forget_launches() {
    Engine& e = engine();
    if (runtime().timing) {
        if (e.launches.size() < KEPT_LAUNCHES) return;
        clock_now();
    }
    for (LaunchState* l : e.launches) delete l;
    e.launches.clear(), e.operations.clear();
    runtime().timed_launches = runtime().timed_operations = 0;
}

extern "C" {

cudaError_t cudaDeviceSynchronize() {
    Guard guard(runtime().lock);
    runtime().side_work.clear();
    return synchronize();
}

// --- streams ----------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    ENTER;
    REQUIRE(stream && flags <= cudaStreamNonBlocking, cudaErrorInvalidValue);
    auto* s = new Stream;
    s->flags = flags, s->priority = std::max(HIGHEST_PRIORITY, std::min(LOWEST_PRIORITY, priority));
    s->id = ++runtime().stream_ids;
    runtime().streams.insert(s);
    *stream = (cudaStream_t)s;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, LOWEST_PRIORITY);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER;
    REQUIRE(own(stream) && known_stream(stream), cudaErrorInvalidResourceHandle);
    runtime().streams.erase((Stream*)stream);
    delete (Stream*)stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Guard guard(runtime().lock);
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    REQUIRE(!capturing(stream), cudaErrorStreamCaptureUnsupported);
    wait_for_stream(stream);
    return synchronize();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Guard guard(runtime().lock);
    return ready(stream) ? cudaStreamSynchronize(stream) : cudaErrorNotReady;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
    ENTER;
    REQUIRE(flags && known_stream(stream), cudaErrorInvalidResourceHandle);
    *flags = own(stream) ? own(stream)->flags : 0;
    return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    ENTER;
    REQUIRE(priority && known_stream(stream), cudaErrorInvalidResourceHandle);
    *priority = own(stream) ? own(stream)->priority : 0;
    return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
    ENTER;
    REQUIRE(id && known_stream(stream), cudaErrorInvalidResourceHandle);
    *id = own(stream) ? own(stream)->id : (u64)stream;
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
    ENTER;
    REQUIRE(device && known_stream(stream), cudaErrorInvalidResourceHandle);
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = LOWEST_PRIORITY;
    if (greatest) *greatest = HIGHEST_PRIORITY;
    return cudaSuccess;
}
// They advise on caching and priority only: kept for whoever asks.
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID id, const cudaLaunchAttributeValue* value) {
    ENTER;
    REQUIRE(value && known_stream(stream), cudaErrorInvalidValue);
    (own(stream) ? own(stream) : &runtime().first)->attributes[id] = *value;
    return cudaSuccess;
}
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaLaunchAttributeID id, cudaLaunchAttributeValue* value) {
    ENTER;
    REQUIRE(value && known_stream(stream), cudaErrorInvalidValue);
    *value = (own(stream) ? own(stream) : &runtime().first)->attributes[id];
    return cudaSuccess;
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
    ENTER;
    REQUIRE(known_stream(to) && known_stream(from), cudaErrorInvalidValue);
    (own(to) ? own(to) : &runtime().first)->attributes = (own(from) ? own(from) : &runtime().first)->attributes;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    ENTER;
    REQUIRE(known_stream(stream) && known_event(event), cudaErrorInvalidResourceHandle);
    auto* e = (Event*)event;
    Stream* s = own(stream);
    if (e->capture) {  // the stream joins the capture that the event is from
        REQUIRE(s, cudaErrorStreamCaptureImplicit);
        REQUIRE(!s->capture || s->capture == e->capture, cudaErrorStreamCaptureMerge);
        s->capture = e->capture;
        s->tail.insert(s->tail.end(), e->tail.begin(), e->tail.end());
    } else {
        put_in_order(stream, e);
    }
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    ENTER;
    REQUIRE(function, cudaErrorInvalidValue);
    return submit(stream, cudaGraphNodeTypeHost, [=] {
        flush_prints();
        note_operation("host-function", 0);
        run_on_host(function, data);
        return cudaSuccess;
    });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags) {
    Guard guard(runtime().lock);
    REQUIRE(function && !flags && known_stream(stream), cudaErrorInvalidValue);
    REQUIRE(!capturing(stream), cudaErrorStreamCaptureUnsupported);
    if (cudaError_t error = begin_work(stream, "a callback")) return error;
    flush_prints();
    note_operation("host-function", 0);
    if (HostSide* apart = host_apart())
        apart->run(function, stream, settled(), data);
    else
        function(stream, settled(), data);
    return cudaSuccess;
}

// --- events -----------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    ENTER;
    REQUIRE(event && flags < 8, cudaErrorInvalidValue);
    auto* e = new Event;
    e->flags = flags;
    runtime().events.insert(e);
    *event = (cudaEvent_t)e;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    ENTER;
    REQUIRE(known_event(event) && known_stream(stream), cudaErrorInvalidResourceHandle);
    auto* e = (Event*)event;
    if (capturing(stream)) {
        e->capture = own(stream)->capture, e->tail = own(stream)->tail;
        return cudaSuccess;
    }
    e->capture = nullptr, e->tail.clear(), e->recorded = true;
    put_in_order(e, stream);
    if (e->flags & cudaEventDisableTiming) return cudaSuccess;
    // what came before the first event takes no time that anybody can ask for
    if (!runtime().timing) runtime().timed_launches = engine().launches.size();
    if (!runtime().timing) runtime().timed_operations = engine().operations.size();
    runtime().timing = true;
    e->time_s = clock_now();
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream,
                            0); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Guard guard(runtime().lock);
    REQUIRE(known_event(event), cudaErrorInvalidResourceHandle);
    REQUIRE(!((Event*)event)->capture, cudaErrorCapturedEvent);
    wait_for(((Event*)event)->order);
    return synchronize();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    Guard guard(runtime().lock);
    REQUIRE(known_event(event), cudaErrorInvalidResourceHandle);
    return ready(((Event*)event)->order, ((Event*)event)->asked) ? cudaEventSynchronize(event) : cudaErrorNotReady;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER;
    REQUIRE(known_event(event), cudaErrorInvalidResourceHandle);
    runtime().events.erase((Event*)event);
    delete (Event*)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    ENTER;
    REQUIRE(ms, cudaErrorInvalidValue);
    for (cudaEvent_t event : {start, end}) {
        REQUIRE(known_event(event), cudaErrorInvalidResourceHandle);
        auto* e = (Event*)event;
        REQUIRE(!e->capture, cudaErrorCapturedEvent);
        REQUIRE(e->recorded && !(e->flags & cudaEventDisableTiming), cudaErrorInvalidResourceHandle);
    }
    *ms = (float)(1e3 * (((Event*)end)->time_s - ((Event*)start)->time_s));
    return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
