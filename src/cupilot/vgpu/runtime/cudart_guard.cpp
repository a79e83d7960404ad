// Host code must not touch device memory: while the guard is on, buffers are closed to everything but kernels, copies,
// fills and our own questions, and an access that is caught says so before the process dies.
//
// Host threads that run beside a kernel find the memory open. Off unless asked for.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "engine.h"

namespace {

struct Region { u64 base, bytes; bool live; };
struct Guarded {
    std::mutex lock;
    std::vector<Region> regions;
    bool on = false;
    u32 opened = 0;
    struct sigaction before;  // who handled the signal until the first guard
    bool handled = false;
};

Guarded& guarded() {
    static auto* instance = new Guarded;
    return *instance;
}

void set_access(const Region& r, bool open) {
    if (r.live) mprotect((void*)r.base, r.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void set_access(bool open) {
    for (const Region& r : guarded().regions) set_access(r, open);
}

// Only what may be called in a signal handler. The instruction runs again under the handler that was there before.
void on_fault(int signal, siginfo_t* info, void*) {
    Guarded& g = guarded();
    const u64 address = (u64)info->si_addr;
    sigaction(signal, &g.before, nullptr);
    for (const Region& r : g.regions) {
        if (address - r.base >= r.bytes) continue;
        char text[] = "host code accessed device memory at 0x0000000000000000\n";
        char* digit = text + sizeof text - 3;
        for (u64 left = address; left; left /= 16) *digit-- = "0123456789abcdef"[left % 16];
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
        ::signal(signal, SIG_DFL);
        return;
    }
}

void handle_faults() {
    Guarded& g = guarded();
    if (g.handled) return;
    g.handled = true;
    struct sigaction ours{};
    ours.sa_sigaction = on_fault, ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, &g.before);
}

}  // namespace

void add_device_region(u64 base, u64 bytes) {
    Guarded& g = guarded();
    std::lock_guard<std::mutex> guard(g.lock);
    g.regions.push_back({base, bytes, true});
    // a mapping apart from its neighbours, which the system need not split and join every time
    madvise((void*)base, bytes, MADV_DONTDUMP);
    if (g.on && !g.opened) set_access(g.regions.back(), false);
}

// Of a freed buffer, whose addresses are not used again.
void drop_device_region(u64 address) {
    Guarded& g = guarded();
    std::lock_guard<std::mutex> guard(g.lock);
    for (Region& r : g.regions) {
        if (address - r.base >= r.bytes) continue;
        if (g.on) set_access(r, false);
        r.live = false;
    }
}

Opened::Opened() {
    Guarded& g = guarded();
    std::lock_guard<std::mutex> guard(g.lock);
    if (!g.opened++ && g.on) set_access(true);
}

Opened::~Opened() {
    Guarded& g = guarded();
    std::lock_guard<std::mutex> guard(g.lock);
    if (!--g.opened && g.on) set_access(false);
}

extern "C" void vgc_guard_host(int on) {
    Guarded& g = guarded();
    std::lock_guard<std::mutex> guard(g.lock);
    if (on) handle_faults();
    if (g.on != (on != 0) && !g.opened) set_access(on == 0);
    g.on = on != 0;
}
