// Which blocks of a grid run in place of all of them, and what each of them stands for.
//
// Whoever does not know the seed cannot tell which blocks these are; with it, they are the same every time. They are spread
// evenly along every axis (the first 2^n of them lie in 2^n equal parts of each), and every place at the grid's edges is
// among them: first, last and in between along each axis. A block stands for blocks of its own place, so that the few at
// the edges do not count for more than they are.
//
// Blocks that compare otherwise than most do (cupilot/vgpu/rare_blocks.py) are places of their own, by how rare they are.
#pragma once

#include <array>
#include <cmath>
#include <unordered_map>

#include "engine.h"
#include "order.h"

// Places of blocks in a grid: first, between or last along each axis. Where an axis is short some places have no blocks.
class Places {
  public:
    static constexpr u32 GRID = 27, RARE = 3, COUNT = GRID + RARE;

    explicit Places(const u32 grid[3]) { std::copy(grid, grid + 3, grid_.begin()); }

    // This block is rare; the lowest level is the rarest.
    void set_rare(u64 block, u32 level) {
        u32 place = of(block);
        if (place >= GRID || !rare_.emplace(block, GRID + level).second) return;
        moved_[place]++, rare_sizes_[level]++;
    }

    u64 blocks() const { return grid_[0] * grid_[1] * grid_[2]; }
    u64 along(u32 axis) const { return grid_[axis]; }

    u32 of(u64 block) const {
        if (auto found = rare_.find(block); found != rare_.end()) return found->second;
        u64 at[3] = {block % grid_[0], block / grid_[0] % grid_[1], block / grid_[0] / grid_[1]};
        u32 place = 0;
        for (u32 axis = 3; axis-- > 0;) place = 3 * place + (at[axis] == 0 ? 0 : at[axis] + 1 == grid_[axis] ? 2 : 1);
        return place;
    }

    u64 size(u32 place) const { return place < GRID ? whole(place) - moved_[place] : rare_sizes_[place - GRID]; }

    // Of a place at the grid's edges or between them, those that are rare among them.
    u64 whole(u32 place) const {
        u64 blocks = 1;
        for (u32 axis = 0; axis < 3; axis++, place /= 3) blocks *= length(axis, place % 3);
        return blocks;
    }

    // One of these, by number.
    u64 block(u32 place, u64 number) const {
        u64 found = 0, step = 1;
        for (u32 axis = 0; axis < 3; step *= grid_[axis], axis++, place /= 3) {
            u64 blocks = length(axis, place % 3), at = number % blocks;
            number /= blocks;
            found += step * (place % 3 == 0 ? 0 : place % 3 == 1 ? at + 1 : grid_[axis] - 1);
        }
        return found;
    }

  private:
    u64 length(u32 axis, u32 third) const {
        return third == 0 ? 1 : third == 2 ? grid_[axis] > 1 : grid_[axis] > 2 ? grid_[axis] - 2 : 0;
    }

    std::array<u64, 3> grid_;
    std::unordered_map<u64, u32> rare_;
    std::array<u64, GRID> moved_{};
    std::array<u64, RARE> rare_sizes_{};
};

// Blocks in an order that depends on a seed only, each once.
class Draw {
  public:
    Draw(const u32 grid[3], u64 seed)
        : places_(grid), seed_(seed), blocks_(places_.blocks()), order_(blocks_, seed), drawn_(blocks_, false) {
        place_directions();
    }

    const Places& places() const { return places_; }
    u64 seed() const { return seed_; }
    bool has(u64 block) const { return drawn_[block]; }
    void take(u64 block) { drawn_[block] = true; }

    // Rare blocks, and those of them that are to run; what has run already stays at its place.
    void set_rare(u64 count, const u64* blocks, const u64* levels, u64 picked, const u64* picks) {
        for (u64 i = 0; i < count; i++)
            if (blocks[i] < blocks_ && levels[i] < Places::RARE && !drawn_[blocks[i]]) places_.set_rare(blocks[i], (u32)levels[i]);
        for (u64 i = picked; i-- > 0;)
            if (picks[i] < blocks_) picks_.push_back(picks[i]);
    }

