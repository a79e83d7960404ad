// Another order of the same numbers, that depends on a seed only.
#pragma once

#include <algorithm>

#include "engine.h"

// Bits that look random (the finaliser of SplitMix64).
inline u64 mixed(u64 x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// 0 ... count-1: a Feistel network over the next power of four, walked until it lands inside. Needs no memory.
class Permutation {
  public:
    Permutation(u64 count, u64 seed) : count_(count), seed_(seed) {
        while ((1ull << 2 * half_) < count) half_++;
    }

    u64 operator()(u64 number) const {
        const u64 mask = (1ull << half_) - 1;
        do {
            u64 left = number >> half_, right = number & mask;
            for (u64 round = 0; round < 4; round++) {
                u64 next = left ^ (mixed(right + (round << 32) + seed_ * 0x9e3779b97f4a7c15) & mask);
                left = right, right = next;
            }
            number = left << half_ | right;
        } while (number >= count_);
        return number;
    }

  private:
    u64 count_, seed_, half_ = 1;
};

// The blocks of a launch, one after the other, for all host threads. When one gets nowhere the rest come by number, as on
// a GPU: what it waits for is mostly a block before it.
class BlockOrder {
  public:
    BlockOrder(u64 blocks, u64 seed) : blocks_(blocks), seed_(seed), permutation_(blocks, seed) {
        if (seed) taken_.resize(blocks, false);
    }

    // Gives the number of blocks when there are no more.
    u64 next(bool stuck) {
        if (!seed_) return std::min<u64>(count_++, blocks_);
        std::lock_guard<std::mutex> guard(lock_);
        if (stuck && !by_number_) by_number_ = true, count_ = 0;
        u64 block = blocks_;
        while (count_ < blocks_ && taken_[block = by_number_ ? count_.load() : permutation_(count_)]) count_++;
        if (count_ >= blocks_) return blocks_;
        taken_[block] = true;
        return block;
    }

  private:
    u64 blocks_, seed_;
    Permutation permutation_;
    std::atomic<u64> count_{0};
    bool by_number_ = false;
    std::vector<bool> taken_;
    std::mutex lock_;
};
