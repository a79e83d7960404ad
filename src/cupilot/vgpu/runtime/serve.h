// The connection to a process with host code, and how its requests are carried out.
#pragma once

#include <fcntl.h>

#include <map>
#include <set>
#include <utility>

#include "cudart_graph.h"
#include "host_side.h"
#include "wire.h"

// Why nothing more comes from the other process. Thrown through the runtime, which only has to give up its locks.
struct HostGone {
    enum How { TIME_OUT = 1, CLOSED = 2, MALFORMED = 3 } how;
    std::string why;
};

class Connection final : public HostSide {
  public:
    Connection(int descriptor, int process);

    // Have a command carried out, and the requests that come meanwhile; the result is `reply`.
    void command(wire::Message message, u32 number, const void* data, u64 bytes, double seconds);
    std::string reply, problem;
    u64 fault() const { return fault_; }
    double take_seconds() { return std::exchange(seconds_, 0); }

    void read(void* to, u64 address, u64 bytes) override;
    void write(u64 address, const void* from, u64 bytes) override;
    void run(cudaHostFn_t function, void* data) override;
    void run(cudaStreamCallback_t function, cudaStream_t stream, cudaError_t error, void* data) override;
    bool mirror(u64 address, u64 bytes) override;
    void forget(u64 address) override;
    void** arguments(void** given) override;

    [[noreturn]] void malformed(const std::string& why);
    // While one of these lives, `arguments` are those of a request.
    struct WithArguments {
        Connection& c;
        WithArguments(Connection& connection, std::vector<void*> pointers) : c(connection) {
            c.arguments_ = std::move(pointers);
        }
        ~WithArguments() { c.arguments_.clear(); }
    };

  private:
    void wait(short events);
    void send_all(const void* data, u64 bytes);
    void receive_all(void* data, u64 bytes);
    void say(wire::Message message, u32 number, const void* data, u64 bytes);
    wire::Head next_head();
    void serve_until(wire::Message wanted, u64 most, std::string& data);
    void answer(u32 number, const std::string& content);
    void run(wire::Message message, const wire::Writer& call);
    void pull();
    void push();
    void resumed();
    void paused();

    int descriptor_;
    clockid_t clock_{};
    bool measured_ = false;
    double deadline_s_ = 0, since_s_ = -1, seconds_ = 0;
    u64 fault_ = 0;
    u32 depth_ = 0;
    std::vector<void*> arguments_;
    std::map<u64, u64> mirrored_;  // bytes by address
    std::set<u64> pages_;
};

// How one request is carried out: reads its arguments, makes the call, writes the answer.
struct Handler {
    const char* name;
    void (*make)(Connection&, wire::Reader&, wire::Writer&);
    bool touches_memory;  // of buffers, by kernels, copies and fills
};
const Handler* handler_of(u32 number);
const Handler* special_handler(u32 number);

// Handles of the runtime that the host code named: known, or an error.
cudaError_t check(cudaStream_t stream);
cudaError_t check(cudaEvent_t event);
cudaError_t check(cudaGraph_t graph);
cudaError_t check(cudaGraphNode_t node);
cudaError_t check(cudaGraphExec_t executable);
template <class T>
cudaError_t check(const T&) {
    return cudaSuccess;
}

// A kernel's arguments, as pointers to them; empty when they are not those that the kernel takes.
std::vector<void*> take_arguments(wire::Reader& in, const void* function);

// Memory that is to be mapped by two processes; called once.
bool share_host_memory(int memory);
