// The cache model: an L1 and a share of L2 for each block, counted in 32-byte sectors.
#include "caches.h"

#include "host_memory.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

constexpr u32 WAYS = 8;

void Cache::resize(u64 bytes, u32 ways) {
    ways_ = ways, held_ = ~0ull >> (64 - 8 * ways);
    count_ = (u32)std::max<u64>(1, bytes / 128 / ways);
    inverse_ = (u32)std::min<u64>(FULL, (1ull << 32) / count_);
    sets_.resize(count_);
    clear();
}

void Cache::clear() { memset((void*)sets_.data(), 0xff, sets_.size() * sizeof(Set)); }

// Orders that bring way n to the front and keep the others in order.
struct Orders {
    alignas(32) u32 lines[WAYS][8];
    alignas(16) u8 held[WAYS][16];
    Orders() {
        for (u32 n = 0; n < WAYS; n++)
            for (u32 i = 0; i < 8; i++) lines[n][i] = i == 0 ? n : i <= n ? i - 1 : i, held[n][i] = (u8)lines[n][i], held[n][i + 8] = 0x80;
    }
};
static const Orders ORDERS;

// Neighbouring lines lie in neighbouring sets, so that what is as long as the cache fits; where each stretch of that
// length begins is a hash, which spreads power-of-two strides as the hardware's does.
[[gnu::always_inline]] inline u32 Cache::set_of(u32 line) const {
    u32 stretch = (u32)((u64)line * inverse_ >> 32), within = line - stretch * count_;
    if (within >= count_) within -= count_, stretch++;
    u32 set = within + (u32)((u64)(stretch * 0x9E3779B1u) * count_ >> 32);
    return set < count_ ? set : set - count_;
}

[[gnu::always_inline]] inline Cache::Touched Cache::touch(u64 line, u32 sectors, bool store, bool allocate) {
    Set& set = sets_[set_of((u32)line)];
    __m256i lines = _mm256_load_si256((const __m256i*)set.line), wanted = _mm256_set1_epi32((i32)line);
    u64 held;
    memcpy(&held, set.held, 8);
    u32 found = (u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(lines, wanted)));
    u32 lost_line = FULL, lost = 0;
    if (found) {
        u32 way = __builtin_ctz(found);
        if (way) {
            lines = _mm256_permutevar8x32_epi32(lines, _mm256_load_si256((const __m256i*)ORDERS.lines[way]));
            __m128i order = _mm_load_si128((const __m128i*)ORDERS.held[way]);
            held = (u64)_mm_cvtsi128_si64(_mm_shuffle_epi8(_mm_cvtsi64_si128((i64)held), order));
        }
    } else {
        if (!allocate) return {sectors, false, FULL, 0};
        // the last way makes room
        lost_line = set.line[ways_ - 1];
        if (lost_line != FULL) lost = held >> (8 * ways_ - 8), set.roomy = false;
        lines = _mm256_permutevar8x32_epi32(lines, _mm256_load_si256((const __m256i*)ORDERS.lines[ways_ - 1]));
        lines = _mm256_blend_epi32(lines, wanted, 1), held = held << 8 & held_;
    }
    // a sector that a load brought in is written back like any other
    u32 missing = sectors & ~(store ? (u32)held >> 4 : (u32)held | (u32)held >> 4);
    if (allocate) held |= missing << (store ? 4 : 0);
    _mm256_store_si256((__m256i*)set.line, lines);
    memcpy(set.held, &held, 8);
    return {missing, !set.roomy, lost_line, lost};
}

// --- what was missed before -----------------------------------------------------------------

void PastMisses::clear() {
    for (u32 slot : used_) regions_[slot].number = NONE;
    used_.clear();
}

inline PastMisses::Region* PastMisses::place(u32 number) {
    u64 mask = regions_.size() - 1, slot = number * 0x9E3779B97F4A7C15ull >> 32 & mask;
    while (regions_[slot].number != number && regions_[slot].number != NONE) slot = (slot + 1) & mask;
    return &regions_[slot];
}

void PastMisses::grow() {
    std::vector<Region> old = std::move(regions_);
    regions_.assign(std::max<size_t>(64, 2 * old.size()), Region{NONE, {}});
    used_.clear();
    for (const Region& region : old) {
        if (region.number == NONE) continue;
        Region* to = place(region.number);
        *to = region;
        used_.push_back((u32)(to - regions_.data()));
    }
}

void PastMisses::add(u32 line, u32 sectors) {
    if (2 * used_.size() >= regions_.size()) grow();
    Region* region = place(line / LINES);
    if (region->number == NONE) {
        *region = Region{line / LINES, {}};
        used_.push_back((u32)(region - regions_.data()));
    }
    region->sectors[line % LINES] |= (u8)sectors;
}

u32 PastMisses::of(u32 line) const {
    if (regions_.empty()) return 0;
    const Region* region = const_cast<PastMisses*>(this)->place(line / LINES);
    return region->number == NONE ? 0 : region->sectors[line % LINES];
}

// --- requests ---------------------------------------------------------------------------------

void pass_caches(Context* c, const Site& s, Allocation* a, u64 first, bool store) {
    if (a->host) use_host_memory(c, s, a, first, store);
    auto& traffic = c->tally->traffic;
    if (traffic.size() <= a->index) traffic.resize(engine().by_index.size());
    Traffic& t = traffic[a->index];
    auto& running = c->tally->running;
    if (running.size() <= a->index) running.resize(engine().by_index.size(), Extent{0, 0, ~0ull, 0});
    Extent& extent = running[a->index];
    u64 lead = first / 128 - a->base / 128 + a->first_line;
    for (u32 i = 0; i < s.lines; i++) {
        u64 line = lead + (i64)s.line_delta[i];
        u32 sectors = s.line_sectors[i];
        // L1 is written through and does not allocate on stores
        u32 onward = c->l1.touch(line, sectors, store, !store).missing;
        if (store) onward = sectors;
        if (!onward) continue;
        auto [missing, crowded, lost_line, lost] = c->l2.touch(line, onward, store, true);
        u32 fresh = missing;
        if (crowded) {
            fresh &= ~(c->misses.of((u32)line) >> (store ? 4 : 0));
            if (lost) c->misses.add(lost_line, lost);
        }
        u32 moved = (u32)__builtin_popcount(onward), missed = (u32)__builtin_popcount(missing);
        u32 unique = (u32)__builtin_popcount(fresh);
        if (store)
            t.l2_write += moved, t.miss_write += missed, t.unique_write += unique;
        else {
            t.l2_read += moved, t.miss_read += missed, t.unique_read += unique;
            extent.first = std::min(extent.first, line - a->first_line), extent.last = std::max(extent.last, line - a->first_line);
        }
    }
}
