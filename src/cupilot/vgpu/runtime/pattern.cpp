#include "pattern.h"

#include <cstring>

namespace {

// Passes through the banks, and how many there would be without conflicts.
struct Passes { u32 total, ideal; };

// A pass returns one register to each lane, so wide accesses go by half or quarter warps. Two such parts are one where
// lanes n and n^1 (or n and n^2) all want the same address.
template <class Address>
bool in_pairs(const Address* address, u32 mask, u32 distance) {
    u32 both = mask & mask >> distance, differ = 0;
    for (u32 i = 0; i < LANES; i++) differ |= (u32)(!(i & distance) && address[i] != address[i | distance]) << i;
    return !(differ & both);
}

template <class Address>
Passes passes(const Address* address, u32 mask, u32 bytes) {
    u32 group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    if (bytes > 4 && (in_pairs(address, mask, 1) || in_pairs(address, mask, 2))) group *= 2;
    Passes found{0, 0};
    for (u32 start = 0; start < LANES; start += group) {
        u64 words[LANES][32];
        u32 counts[32] = {}, worst = 0;
        for (u32 i = start; i < start + group; i++) {
            if (!(mask >> i & 1)) continue;
            for (u64 word = address[i] / 4; word <= (address[i] + bytes - 1) / 4; word++) {
                u32 bank = word & 31, n = 0;
                while (n < counts[bank] && words[n][bank] != word) n++;
                if (n == counts[bank] && n < LANES) words[counts[bank]++][bank] = word;
                worst = std::max(worst, counts[bank]);
            }
        }
        found.total += worst, found.ideal += worst != 0;
    }
    return found;
}

// Lanes at the address that most of them share.
template <class Address>
u32 most_at_one_address(const Address* address, u32 mask) {
    constexpr u32 SLOTS = 2 * LANES;
    Address kept[SLOTS];
    u8 counts[SLOTS] = {};
    u32 most = 0;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        Address wanted = address[__builtin_ctz(bits)];
        u32 slot = (u32)(((u64)wanted >> 1) * 0x9E3779B97F4A7C15ull >> 58);
        while (counts[slot] && kept[slot] != wanted) slot = (slot + 1) % SLOTS;
        kept[slot] = wanted;
        most = std::max<u32>(most, ++counts[slot]);
    }
    return most;
}

// What only some instructions need to know.
template <class Address>
void learn_wanted(Site& s, const Address* address, u32 mask) {
    if (s.wanted & SAME_ADDRESS) s.same_address = most_at_one_address(address, mask);
    for (u32 n = 0; n < 2; n++) {
        if (!(s.wanted & (n ? WIDE_16 : WIDE_8))) continue;
        u32 bytes = 8 << n;
        Address aligned[LANES];
        for (u32 i = 0; i < LANES; i++) aligned[i] = address[i] & ~(Address)(bytes - 1);
        Passes wide = passes(aligned, mask, bytes);
        s.wide[n] = wide.total, s.wide_ideal[n] = wide.ideal;
    }
}

// Bytes covered, as few runs as possible, in ascending order.
void learn_runs(Site& s, u32 bytes) {
    i64 sorted[LANES];
    u32 count = 0;
    for (u32 bits = s.mask; bits; bits &= bits - 1) sorted[count++] = s.delta[__builtin_ctz(bits)];
    std::sort(sorted, sorted + count);
    s.runs = 0;
    for (u32 n = 0; n < count; n++) {
        Run* last = s.runs ? &s.run[s.runs - 1] : nullptr;
        if (last && sorted[n] <= (i64)last->delta + last->bytes)
            last->bytes = (u32)std::max<i64>(last->bytes, sorted[n] + bytes - last->delta);
        else
            s.run[s.runs++] = {(i32)sorted[n], bytes};
    }
}

void learn_cover(Site& s) {
    s.cover_vectors = 0;
    u64 span = (u64)(s.run[s.runs - 1].delta + (i64)s.run[s.runs - 1].bytes - s.run[0].delta);
    if (span > sizeof s.cover) return;
    s.cover_vectors = (u32)((span + 31) / 32);
    memset(s.cover, 0, 32 * s.cover_vectors);
    for (u32 n = 0; n < s.runs; n++) memset(s.cover + (s.run[n].delta - s.run[0].delta), 0xff, s.run[n].bytes);
}

