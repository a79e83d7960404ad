// What waits for what: work in a stream that does not block the default one must be waited for before a wrapper returns.
//
// Work is done when it is submitted, so a wait that is missing changes no result here; on a GPU the caller would read what
// is not there yet. Who waits is the host or the default stream: by cudaStreamSynchronize, cudaDeviceSynchronize,
// cudaEventSynchronize, a query that said so, or cudaStreamWaitEvent, also by way of other streams. Blocking streams are
// ordered with the default stream. cudaMemcpy does not wait for the others; cudaFree does on a GPU, but PyTorch's
// allocator, which stands behind a wrapper's tensors, does not call it, so it is no wait here.
//
// Not covered: work in such a stream that does not wait for what the default stream did before it, and waits by other
// means, such as a host function that sets a flag.
#include <algorithm>
#include <set>

#include "cudart.h"
#include "host_memory.h"

namespace {

Stream* side_stream(cudaStream_t stream) {
    auto* s = (u64)stream > 2 && known_stream(stream) ? (Stream*)stream : nullptr;
    return s && s->flags & cudaStreamNonBlocking ? s : nullptr;
}

bool covers(const Order& order, const SideWork& work) {
    auto it = order.find(work.stream);
    return it != order.end() && it->second >= work.number;
}

}  // namespace

cudaError_t begin_work(cudaStream_t stream, const std::string& what, const std::string& kernel) {
    Runtime& r = runtime();
    if (r.returned) {
        report("unordered", "work that begins after the wrapper returned: " + what, kernel);
        return fail(cudaErrorNotPermitted);
    }
    if (r.waited && !r.program) note_operation("synchronize", 0);
    r.waited = false;
    Stream* s = side_stream(stream);
    if (!s || r.program) return cudaSuccess;
    r.side_work.push_back({s->id, ++r.works, what, kernel});
    s->order[s->id] = r.works, s->asked = false;
    return cudaSuccess;
}

void wait_for(const Order& order) {
    auto& all = runtime().side_work;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const SideWork& w) { return covers(order, w); }), all.end());
}

void wait_for_stream(cudaStream_t stream) {
    if (Stream* s = side_stream(stream)) wait_for(s->order);
}

void put_in_order(Event* event, cudaStream_t recorded_in) {
    Stream* s = side_stream(recorded_in);
    event->order = s ? s->order : Order{}, event->asked = false;
}

void put_in_order(cudaStream_t stream, const Event* event) {
    Stream* s = side_stream(stream);
    if (!s) return wait_for(event->order);
    for (auto [other, number] : event->order) s->order[other] = std::max(s->order[other], number);
}

// Whoever asks only once does not wait, so the first answer is no.
bool ready(const Order& order, bool& asked) {
    const auto& all = runtime().side_work;
    bool open = std::any_of(all.begin(), all.end(), [&](const SideWork& w) { return covers(order, w); });
    if (open && !asked) return !(asked = true);
    wait_for(order);
    return true;
}

bool ready(cudaStream_t stream) {
    Stream* s = side_stream(stream);
    return !s || ready(s->order, s->asked);
}

// The wrapper has returned: what nothing waits for is a finding, and what host code still asks for is refused.
extern "C" void vgc_end() {
    Guard guard(runtime().lock);
    std::set<u64> told;
    for (const SideWork& work : runtime().side_work)
        if (told.insert(work.stream).second)
            report("unordered", "work on a stream that nothing waits for: " + work.what, work.kernel);
    runtime().side_work.clear();
    // what the host wrote last may be a result
    if (u64 bytes = runtime().program ? 0 : begin_device_work()) note_operation("host-to-device", bytes);
    runtime().returned = true;
}