    // Two from anywhere, then one of each place at the edges (if `edges`) and the picked ones (if `rare`), then from anywhere;
    // the number of blocks when there are no more.
    u64 next(bool edges, bool rare) {
        while (rare && !picks_.empty()) {
            u64 block = picks_.back();
            picks_.pop_back();
            if (!drawn_[block]) return drawn_[block] = true, block;
        }
        for (; edges && tries_ >= 2 && place_ < Places::GRID; place_++) {
            u64 size = places_.whole(place_), block = size ? places_.block(place_, mixed(seed_ ^ mixed(place_ + 1)) % size) : 0;
            if (size && !drawn_[block]) return drawn_[block] = true, block;
        }
        // evenly spread ones come twice now and then; in the end those that have not come take their turns
        for (u64 tries = 4 * blocks_; tries_ < tries + blocks_;) {
            u64 number = tries_++;
            u64 block = number < tries ? spread(number) : order_(number - tries);
            if (!drawn_[block]) return drawn_[block] = true, block;
        }
        return blocks_;
    }

  private:
    // Sobol's sequence in three dimensions, from the primitive polynomials of degree 0, 1 and 2 (Bratley and Fox, Algorithm
    // 659: initial numbers 1; 1; 1 and 3).
    void place_directions() {
        for (u32 bit = 0; bit < 64; bit++) {
            auto& d = directions_;
            d[0][bit] = 1ull << (63 - bit);
            d[1][bit] = bit < 1 ? 1ull << 63 : d[1][bit - 1] ^ d[1][bit - 1] >> 1;
            d[2][bit] = bit < 2 ? (bit ? 3ull << 62 : 1ull << 63) : d[2][bit - 1] ^ d[2][bit - 2] ^ d[2][bit - 2] >> 2;
        }
    }

    // A fraction of 2^64. Each bit is flipped or not by what those above it are (Owen's scrambling): the sequence stays
    // evenly spread, and where within its intervals a number falls is random.
    u64 fraction(u64 number, u32 axis) const {
        u64 point = 0, found = 0, above = 1;
        for (u32 bit = 0; number >> bit; bit++)
            if (number >> bit & 1) point ^= directions_[axis][bit];
        for (u32 bit = 64; bit-- > 0;) {
            u64 digit = point >> bit & 1, flip = mixed(seed_ ^ mixed(above ^ (u64)(3 * bit + axis + 1) << 52)) >> 40 & 1;
            above = above << 1 | digit;
            found = found << 1 | (digit ^ flip);
        }
        return found;
    }

    u64 spread(u64 number) const {
        u64 block = 0, step = 1;
        for (u32 axis = 0; axis < 3; step *= places_.along(axis), axis++)
            if (places_.along(axis) > 1) block += step * (u64)((__uint128_t)fraction(number, axis) * places_.along(axis) >> 64);
        return block;
    }

    Places places_;
    u64 seed_, blocks_, tries_ = 0;
    u32 place_ = 0;
    Permutation order_;
    std::vector<bool> drawn_;
    std::vector<u64> picks_;  // from the back
    u64 directions_[3][64];
};

// Mean and spread of what blocks cost.
class Spread {
  public:
    void add(double value) {
        count_++;
        double from = value - mean_;
        mean_ += from / (double)count_;
        squares_ += from * (value - mean_);
    }

    // Of the mean, relative to it.
    double standard_error() const {
        if (count_ < 2 || mean_ <= 0) return 0;
        return std::sqrt(squares_ / (double)(count_ - 1) / (double)count_) / mean_;
    }

  private:
    u64 count_ = 0;
    double mean_ = 0, squares_ = 0;
};
