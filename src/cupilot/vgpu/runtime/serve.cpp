// Host code in another process: its calls of the CUDA runtime are read from a socket, checked and made here.
//
// Nothing that is read is trusted: sizes, numbers of calls, handles and addresses are checked before the runtime sees
// them. What is malformed ends the connection, and with it the candidate. Kernels, copies and fills check their addresses
// themselves, as they do for host code in this process.
#include "serve.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

using namespace wire;

namespace {

constexpr u64 PIECE = 16 << 20;

Connection* connection = nullptr;

double seconds_of(clockid_t clock) {
    timespec now{};
    return clock_gettime(clock, &now) ? -1 : (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

}  // namespace

HostSide* host_apart() { return connection; }

Connection::Connection(int descriptor, int process) : descriptor_(descriptor) {
    measured_ = !clock_getcpuclockid(process, &clock_);
}

// --- bytes ----------------------------------------------------------------------------------------

void Connection::wait(short events) {
    for (;;) {
        double left = deadline_s_ - steady_seconds();
        if (left <= 0) throw HostGone{HostGone::TIME_OUT, ""};
        pollfd one{descriptor_, events, 0};
        int ready = poll(&one, 1, (int)std::min(1e3 * left + 1, 1e6));
        if (ready > 0) return;
        if (ready < 0 && errno != EINTR) throw HostGone{HostGone::CLOSED, ""};
    }
}

void Connection::send_all(const void* data, u64 bytes) {
    auto* at = (const char*)data;
    while (bytes) {
        ssize_t sent = ::send(descriptor_, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent, bytes -= (u64)sent;
        } else if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            wait(POLLOUT);
        } else {
            throw HostGone{HostGone::CLOSED, ""};
        }
    }
}

void Connection::receive_all(void* data, u64 bytes) {
    auto* at = (char*)data;
    while (bytes) {
        ssize_t got = recv(descriptor_, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got, bytes -= (u64)got;
        } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            wait(POLLIN);
        } else {
            throw HostGone{HostGone::CLOSED, ""};
        }
    }
}

void Connection::say(Message message, u32 number, const void* data, u64 bytes) {
    Head head{message, number, bytes};
    std::string small((const char*)&head, sizeof head);
    if (bytes <= 4096) return small.append((const char*)data, bytes), send_all(small.data(), small.size());
    send_all(small.data(), small.size()), send_all(data, bytes);
}

[[noreturn]] void Connection::malformed(const std::string& why) { throw HostGone{HostGone::MALFORMED, why}; }

Head Connection::next_head() {
    for (;;) {
        Head head;
        receive_all(&head, sizeof head);
        if (head.message != FAULT) return head;
        if (head.bytes != 8) malformed("a report of a fault without an address");
        receive_all(&fault_, 8);
    }
}

// --- processor time -------------------------------------------------------------------------------

void Connection::resumed() { since_s_ = measured_ ? seconds_of(clock_) : -1; }

void Connection::paused() {
    if (since_s_ < 0) return;
    double now_s = seconds_of(clock_);
    if (now_s > since_s_) seconds_ += now_s - since_s_;
    since_s_ = -1;
}

// --- commands and requests ------------------------------------------------------------------------

void Connection::command(Message message, u32 number, const void* data, u64 bytes, double seconds) {
    deadline_s_ = steady_seconds() + seconds;
    resumed();
    say(message, number, data, bytes);
    serve_until(DONE, MOST_REPLY, reply);
}

void Connection::serve_until(Message wanted, u64 most, std::string& data) {
    if (depth_ >= MOST_DEPTH) malformed("functions of the host that call each other");
    depth_++;
    for (;;) {
        Head head = next_head();
        paused();
        if (head.message != wanted && head.message != REQUEST) malformed("a message that nobody waits for");
        if (head.bytes > (head.message == REQUEST ? MOST_REQUEST : most)) malformed("a message that is too long");
        std::string content(head.bytes, '\0');
        receive_all(&content[0], content.size());
        if (head.message == wanted) {
            data.swap(content);
            depth_--;
            return;
        }
        answer(head.number, content);
    }
}

void Connection::answer(u32 number, const std::string& content) {
    Reader in(content.data(), content.size());
    Writer out;
    const Handler* handler = handler_of(number);
    if (!handler) malformed("an unknown request");
    if (handler->touches_memory) pull();
    handler->make(*this, in, out);
    if (!in.good) malformed(std::string("a request that is cut off: ") + handler->name);
    if (handler->touches_memory) push();
    resumed();
    say(ANSWER, 0, out.data.data(), out.data.size());
}

