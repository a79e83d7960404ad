// Messages between this process and the worker. When the connection is gone, there is nothing left to do here.
#include "channel.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

namespace channel {

namespace {

int descriptor = -1;

void send_all(const void* data, size_t bytes) {
    auto* at = (const char*)data;
    while (bytes) {
        ssize_t sent = send(descriptor, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        // memory that is not there is an access like any other
        if (sent < 0 && errno == EFAULT) (void)*(volatile const char*)at, raise(SIGSEGV);
        if (sent <= 0) _exit(1);
        at += sent, bytes -= (size_t)sent;
    }
}

void receive_all(void* data, size_t bytes) {
    auto* at = (char*)data;
    while (bytes) {
        ssize_t got = recv(descriptor, at, bytes, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EFAULT) *(volatile char*)at = 0, raise(SIGSEGV);
        if (got <= 0) _exit(1);
        at += got, bytes -= (size_t)got;
    }
}

void say(Message message, u32 number, const void* data, size_t bytes) {
    Head head{message, number, bytes};
    send_all(&head, sizeof head);
    send_all(data, bytes);
}

// Memory of this process for the worker, or from it.
void give(Reader& in) {
    u64 address = in.take<u64>(), bytes = in.take<u64>();
    say(DATA, 0, (const void*)address, bytes);
}

void run(Reader& in) {
    auto function = in.take<cudaHostFn_t>();
    auto* data = in.take<void*>();
    function(data);
    say(RAN, 0, nullptr, 0);
}

void run_callback(Reader& in) {
    auto function = in.take<cudaStreamCallback_t>();
    auto stream = in.take<cudaStream_t>();
    auto error = in.take<cudaError_t>();
    auto* data = in.take<void*>();
    function(stream, error, data);
    say(RAN, 0, nullptr, 0);
}

// The next message that is not about memory or functions of this process.
Head next(std::string& data) {
    for (;;) {
        Head head;
        receive_all(&head, sizeof head);
        if (head.message == WRITE) {  // straight to its place: where and then what
            u64 address;
            receive_all(&address, sizeof address);
            receive_all((void*)address, head.bytes - sizeof address);
            continue;
        }
        data.resize(head.bytes);
        receive_all(&data[0], head.bytes);
        Reader in(data.data(), data.size());
        if (head.message == READ)
            give(in);
        else if (head.message == RUN)
            run(in);
        else if (head.message == RUN_CALLBACK)
            run_callback(in);
        else
            return head;
    }
}

}  // namespace

void open(int number) { descriptor = number; }

std::string request(u32 number, const Writer& arguments) {
    say(REQUEST, number, arguments.data.data(), arguments.data.size());
    std::string answer;
    next(answer);
    return answer;
}

cudaError_t ask(u32 number, const Writer& arguments) {
    std::string answer = request(number, arguments);
    return Reader(answer.data(), answer.size()).take<cudaError_t>();
}

Head next_command(std::string& data) { return next(data); }

void done(const Writer& result) { say(DONE, 0, result.data.data(), result.data.size()); }

void tell_fault(u64 address) {
    struct { Head head; u64 address; } message{{FAULT, 0, sizeof address}, address};
    if (send(descriptor, &message, sizeof message, MSG_NOSIGNAL) < 0) return;
}

}  // namespace channel
