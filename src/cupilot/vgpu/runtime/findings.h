// What a kernel did that it must not do.
#pragma once

#include <string>

#include "engine.h"
#include "pattern.h"

// What may be wrong with an access. An instruction is reported once for each, with the number of threads.
enum class Fault : u32 {
    OUT_OF_BOUNDS,
    MISALIGNED,
    USE_AFTER_FREE,
    UNINITIALIZED,
    LEFT_OVER,
    ASYNC_RACE,
    SHARED_RACE,
    GLOBAL_RACE,
    INVALID_BARRIER
};

// An access of a warp: the lanes at fault, and what one of them accessed.
struct Faulting {
    Context* c;
    Warp* w;
    u32 site, lanes, lane;
    Use use;
    Space space;
    u64 address;
    u32 bytes;
    // of a race: the mark that was there, left by a store or by a load
    u8 mark = NEVER;
    bool stored = false;
};

[[gnu::cold]] void report(const Faulting& at, Fault fault, const char* text = "");
// The same for the first of these lanes. Called where a record on the stack would cost accesses that are fine.
[[gnu::cold]] void report(Context* c, Warp* w, u32 site, u32 lanes, Use use, Space space, u64 address, u32 bytes, Fault fault);

// What is wrong with a byte; of a race, the mark that was there, left by a store or by a load.
struct Bad {
    Fault fault;
    u8 mark = NEVER;
    bool stored = false;
};

// Report the first fault in a run of a request, with all lanes from there on that have the same; whether there is one.
// `bad(delta, lane)` gives a std::optional<Bad> of a byte; `lane()` is whose byte it is.
template <class BadAt>
bool report_first(Context* c, Warp* w, u32 site, const Site& s, Use use, Space space, u64 first, Run run, u32 bytes, BadAt bad) {
    for (u32 b = 0; b < run.bytes; b++) {
        i64 delta = run.delta + (i64)b;
        std::optional<Bad> found = bad(delta, [&] { return lane_at(s, delta, bytes); });
        if (!found) continue;
        u32 lane = lane_at(s, delta, bytes), lanes = 1u << lane;
        for (u32 bits = s.mask; bits; bits &= bits - 1) {
            u32 other = __builtin_ctz(bits);
            for (u32 n = 0; n < bytes && s.delta[other] >= run.delta && !(lanes >> other & 1); n++)
                if (auto also = bad(s.delta[other] + (i64)n, [&] { return other; }); also && also->fault == found->fault)
                    lanes |= 1u << other;
        }
        report({c, w, site, lanes, lane, use, space, first + (u64)s.delta[lane], bytes, found->mark, found->stored}, found->fault);
        return true;
    }
    return false;
}
// Report a kernel that could not be translated.
void report_untranslated(const KernelInfo& kernel);
// What is wrong with a global access that is not inside one buffer, or not aligned: one of the first three.
Fault global_fault(const Allocation* a, u64 address, u32 bytes);

std::string to_json(const Finding& finding);