// --- the host code's memory and functions -----------------------------------------------------------

void Connection::read(void* to, u64 address, u64 bytes) {
    for (u64 at = 0; at < bytes; at += PIECE) {
        const u64 wish[2] = {address + at, std::min(PIECE, bytes - at)};
        say(READ, 0, wish, sizeof wish);
        Head head = next_head();
        if (head.message != DATA || head.bytes != wish[1]) malformed("memory that nobody asked for");
        receive_all((char*)to + at, wish[1]);
    }
}

void Connection::write(u64 address, const void* from, u64 bytes) {
    Head head{WRITE, 0, sizeof address + bytes};
    send_all(&head, sizeof head), send_all(&address, sizeof address), send_all(from, bytes);
}

void Connection::run(Message message, const Writer& call) {
    push();
    resumed();
    say(message, 0, call.data.data(), call.data.size());
    std::string nothing;
    serve_until(RAN, 0, nothing);
    pull();
}

void Connection::run(cudaHostFn_t function, void* data) {
    Writer call;
    call.put(function), call.put(data);
    run(RUN, call);
}

void Connection::run(cudaStreamCallback_t function, cudaStream_t stream, cudaError_t error, void* data) {
    Writer call;
    call.put(function), call.put(stream), call.put(error), call.put(data);
    run(RUN_CALLBACK, call);
}

void** Connection::arguments(void** given) { return arguments_.empty() ? given : arguments_.data(); }

// --- memory that the host code brought --------------------------------------------------------------

// It is copied here before each call that may touch it, and back afterwards; host code waits meanwhile.
bool Connection::mirror(u64 address, u64 bytes) {
    constexpr u64 MOST = 1ull << 36;
    if (bytes > MOST || address + bytes < address || address + bytes > DEVICE_END * 2) return false;
    for (u64 page = address / PAGE; page <= (address + bytes - 1) / PAGE; page++) {
        if (pages_.count(page)) continue;
        void* p = mmap((void*)(page * PAGE), PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != (void*)(page * PAGE)) return p != MAP_FAILED && munmap(p, PAGE), false;
        pages_.insert(page);
    }
    mirrored_[address] = bytes;
    read((void*)address, address, bytes);
    return true;
}

// Its pages stay: others may share them.
void Connection::forget(u64 address) { mirrored_.erase(address); }

void Connection::pull() {
    for (auto [address, bytes] : mirrored_) read((void*)address, address, bytes);
}

void Connection::push() {
    for (auto [address, bytes] : mirrored_) write(address, (const void*)address, bytes);
}

// --- for the worker (vgpu/host.py) --------------------------------------------------------------------

extern "C" {

// Memory for both processes; -1 when there is none. Call it before anything is allocated.
int vgc_share_memory() {
    int memory = memfd_create("cupilot", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (memory < 0) return -1;
    // the other process must not take away what this one has mapped
    bool sealed = !ftruncate(memory, (off_t)SHARED_BYTES) &&
                  !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (sealed && share_host_memory(memory)) return memory;
    close(memory);
    return -1;
}

void vgc_host(int descriptor, int process) { connection = new Connection(descriptor, process); }

// 0, or how the connection ended: 1 by a time-out, 2 because it was closed, 3 by a message that makes no sense.
int vgc_host_command(u32 message, u32 number, const void* data, u64 bytes, double seconds) {
    try {
        connection->command((Message)message, number, data, bytes, seconds);
        return 0;
    } catch (const HostGone& gone) {
        connection->problem = gone.why;
        return gone.how;
    } catch (const std::exception& error) {  // such as no memory for what was asked
        connection->problem = error.what();
        return HostGone::MALFORMED;
    }
}

u64 vgc_host_reply(const void** data) {
    *data = connection->reply.data();
    return connection->reply.size();
}
const char* vgc_host_problem() { return connection->problem.c_str(); }
// The address of device memory that host code touched before it ended, or 0.
u64 vgc_host_fault() { return connection->fault(); }
// Processor time of host code outside of calls, since the last time it was asked for.
double vgc_host_seconds() { return connection ? connection->take_seconds() : 0; }

// Whether bytes lie in one buffer that is not freed.
int vgc_holds(u64 address, u64 bytes) {
    Allocation* a = find_allocation(address);
    return a && !a->freed && bytes <= a->bytes && address - a->base <= a->bytes - bytes;
}

}  // extern "C"
