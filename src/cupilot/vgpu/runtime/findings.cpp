#include "findings.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "async.h"

namespace {

const char* const KINDS[] = {"out-of-bounds", "misaligned",  "use-after-free", "uninitialized",  "left-over",
                             "async-race",    "shared-race", "global-race",    "invalid-barrier"};

// A whole program launches a kernel many times: what an instruction does wrong is reported once, for the first launch.
Finding* known(const Finding& f) {
    Engine& e = engine();
    for (Finding& old : e.findings) {
        bool comparable = old.launch == f.launch || (e.settings.program && f.site != NO_SITE);
        if (comparable && f.launch && old.kernel_id == f.kernel_id && old.site == f.site && old.line == f.line &&
            !strcmp(old.kind, f.kind))
            return &old;
    }
    return nullptr;
}

// Count the threads of a finding that is known already; the engine is locked.
bool counted(const Finding& f) {
    Finding* old = known(f);
    if (old && old->launch == f.launch) old->threads += f.threads;
    return old;
}

void add(LaunchState* launch, const Finding& f) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    if (counted(f)) return;
    if (e.findings.size() < e.settings.findings_limit) e.findings.push_back(f);
    if (launch && !e.settings.program && e.findings.size() >= e.settings.findings_limit) launch->stop = true;
}

Triple block_of(const Context* c) { return {c->ctaid[0], c->ctaid[1], c->ctaid[2]}; }
Triple thread_of(const Warp* w, u32 lane) { return {w->tid[0][lane], w->tid[1][lane], w->tid[2][lane]}; }

Finding finding_at(Context* c, const char* kind, u32 line, u32 lanes) {
    Finding f;
    f.kind = kind, f.line = line, f.threads = (u64)__builtin_popcount(lanes);
    f.launch = c->launch->number, f.kernel_id = c->launch->kernel->id;
    return f;
}

void place(Finding& f, Context* c, const Warp* w, u32 lane) {
    const KernelInfo& kernel = *c->launch->kernel;
    f.kernel = kernel.name;
    if (auto it = kernel.files.find(f.line); it != kernel.files.end()) f.file = it->second;
    f.block = block_of(c), f.thread = thread_of(w, lane);
}

// The lanes in which this is the instruction's first such fault in the running block.
u32 first_time(const Faulting& at, Fault fault) {
    auto& all = at.c->faulty;
    auto same = [&](const Faulty& f) { return f.site == at.site && f.fault == (u32)fault; };
    auto it = std::find_if(all.begin(), all.end(), same);
    if (it == all.end()) it = all.insert(all.end(), Faulty{at.site, (u32)fault, {}});
    u32& seen = it->lanes[at.w->index & 31];
    u32 fresh = at.lanes & ~seen;
    seen |= at.lanes;
    return fresh;
}

Allocation* nearest_allocation(u64 address) {
    Allocation* best = nullptr;
    u64 distance = ~0ull;
    for (Allocation* a : engine().allocations) {
        u64 d = address < a->base ? a->base - address : address - a->base >= a->bytes ? address - a->base - a->bytes + 1 : 0;
        if (d < distance) distance = d, best = a;
    }
    return best;
}

MemoryAccess access_of(const Faulting& at) {
    MemoryAccess m;
    m.use = at.use, m.space = at.space, m.bytes = at.bytes, m.address = at.address;
    if (at.space == Space::GLOBAL) {
        Allocation* a = nearest_allocation(at.address);
        if (a) m.freed = a->freed, m.buffer_bytes = a->bytes, m.offset = (i64)(at.address - a->base);
    } else {
        m.offset = (i64)at.address;
        m.buffer_bytes = at.space == Space::SHARED ? at.c->shared_bytes : at.c->local_bytes;
    }
    return m;
}

// --- the other access of a race -------------------------------------------------------------

