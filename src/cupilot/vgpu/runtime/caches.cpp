// The cache model: an L1 and a share of L2 for each block, counted in 32-byte sectors.
#include "caches.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

constexpr u32 WAYS = 8;

void Cache::resize(u64 bytes) {
    sets_.resize(std::max<u64>(1, bytes / 128 / WAYS));
    clear();
}

void Cache::clear() {
    memset(sets_.data(), 0xff, sets_.size() * sizeof(Set));
    full_ = false;
}

// Lane orders that bring way n to the front and keep the others in order.
struct Orders {
    alignas(32) u32 lines[WAYS][8];
    alignas(16) u8 sectors[WAYS][16];
    Orders() {
        for (u32 n = 0; n < WAYS; n++)
            for (u32 i = 0; i < 8; i++) lines[n][i] = i == 0 ? n : i <= n ? i - 1 : i, sectors[n][i] = (u8)lines[n][i], sectors[n][i + 8] = 0x80;
    }
};
static const Orders ORDERS;

[[gnu::always_inline]] inline u32 Cache::touch(u64 line, u32 sectors, bool allocate) {
    // a multiplicative hash spreads power-of-two strides, as the hardware's does
    u32 hash = (u32)((line * 0x9E3779B97F4A7C15ull) >> 32);
    Set& set = sets_[((u64)hash * sets_.size()) >> 32];
    __m256i lines = _mm256_load_si256((const __m256i*)set.line);
    u32 found = (u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(lines, _mm256_set1_epi32((i32)line))));
    if (!found && !allocate) return sectors;
    u32 way = found ? __builtin_ctz(found) : WAYS - 1;
    u32 held = found ? set.sectors[way] : 0;
    if (way) {
        _mm256_store_si256((__m256i*)set.line,
                           _mm256_permutevar8x32_epi32(lines, _mm256_load_si256((const __m256i*)ORDERS.lines[way])));
        __m128i order = _mm_load_si128((const __m128i*)ORDERS.sectors[way]);
        _mm_storel_epi64((__m128i*)set.sectors, _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i*)set.sectors), order));
    }
    if (!found) full_ |= _mm256_extract_epi32(lines, WAYS - 1) != -1, set.line[0] = (u32)line;
    set.sectors[0] = (u8)(allocate ? held | sectors : held);
    return sectors & ~held;
}

[[gnu::always_inline]] static inline u32* stamps_of(Context* c, Allocation* a) {
    auto& all = *c->tally->stamps;
    if (all.size() <= a->index) all.resize(engine().by_index.size(), nullptr);
    u32*& stamps = all[a->index];
    if (!stamps) stamps = new_stamps(a->bytes);
    return stamps;
}

// Sectors of a line that this block has not moved before in this direction.
[[gnu::always_inline]] static inline u32 first_time(Context* c, u32* stamps, u32 sectors) {
    __m128i now = _mm_set1_epi32((i32)c->stamp);
    __m128i* at = (__m128i*)stamps;
    __m128i old = _mm_loadu_si128(at);
    u32 seen = (u32)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(old, now)));
    u32 fresh = sectors & ~seen;
    if (fresh == 15)
        _mm_storeu_si128(at, now);
    else
        for (u32 bits = fresh; bits; bits &= bits - 1) stamps[__builtin_ctz(bits)] = c->stamp;
    return (u32)__builtin_popcount(fresh);
}

// Sectors of a miss that are new to the block. As long as nothing had to make room in its share of L2, all are, and it is
// enough to keep them; only then is it worth the memory traffic to look each one up.
static u32 new_sectors(Context* c, const Miss& miss, bool was_full) {
    auto stamp = [c](const Miss& m) -> u32 {
        u32* stamps = stamps_of(c, m.allocation);
        u64 index = m.line - m.allocation->base / 128;
        if (!stamps || index > m.allocation->bytes / 128) return 0;  // no memory: what is not counted harms less than an end
        return first_time(c, stamps + stamp_index(m.allocation, m.line, m.store), m.sectors);
    };
    if (!c->l2.full()) {
        c->misses.push_back(miss);
        return (u32)__builtin_popcount(miss.sectors);
    }
    if (!was_full) {
        for (const Miss& earlier : c->misses) stamp(earlier);
        c->misses.clear();
    }
    return stamp(miss);
}

void pass_caches(Context* c, const Site& s, Allocation* a, u64 first, bool store) {
    auto& traffic = c->tally->traffic;
    if (traffic.size() <= a->index) traffic.resize(engine().by_index.size());
    Traffic& t = traffic[a->index];
    for (u32 i = 0; i < s.lines; i++) {
        u64 line = first / 128 + (i64)s.line_delta[i];
        u32 sectors = s.line_sectors[i];
        // L1 is written through and does not allocate on stores
        u32 onward = c->l1.touch(line, sectors, !store);
        if (store) onward = sectors;
        if (!onward) continue;
        bool was_full = c->l2.full();
        u32 missing = c->l2.touch(line, onward, true);
        u32 moved = (u32)__builtin_popcount(onward), missed = (u32)__builtin_popcount(missing);
        u32 fresh = missing ? new_sectors(c, {a, line, missing, store}, was_full) : 0;
        if (store)
            t.l2_write += moved, t.miss_write += missed, t.unique_write += fresh;
        else
            t.l2_read += moved, t.miss_read += missed, t.unique_read += fresh;
    }
}
