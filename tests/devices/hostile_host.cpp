// Host code that the guard on imports would never let through: what it tries must fail in the process itself.
//
// Every entry ends by an error whose text tells what happened.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct Value {
    int32_t kind, dtype;
    int64_t ndim, sizes[8], strides[8];
    void* data;
    int64_t i;
    double d;
    const char* s;
};
struct Head { uint32_t message, number; uint64_t bytes; };
enum { DONE = 64, REQUEST, DATA, RAN };

static int connection() {  // whichever descriptor is a socket
    for (int number = 3; number < 64; number++) {
        int type;
        socklen_t size = sizeof type;
        if (send(number, "", 0, MSG_NOSIGNAL) >= 0 && getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) != 12345)
            return number;
    }
    return -1;
}

static void say(uint32_t message, uint32_t number, uint64_t claimed, const std::string& data) {
    Head head{message, number, claimed};
    std::string all((const char*)&head, sizeof head);
    all += data;
    if (send(connection(), all.data(), all.size(), MSG_NOSIGNAL) < 0) _exit(9);
}

static std::string tried(const char* what, long result) {
    return std::string(what) + (result < 0 ? ": " + std::string(strerror(errno)) : ": done") + "\n";
}

// The symbols of everything that is loaded, found as the loader finds them.
static std::string engine_symbols() {
    std::string found;
    for (const char* name : {"vgc_begin", "vgc_settings", "_Z6enginev", "_Z7runtimev", "vg_load"})
        if (dlsym(RTLD_DEFAULT, name)) found += std::string(name) + " ";
    auto look = [](dl_phdr_info* info, size_t, void* out) {
        if (strstr(info->dlpi_name, "cudart")) *(std::string*)out += info->dlpi_name;
        return 0;
    };
    dl_iterate_phdr(look, &found);
    return "engine: [" + found + "]";
}