// The line of the only loads or stores of a space that can have left a mark; 0 when they are on several lines. Instructions
// that were not executed cannot; but requests tell nothing of shared loads in groups, and of other host threads' accesses.
u32 only_line(Context* c, Space space, bool store) {
    const auto& sites = c->launch->kernel->sites;
    bool tells = space == Space::SHARED ? store : engine().settings.threads == 1;
    u32 line = 0;
    for (size_t i = 0; i < sites.size(); i++) {
        const SiteInfo& info = sites[i];
        if ((info.space != space && info.space != Space::GENERIC) || (info.store != 0) != store) continue;
        if (info.wanted & SAME_ADDRESS || (tells && !c->sites[i].requests)) continue;  // atomics leave no marks
        if (!info.line || (line && info.line != line)) return 0;
        line = info.line;
    }
    return line;
}

// The copy under way to some bytes of shared memory.
OtherAccess copy_to(const Faulting& at) {
    auto by = [&](const Queue& queue, u32 lane, u32 site) -> OtherAccess {
        u32 line = at.c->launch->kernel->sites[site].line;
        return {"copy", "wait", block_of(at.c), thread_of(queue.warp, lane), queue.warp->index, line};
    };
    auto meets = [&](u64 target, u64 bytes) { return target < at.address + at.bytes && at.address < target + bytes; };
    for (const Queue& queue : at.c->async->queues) {
        for (size_t n = queue.first; n < queue.copies.size(); n++)
            for (u32 bits = queue.copies[n].lanes; bits; bits &= bits - 1)
                if (u32 lane = (u32)__builtin_ctz(bits); meets(queue.copies[n].target[lane], queue.copies[n].bytes))
                    return by(queue, lane, queue.copies[n].site);
        for (const Bulk& bulk : queue.bulks)
            if (bulk.to_shared && meets(bulk.target, bulk.bytes)) return by(queue, bulk.lane, bulk.site);
    }
    return {"copy", "wait", block_of(at.c), {}, {}};
}

std::optional<OtherAccess> other_of(const Faulting& at, Fault fault) {
    const char* kind = at.stored ? "write" : "read";
    if (fault == Fault::ASYNC_RACE) return copy_to(at);
    if (fault == Fault::SHARED_RACE) {
        OtherAccess other{kind, "barrier", block_of(at.c), {}, {}, only_line(at.c, Space::SHARED, at.stored)};
        if (at.mark >= MARK && at.mark < MARK + 32) other.warp = at.mark - MARK;
        return other;
    }
    if (fault != Fault::GLOBAL_RACE) return {};
    LaunchState& l = *at.c->launch;
    OtherAccess other{kind, "fence", {}, {}, {}, only_line(at.c, Space::GLOBAL, at.stored)};
    u64 number = at.mark == MANY ? 0 : l.block_of[at.mark].load(std::memory_order_relaxed), block = number - 1;
    if (number && number != SEVERAL)
        other.block = {(u32)(block % l.grid[0]), (u32)(block / l.grid[0] % l.grid[1]), (u32)(block / l.grid[0] / l.grid[1])};
    return other;
}

// --- JSON -----------------------------------------------------------------------------------

constexpr size_t LONGEST = 16384;

// Texts may hold anything: names and messages are the candidate's. Bytes that are not ASCII stay as they are.
std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char letter : text.substr(0, LONGEST)) {
        char code[8];
        snprintf(code, sizeof code, "\\u%04x", (u8)letter);
        bool plain = (u8)letter >= 0x20 && letter != '"' && letter != '\\' && letter != 0x7f;
        out += plain ? std::string(1, letter) : code;
    }
    return out + '"';
}

template <class Number>
std::string to_json(const std::optional<Number>& n) {
    return n ? std::to_string(*n) : "null";
}

std::string to_json(const std::optional<Triple>& n) {
    if (!n) return "null";
    return "[" + std::to_string((*n)[0]) + "," + std::to_string((*n)[1]) + "," + std::to_string((*n)[2]) + "]";
}

