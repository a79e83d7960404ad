// The host process: loads a candidate's library and calls its wrappers. It has neither the virtual GPU's code nor its
// memory: calls of the CUDA runtime go to the worker, which started it, over the descriptor that it inherited.
//
// Before the candidate is loaded it gives up files, network, processes and privileges for good.
#include <dlfcn.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>

#include "channel.h"

using namespace wire;

namespace {

// As in cupilot/parameters.h and abi.py.
struct Value {
    int32_t kind, dtype;
    int64_t ndim, sizes[8], strides[8];
    const void* data;
    int64_t i;
    double d;
    const char* s;
};
static_assert(sizeof(Value) == 176);
constexpr int32_t STRING = 5, LIST = 6;
constexpr int MOST_RESULTS = 32;
constexpr size_t ERROR_BYTES = 4096;

struct Library {
    const char* (*entries)();
    int (*call)(const char*, const Value*, int, Value*, int, int*, char*, size_t);
    void (*release)();
};
std::vector<Library>& libraries() {
    static auto* all = new std::vector<Library>;
    return *all;
}

// --- confinement ----------------------------------------------------------------------------------

constexpr rlim_t OPEN_FILES = 64, FILE_BYTES = 64 << 20;

bool limit(int resource, rlim_t value) {
    rlimit both{value, value};
    return !setrlimit(resource, &both);
}

// In a namespace of its own: as root at once, for others in a user namespace, where nobody has a name.
bool leave_network() { return !unshare(CLONE_NEWNET | CLONE_NEWIPC) || !unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC); }

bool drop_capabilities() {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    return !syscall(SYS_capset, &head, none);
}

bool filter_calls(const std::string& code) {
    sock_fprog program{(unsigned short)(code.size() / sizeof(sock_filter)), (sock_filter*)code.data()};
    return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

// Gives the bits of what has worked; the worker decides what it insists on.
u32 confine(const std::string& filter, int rules) {
    u32 done = 0;
    auto note = [&, bit = 0](bool worked) mutable { done |= (u32)worked << bit++; };
    note(!prctl(PR_SET_PDEATHSIG, SIGKILL));
    note(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    // not 0: to a program that collects cores, Linux then still hands all of the memory
    note(limit(RLIMIT_CORE, 1) && limit(RLIMIT_NOFILE, OPEN_FILES) && limit(RLIMIT_FSIZE, FILE_BYTES));
    note(leave_network());
    note(rules >= 0 && !syscall(446, rules, 0));  // landlock_restrict_self
    if (rules >= 0) close(rules);
    note(drop_capabilities());
    note(!filter.empty() && filter_calls(filter));
    return done;
}

// --- accesses that fail ---------------------------------------------------------------------------

// Only what may be called in a signal handler. The instruction runs again, and ends the process.
void on_fault(int number, siginfo_t* info, void*) {
    signal(number, SIG_DFL);
    const u64 address = (u64)info->si_addr;
    if (address < DEVICE_MEMORY || address >= DEVICE_END) return;
    char text[] = "host code accessed device memory at 0x0000000000000000\n";
    char* digit = text + sizeof text - 3;
    for (u64 left = address; left; left /= 16) *digit-- = "0123456789abcdef"[left % 16];
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
    channel::tell_fault(address);
}

void handle_faults() {
    static char stack[1 << 16];
    stack_t other{stack, 0, sizeof stack};
    sigaltstack(&other, nullptr);
    struct sigaction ours{};
    ours.sa_sigaction = on_fault, ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, nullptr);
}

// --- commands -------------------------------------------------------------------------------------

template <class F>
bool find(void* library, const char* name, F& function) {
    return (function = (F)dlsym(library, name)) != nullptr;
}

// An empty text, or why a library cannot be loaded.
std::string load(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return dlerror();
    Library found;
    if (!find(library, "cupilot_entries", found.entries) || !find(library, "cupilot_call", found.call) ||
        !find(library, "cupilot_release", found.release))
        return path + ": undefined symbol: cupilot_call";
    libraries().push_back(found);
    return "";
}

// Values with what they refer to; `kept` holds lists and texts during a call.
struct Kept { std::deque<std::vector<Value>> lists; std::deque<std::string> texts; };

Value take_value(Reader& in, Kept& kept) {
    auto value = in.take<Value>();
    if (value.kind == STRING) {
        const char* text = in.bytes((size_t)value.i);
        kept.texts.emplace_back(text, (size_t)value.i);
        value.s = kept.texts.back().c_str();
    } else if (value.kind == LIST) {
        std::vector<Value> items;
        for (int64_t i = 0; i < value.i; i++) items.push_back(take_value(in, kept));
        kept.lists.push_back(items);
        value.data = kept.lists.back().data();
    }
    return value;
}

void call(const Library& library, Reader& in, Writer& out) {
    std::string name = in.text();
    Kept kept;
    std::vector<Value> values;
    for (u32 count = in.take<u32>(); count; count--) values.push_back(take_value(in, kept));
    Value results[MOST_RESULTS] = {};
    int count = 0;
    char error[ERROR_BYTES] = "";
    int status = library.call(name.c_str(), values.data(), (int)values.size(), results, MOST_RESULTS, &count, error,
                              sizeof error);
    fflush(stdout);
    out.put(status), out.put(count);
    out.bytes(results, sizeof(Value) * (size_t)(count > 0 && count <= MOST_RESULTS ? count : 0));
    out.text(error);
}

void serve(const Head& head, Reader& in, Writer& out, int rules) {
    if (head.message == CONFINE) return out.put(confine(std::string(in.at, in.left), rules));
    if (head.message == LOAD) {
        std::string problem = load(std::string(in.at, in.left));
        fflush(stdout);
        return out.text(problem);
    }
    const Library& library = libraries().at(head.number);
    if (head.message == ENTRIES) return out.text(library.entries());
    if (head.message == CALL) return call(library, in, out);
    library.release();
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    int connection = atoi(words[1]), memory = atoi(words[2]), rules = atoi(words[3]);
    void* shared = mmap((void*)SHARED_MEMORY, SHARED_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory, 0);
    if (shared != (void*)SHARED_MEMORY) return 3;
    close(memory);
    channel::open(connection);
    handle_faults();
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (std::string data;;) {
        Head head = channel::next_command(data);
        Reader in(data.data(), data.size());
        Writer out;
        serve(head, in, out, rules);
        channel::done(out);
    }
}
