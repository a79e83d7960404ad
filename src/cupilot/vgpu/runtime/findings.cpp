#include "findings.h"

#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <tuple>

void report(LaunchState* launch, const std::string& kind, const std::string& message) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    if (e.findings.size() < e.settings.findings_limit) e.findings.push_back({kind, message});
    if (launch && !e.settings.program && e.findings.size() >= e.settings.findings_limit) launch->stop = true;
}

// A whole program launches a kernel many times: what an instruction does wrong is told once.
static bool told_before(Context* c, u32 site, u32 bit) {
    static std::mutex mutex;
    static auto* known = new std::set<std::tuple<u32, u32, u32>>;
    if (!engine().settings.program) return false;
    std::lock_guard<std::mutex> guard(mutex);
    return !known->insert({c->launch->kernel->id, site, bit}).second;
}

std::string place(Context* c, Warp* w, u32 line, u32 lane) {
    char text[160];
    snprintf(text, sizeof text, ", line %u, block (%u, %u, %u), thread (%u, %u, %u)", line, c->ctaid[0], c->ctaid[1],
             c->ctaid[2], w->tid[0][lane], w->tid[1][lane], w->tid[2][lane]);
    return ", kernel " + c->launch->kernel->name + text;
}

void access_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, bool store, const char* space,
                    const char* kind, const std::string& near) {
    // an instruction is told of once for each thing it does wrong
    static const char* const KINDS[] = {"out-of-bounds", "misaligned", "use-after-free", "uninitialized", "async-race",
                                        "shared-race",   "global-race", "invalid-barrier", "left-over"};
    u32 bit = 0;
    while (bit < std::size(KINDS) && strcmp(kind, KINDS[bit])) bit++;
    u32& told = c->sites[site].told;
    if (told >> bit & 1) return;
    told |= 1u << bit;
    char text[160];
    snprintf(text, sizeof text, "%s %s of %u bytes at 0x%llx%s", kind, store ? "write" : "read", bytes,
             (unsigned long long)address, space);
    if (bit < 3) c->launch->error = bit == 1 ? 716 : 700;  // misaligned, or an illegal address
    if (told_before(c, site, bit)) return;
    report(c->launch, kind, text + near + place(c, w, c->launch->kernel->sites[site].line, lane));
}

void unwritten_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, const Allocation* a) {
    const char* kind = a->left_over ? "left-over" : "uninitialized";
    std::string why = a->left_over ? "; an earlier call wrote it, this one did not" : "";
    access_finding(c, w, site, lane, address, bytes, false, "", kind, near_text(address) + why);
}

// The allocation an address is closest to, for messages.
static Allocation* nearest_allocation(u64 address) {
    Allocation* best = nullptr;
    u64 distance = ~0ull;
    for (Allocation* a : engine().allocations) {
        u64 d = address < a->base ? a->base - address : address - a->base >= a->bytes ? address - a->base - a->bytes + 1 : 0;
        if (d < distance) distance = d, best = a;
    }
    return best;
}

std::string near_text(u64 address) {
    Allocation* a = nearest_allocation(address);
    if (!a) return "";
    char text[256];
    i64 past = (i64)(address - a->base) - (i64)a->bytes;
    const char* freed = a->freed ? "freed " : "";
    if (past >= 0)
        snprintf(text, sizeof text, ", %lld bytes after the end of a %s%llu-byte buffer", (long long)past, freed,
                 (unsigned long long)a->bytes);
    else if (address >= a->base)
        snprintf(text, sizeof text, ", %lld bytes into a %s%llu-byte buffer", (long long)(address - a->base), freed,
                 (unsigned long long)a->bytes);
    else
        snprintf(text, sizeof text, ", %lld bytes before a %s%llu-byte buffer", (long long)(a->base - address), freed,
                 (unsigned long long)a->bytes);
    return text;
}