std::string to_json(const MemoryAccess& m) {
    static const char* const USES[] = {"read", "write", "atomic"};
    static const char* const SPACES[] = {"global", "shared", "generic", "local"};
    return std::string("{\"kind\":\"") + USES[(u32)m.use] + "\",\"space\":\"" + SPACES[(u32)m.space] +
           "\",\"bytes\":" + std::to_string(m.bytes) + ",\"address\":" + std::to_string(m.address) +
           ",\"buffer_bytes\":" + to_json(m.buffer_bytes) + ",\"offset\":" + to_json(m.offset) +
           ",\"freed\":" + (m.freed ? "true" : "false") + "}";
}

std::string to_json(const OtherAccess& o) {
    return "{\"kind\":" + quoted(o.kind) + ",\"missing\":" + quoted(o.missing) +
           ",\"block\":" + to_json(o.block) + ",\"thread\":" + to_json(o.thread) + ",\"warp\":" + to_json(o.warp) +
           ",\"line\":" + std::to_string(o.line) + "}";
}

}  // namespace

// Fields of cupilot.records.Finding.
std::string to_json(const Finding& f) {
    return "{\"kind\":" + quoted(f.kind) + ",\"text\":" + quoted(f.text) + ",\"kernel\":" + quoted(f.kernel) +
           ",\"file\":" + quoted(f.file) + ",\"line\":" + std::to_string(f.line) +
           ",\"block\":" + to_json(f.block) + ",\"thread\":" + to_json(f.thread) +
           ",\"threads\":" + std::to_string(f.threads) + ",\"access\":" + (f.access ? to_json(*f.access) : "null") +
           ",\"other\":" + (f.other ? to_json(*f.other) : "null") + "}";
}

void report(const char* kind, const std::string& text, const std::string& kernel) {
    Finding f;
    f.kind = kind, f.text = text, f.kernel = kernel;
    add(nullptr, f);
}

void report(Context* c, Warp* w, const char* kind, const std::string& text, u32 line, u32 lanes, const std::string& file) {
    lanes = lanes ? lanes : 1u << 31;
    Finding f = finding_at(c, kind, line, lanes);
    f.text = text;
    place(f, c, w, (u32)__builtin_ctz(lanes));
    if (!file.empty()) f.file = file;
    add(c->launch, f);
}

void report(const Faulting& at, Fault fault, const char* text) {
    LaunchState& l = *at.c->launch;
    if (fault <= Fault::USE_AFTER_FREE) l.error = fault == Fault::MISALIGNED ? 716 : 700;  // or an illegal address
    u32 fresh = first_time(at, fault);
    if (!fresh) return;
    Finding f = finding_at(at.c, KINDS[(u32)fault], l.kernel->sites[at.site].line, fresh);
    f.site = at.site;
    {
        std::lock_guard<std::mutex> guard(engine().mutex);
        if (counted(f)) return;
    }
    f.text = text, f.access = access_of(at), f.other = other_of(at, fault);
    place(f, at.c, at.w, at.lane);
    add(&l, f);
}

void report(Context* c, Warp* w, u32 site, u32 lanes, Use use, Space space, u64 address, u32 bytes, Fault fault) {
    report({c, w, site, lanes, (u32)__builtin_ctz(lanes), use, space, address, bytes}, fault);
}

void report_untranslated(const KernelInfo& kernel) {
    Finding f;
    f.kind = "unsupported", f.text = kernel.error, f.kernel = kernel.name, f.line = kernel.error_line;
    if (auto it = kernel.files.find(f.line); it != kernel.files.end()) f.file = it->second;
    add(nullptr, f);
}

Fault global_fault(const Allocation* a, u64 address, u32 bytes) {
    if (a && a->freed) return Fault::USE_AFTER_FREE;
    return a && address + bytes <= a->base + a->bytes ? Fault::MISALIGNED : Fault::OUT_OF_BOUNDS;
}
