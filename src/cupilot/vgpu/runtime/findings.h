// What a kernel did that it must not do.
#pragma once

#include <string>

#include "engine.h"

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

void report(const Faulting& at, Fault fault, const char* text = "");

// Collects the faults of a request's lanes: the one at the lowest address is reported, for all lanes with that fault.
class Faults {
  public:
    // `delta` is that of the byte at fault; of a race, `mark` was there, left by a store or by a load.
    void add(u32 lane, i64 delta, Fault fault, u8 mark = NEVER, bool stored = false);
    bool any() const { return all_; }
    void report(Context* c, Warp* w, u32 site, const Site& s, Use use, Space space, u64 first, u32 bytes) const;

  private:
    u32 all_ = 0, lanes_[9] = {}, lane_ = 0;
    i64 delta_ = 0;
    Fault fault_ = Fault::OUT_OF_BOUNDS;
    u8 mark_ = NEVER;
    bool stored_ = false;
};

// The lanes of a request that lie in one of its runs.
u32 lanes_in(const Site& s, Run run);
// Report a kernel that could not be translated.
void report_untranslated(const KernelInfo& kernel);
// What is wrong with a global access that is not inside one buffer, or not aligned: one of the first three.
Fault global_fault(const Allocation* a, u64 address, u32 bytes);
// A read of bytes that nobody wrote, or nobody in this call.
inline Fault unwritten_fault(const Allocation* a) { return a->left_over ? Fault::LEFT_OVER : Fault::UNINITIALIZED; }

std::string to_json(const Finding& finding);