static std::string reach_out(int parent) {
    std::string out;
    char byte = 1;
    iovec here{&byte, 1}, there{(void*)0x400000, 1};
    out += tried("ptrace", ptrace(PTRACE_ATTACH, parent, nullptr, nullptr));
    out += tried("process_vm_writev", process_vm_writev(parent, &here, 1, &there, 1, 0));
    out += tried("process_vm_readv", process_vm_readv(parent, &here, 1, &there, 1, 0));
    out += tried("kill", kill(parent, 0));
    out += tried("memory", open(("/proc/" + std::to_string(parent) + "/mem").c_str(), O_RDWR));
    out += tried("maps", open("/proc/self/maps", O_RDONLY));
    out += tried("passwd", open("/etc/passwd", O_RDONLY));
    out += tried("make a file", open("/tmp/made-by-a-candidate", O_CREAT | O_WRONLY, 0600));
    out += tried("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    out += tried("fork", syscall(SYS_fork));
    out += tried("clone", syscall(SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, nullptr, nullptr, nullptr, 0));
    out += tried("exec", execl("/bin/true", "true", nullptr));
    out += tried("memfd", syscall(SYS_memfd_create, "more", 0));
    return out;
}

// --- garbage in calls ---------------------------------------------------------------------------------

static sigjmp_buf again;
static volatile int made = 0;
// While memory is being sent nobody can leave; it shows by the error of the call that failed.
static void on_fault(int) {
    if (errno != EFAULT) siglongjmp(again, 1);
    fprintf(stderr, "made %d calls\n", made);
    _exit(42);
}

using Any = uint64_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static std::string fuzz(uint64_t seed, int rounds) {
    struct sigaction act{};
    act.sa_handler = on_fault, act.sa_flags = SA_NODEFER;
    for (int number : {SIGSEGV, SIGBUS}) sigaction(number, &act, nullptr);
    std::vector<Any> calls;
    // copies of our own memory soon end in an access that fails, and so does registering it
    auto ends_soon = [](const char* name) { return strstr(name, "Memcpy") || strstr(name, "HostRegister"); };
#define CALL(name) \
    for (int i = 0; i < (ends_soon(#name) ? 1 : 100); i++) calls.push_back((Any)dlsym(RTLD_DEFAULT, #name));
#define OPTIONAL CALL
#include "wire_calls.h"
    auto next = [&] { return seed = seed * 6364136223846793005ull + 1442695040888963407ull, seed >> 33; };
    static char room[1 << 16];
    uint64_t known[64] = {0, 1, 2, 7, 4096, ~0ull, 1ull << 21, (uint64_t)room, (uint64_t)room + 4096};
    size_t count = 9;
    void* p = nullptr;
    cudaMalloc(&p, 4096), known[count++] = (uint64_t)p;
    cudaMallocHost(&p, 4096), known[count++] = (uint64_t)p;
    cudaStream_t s;
    cudaStreamCreate(&s), known[count++] = (uint64_t)s;
    cudaEvent_t e;
    cudaEventCreate(&e), known[count++] = (uint64_t)e;
    cudaGraph_t g;
    cudaGraphCreate(&g, 0), known[count++] = (uint64_t)g;
    cudaGraphNode_t n;
    cudaGraphAddEmptyNode(&n, g, nullptr, 0), known[count++] = (uint64_t)n;
    cudaGraphExec_t x;
    cudaGraphInstantiate(&x, g, 0), known[count++] = (uint64_t)x;
    for (volatile int round = 0; round < rounds; round = round + 1) {
        if (sigsetjmp(again, 1)) continue;
        errno = 0;
        Any call = calls[next() % calls.size()];
        // functions that are not there would end the process, and a reset would take the worker's buffers as well
        if (!call || call == (Any)cudaStreamAddCallback || call == (Any)cudaLaunchHostFunc || call == (Any)cudaDeviceReset)
            continue;
        uint64_t a[6];
        // often somewhere in our memory, where there is what is known and what is not
        for (uint64_t& one : a) one = next() % 2 ? (uint64_t)room + next() % 4096 * 8 : known[next() % count];
        for (int i = 0; i < 64; i++) ((uint64_t*)room)[next() % 4096] = known[next() % count];
        call(a[0], a[1], a[2], a[3], a[4], a[5]);
        made = made + 1;
    }
    fprintf(stderr, "made %d calls\n", made);
    return "";
}

// --- entries --------------------------------------------------------------------------------------------

static int run_program(const Value* values, int count) {
    void* program = dlopen(values[0].s, RTLD_NOW | RTLD_LOCAL);
    if (!program) return fprintf(stderr, "%s\n", dlerror()), 99;
    auto start = (int (*)(int, char**))dlsym(program, "main");
    std::vector<char*> words;
    for (int i = 0; i < count; i++) words.push_back((char*)values[i].s);
    words.push_back(nullptr);
    return start(count, words.data());
}

static std::string act(const std::string& name, const Value* values, int count) {
    if (name == "program") return "status " + std::to_string(run_program(values, count));
    if (name == "symbols") return engine_symbols();
    if (name == "reach") return reach_out((int)values[0].i);
    if (name == "fuzz") return fuzz((uint64_t)values[0].i, 20000);
    if (name == "touch") *(volatile float*)values[0].data = 1;
    if (name == "segv") *(volatile int*)8 = 1;
    if (name == "abort") abort();
    if (name == "exit") exit(0);
    if (name == "_exit") _exit(3);
    if (name == "kill") raise(SIGKILL);
    if (name == "pthread_exit") pthread_exit(nullptr);
    if (name == "close")
        for (int number = 0; number < 256; number++) close(number);
    if (name == "close") for (;;) pause();
    if (name == "loop") for (volatile int i = 0; i >= 0; i = 0) {}
    if (name == "fork bomb") for (;;) syscall(SYS_fork);
    if (name == "recurse") return act(name, values, count) + act(name, values, count);
    if (name == "noise") say(0x41414141, 0x41414141, 0x4141414141414141, std::string(4096, 'A'));
    if (name == "unknown request") say(REQUEST, 777, 0, "");
    if (name == "too long") say(REQUEST, 0, 1ull << 40, "");
    if (name == "cut off") say(REQUEST, 0, 4, "1234");
    if (name == "no image") say(REQUEST, 1001, 20, std::string(20, '\7'));
    if (name == "data") say(DATA, 0, 4, "1234");
    if (name == "forged") say(DONE, 0, 12, std::string("\0\0\0\0\377\377\0\0\0\0\0\0", 12));
    if (name == "forged") for (;;) pause();
    if (name == "silent") { say(REQUEST, 0, 100, "1"); for (;;) pause(); }
    return "nothing happened";
}

// Results that are not in device memory, or not as large as they say.
static int results(const std::string& name, const Value* values, Value* out) {
    static float own[1000];
    *out = values[0];
    if (name == "own memory") out->data = own;
    if (name == "engine memory") out->data = (void*)(0x110000000000 + (300 << 20));  // behind the buffers
    if (name == "too large") out->sizes[0] = 1001;
    if (name == "far") out->strides[0] = 1ll << 60;
    if (name == "before") out->data = (char*)out->data - 4;
    if (name == "many dimensions") out->ndim = 1000;
    if (name == "strange type") out->dtype = 99;
    if (name == "negative") out->sizes[0] = -5;
    return 0;
}

extern "C" {
const char* cupilot_entries() { return "any\t(Tensor) -> Tensor\n"; }
void cupilot_release() {}
int cupilot_call(const char* name, const Value* values, int count, Value* out, int, int* made, char* error, size_t room) {
    if (!strncmp(name, "result: ", 8)) return *made = 1, results(name + 8, values, out);
    snprintf(error, room, "%s", act(name, values, count).c_str());
    return 1;
}
}
