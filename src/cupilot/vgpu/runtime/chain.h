// Blocks that wait for each other: how long the longest chain of hand-overs takes.
//
// Here blocks run one after the other, so nobody seems to wait. On a GPU all start at once, and a block that needs what
// another one puts down (a flag, a lock, a turn) goes on only when that is there. So each block has a time of its own, the
// way of its slowest warp, and each word of global memory that blocks meet at the time at which it was put down: who
// finds it there goes on at that time at the earliest, and a hand-over later.
//
// A block that puts down several values at a place one after the other is met at the first of them, and whoever looks then
// sees what was there by its time: in a look-back that is the block's own sum, until the whole prefix is there. Who looks
// again waits for the next. Loops that look again and again count once.
#pragma once

#include <unordered_map>

#include "engine.h"

// Of a launch.
struct Meetings {
    struct Put {
        u64 time, hops;
        u32 bytes;
        u8 value[16];
    };
    struct Word {
        u64 block, time, hops;
        bool taken;              // by a block that found it as another left it, and will put it back
        std::vector<Put> later;  // what it was from the first on, where it was put down several times
    };
    std::unordered_map<u64, Word> words;
    bool full = false;
    u64 longest = 0, hops = 0;  // of the block that ends last, among those that waited
};

// Of a running block.
struct BlockTime {
    Meetings* meetings = nullptr;  // none: nobody can wait in this kernel
    u64 block = 0;
    const u64* counts = nullptr;  // of its warps
    u32 warps = 0;
    const KernelInfo* kernel = nullptr;
    u64 waited = 0, hops = 0;
    bool blind = false;  // it looked at a word that nobody is known to have put down
    struct Look { u64 place, block, time, way, seen; };
    std::vector<Look> looks;  // by warp: what it found at the last word that it looked at, and its way until then
    std::vector<u64> idle;    // by warp: the ways from one look to the next that found the same
    std::vector<u32> vain;    // by warp: such looks in a row

    void begin(u64 number);
    void end();
    u64 way(u32 warp) const;
    u64 now() const;
    // Whether a warp does nothing but look at a word until it changes.
    bool polls(u32 warp, bool parted) const { return meetings && vain[warp] >= (parted ? 8 * POLLS : POLLS); }

    static constexpr u32 POLLS = 64;
};

enum class Meeting : u32 { LOOK, PUT, PASS, TAKE };
// A warp looked at words, or put something there, or passed by (it changed them, whatever they were), or looked and changed
// what it found. The value is in memory by then; `data` of a look, element by element of `width` bytes, is what the lanes get.
void meet(Context* c, const Warp* w, const u64* address, u32 lanes, Meeting kind, u32 bytes, void* data = nullptr, u32 width = 0);