void learn_different(Site& s) {
    s.different = 0;
    if (s.mask != FULL) return;
    u32 count = 0;
    for (u32 i = 0; i < LANES; i++) {
        u32 n = 0;
        while (n < count && s.different_delta[n] != s.short_delta[i]) n++;
        if (n == 16) return;
        if (n == count) s.different_delta[count++] = s.short_delta[i];
        s.lane_choice[i] = n;
    }
    for (u32 n = count; n < 16; n++) s.different_delta[n] = 0;
    s.different = count;
}

template <class Address>
void learn_pattern(Site& s, const Address* address, u32 mask, u32 bytes) {
    add_up(s);
    Address first = address[__builtin_ctz(mask)];
    s.reaches_shared = sizeof(Address) == 4 || (u64)first >> 56 == SHARED_WINDOW;
    s.mask = mask, s.in_shared = sizeof(Address) == 4, s.low = s.high = 0, s.misaligned = 0, s.alignment = FULL;
    bool contiguous = mask == FULL, broadcast = mask == FULL;
    for (int i = 0; i < LANES; i++) {
        bool in = mask >> i & 1;
        i64 d = sizeof(Address) == 4 ? (i64)(i32)(address[i] - first) : (i64)(address[i] - first);
        s.delta[i] = in ? d : 0;
        s.short_delta[i] = (i32)s.delta[i];
        if (!in) continue;
        s.low = std::min(s.low, d), s.high = std::max(s.high, d);
        if (d % bytes) s.misaligned |= 1u << i;
        contiguous &= d == (i64)i * bytes, broadcast &= d == 0;
    }
    s.even = mask == FULL;
    for (int i = 2; i < LANES; i++) s.even &= s.delta[i] == i * s.delta[1];
    // a pattern wider than runs can say is not kept
    s.valid = s.low > -(1ll << 30) && s.high < 1ll << 30;
    s.kind = contiguous ? CONTIGUOUS : broadcast ? BROADCAST : GENERAL;
    Passes banks = passes(address, mask, bytes);
    s.passes = banks.total, s.ideal = banks.ideal;
    if (s.wanted) learn_wanted(s, address, mask);
    s.runs = 0;
    s.cover_vectors = 0;
    if (s.valid) learn_runs(s, bytes);
    if (s.valid && s.in_shared) learn_cover(s);
    learn_different(s);
}

}  // namespace

void learn(Site& s, const u64* address, u32 mask, u32 bytes) { learn_pattern(s, address, mask, bytes); }
void learn(Site& s, const u32* address, u32 mask, u32 bytes) { learn_pattern(s, address, mask, bytes); }
u32 bank_passes(const u64* address, u32 mask, u32 bytes) { return passes(address, mask, bytes).total; }

void learn_lines(Site& s, u64 first, u32 bytes) {
    // lanes whole lines apart stay in their lines, and each has one sector of it
    bool apart = s.alignment != FULL && s.lines && s.even && s.delta[1] && s.delta[1] % 128 == 0 && first % 32 + bytes <= 32;
    s.alignment = first & 127;
    if (apart && s.sectors == s.lines) {
        memset(s.line_sectors, 1 << s.alignment / 32, s.lines);
        return;
    }
    s.lines = 0, s.sectors = 0;
    i64 origin = (i64)(first / 128) * 4;
    auto add = [&](u64 from, u64 end) {
        for (u64 sector = from / 32; sector <= (end - 1) / 32; sector++) {
            i32 line = (i32)(((i64)sector - origin) >> 2);
            u32 n = s.lines;
            // runs ascend, so a line that comes again is the last one
            if (s.valid) n = n && s.line_delta[n - 1] == line ? n : 0;
            while (n && s.line_delta[n - 1] != line) n--;
            if (!n) s.line_delta[s.lines] = line, s.line_sectors[s.lines] = 0, n = ++s.lines;
            s.line_sectors[n - 1] |= 1u << (sector & 3);
        }
    };
    if (s.valid)
        for (u32 n = 0; n < s.runs; n++) add(first + (i64)s.run[n].delta, first + (i64)s.run[n].delta + s.run[n].bytes);
    else
        for (u32 bits = s.mask; bits; bits &= bits - 1) {
            u64 a = first + s.delta[__builtin_ctz(bits)];
            add(a, a + bytes);
        }
    for (u32 n = 0; n < s.lines; n++) s.sectors += __builtin_popcount(s.line_sectors[n]);
    // data comes from the same banks as shared memory's; tags are looked up four lines at a time
    s.wavefronts = std::max(s.passes, (s.lines + 3) / 4);
}

u32 lane_at(const Site& s, i64 delta, u32 bytes) {
    for (u32 bits = s.mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        if (delta >= s.delta[i] && delta < s.delta[i] + (i64)bytes) return i;
    }
    return __builtin_ctz(s.mask);
}
