// What waits for what: work in a stream that does not block the default one must be waited for before a wrapper returns.
//
// Work is done when it is submitted, so a wait that is missing changes no result here; on a GPU the caller would read what
// is not there yet. Who waits is the host or the default stream: by cudaStreamSynchronize, cudaDeviceSynchronize,
// cudaEventSynchronize, a query that said so, or cudaStreamWaitEvent, also by way of other streams. Blocking streams are
// ordered with the default stream. cudaMemcpy does not wait for the others; cudaFree does on a GPU, but PyTorch's
// allocator, which stands behind a wrapper's tensors, does not call it, so it is no wait here.
//
// The other way round, work that reads what a kernel in another stream stored must wait for it.
//
// Not covered: work that does not wait for fills and copies in another stream, or for what reads what it overwrites; streams
// that block against each other; and waits by other means, such as a host function that sets a flag.
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
    if (r.waited) r.seen_work = r.main_work;
    r.waited = false;
    Stream* s = side_stream(stream);
    if (!s) r.main_work = ++r.works;
    if (!s || r.program) return cudaSuccess;
    r.side_work.push_back({s->id, ++r.works, what, kernel});
    s->order[s->id] = r.works, s->asked = false;
    return cudaSuccess;
}

std::vector<Allocation*> unordered_buffers(cudaStream_t stream) {
    Runtime& r = runtime();
    std::vector<Allocation*> found;
    if (r.program) return found;
    Stream* s = side_stream(stream);
    const u64 id = s ? s->id : 0;
    auto is_open = [&](u64 other, u64 number) {
        auto at = s ? s->order.find(other) : Order::iterator{};
        if (other == id || (s && at != s->order.end() && at->second >= number)) return false;
        if (!other) return number > r.seen_work;
        return std::any_of(r.side_work.begin(), r.side_work.end(), [&](const SideWork& w) { return w.stream == other && w.number == number; });
    };
    for (Allocation* a : engine().by_index) {
        auto by = r.launched_by.find(a->store_launch);
        if (by != r.launched_by.end() && is_open(by->second.first, by->second.second)) found.push_back(a);
    }
    r.launched_by[engine().launch_count + 1] = {id, s ? s->order[id] : r.main_work};
    return found;
}

void see_what_was_read(const std::vector<Allocation*>& unordered, const std::string& kernel) {
    if (unordered.empty() || engine().launches.empty()) return;
    const auto& all = engine().by_index;
    const auto& traffic = engine().launches.back()->traffic;
    for (size_t i = 0; i < std::min(all.size(), traffic.size()); i++)
        if (traffic[i].l2_read && std::count(unordered.begin(), unordered.end(), all[i]))
            return report("unordered", "a kernel reads what a kernel in another stream stores, and does not wait for it", kernel);
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
    event->order = s ? s->order : Order{{0, runtime().main_work}}, event->asked = false;
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
    runtime().side_work.clear(), runtime().launched_by.clear();
    // what the host wrote last may be a result
    if (u64 bytes = runtime().program ? 0 : begin_device_work()) note_operation("host-to-device", bytes);
    runtime().returned = true;
}
