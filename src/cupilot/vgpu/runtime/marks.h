// What is known of the bytes of a buffer. Most stores cover whole 32-byte sectors, and so a sector has one state for all of
// its bytes; only where a sector is MIXED does each byte have its own. Several host threads come here at the same time.
#pragma once

#include "shadow.h"

constexpr u64 SECTOR = 32;
// In place of the launch's number while a page's marks are brought up to date.
constexpr u32 SETTLING = BY_HOST - 1;

// What all bytes of a sector are, or MIXED.
inline u8 sector_state(const Marks& m, u64 sector) {
    u8 state;
    while ((state = __atomic_load_n(m.sectors + sector, __ATOMIC_ACQUIRE)) == BUSY) _mm_pause();
    return state;
}

inline u8 state_of(const Marks& m, u64 offset) {
    u8 state = sector_state(m, offset / SECTOR);
    return state == MIXED ? m.bytes[offset] : state;
}

// Give each byte of a sector its own state.
inline void part(const Marks& m, u64 sector) {
    u8 *at = m.sectors + sector, state = sector_state(m, sector), busy = BUSY;
    for (; state != MIXED; busy = BUSY, state = sector_state(m, sector)) {
        if (!__atomic_compare_exchange_n(at, &state, BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
        fill_state(m.bytes + sector * SECTOR, SECTOR, state);
        // another block may have stored to the whole sector meanwhile; then that is what its bytes are
        if (__atomic_compare_exchange_n(at, &busy, MIXED, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
}

// Go through a range: `whole(sector, count)` for those that lie within it, `part(sector, offset, bytes)` for the others.
// Ends with the first that says false.
template <class Whole, class Part>
inline bool by_sector(u64 offset, u64 bytes, Whole whole, Part part) {
    u64 end = offset + bytes, sector = offset / SECTOR;
    if (u64 skipped = offset % SECTOR) {
        u64 count = std::min(SECTOR - skipped, bytes);
        if (!part(sector++, offset, count)) return false;
        if (sector * SECTOR >= end) return true;
    }
    if (u64 count = end / SECTOR - sector) {
        if (!whole(sector, count)) return false;
        sector += count;
    }
    return sector * SECTOR >= end || part(sector, sector * SECTOR, end - sector * SECTOR);
}

// Whether `fine(states, count)`, which must be false where one is MIXED or BUSY, is true of all bytes.
template <class Fine>
inline bool every(const Marks& m, u64 offset, u64 bytes, Fine fine) {
    u64 first = offset / SECTOR, end = (offset + bytes + SECTOR - 1) / SECTOR;
    if (end - first > 1 && fine(m.sectors + first, end - first)) return true;
    for (u64 sector = first; bytes && sector < end; sector++) {
        u8 state = sector_state(m, sector);
        u64 from = std::max(offset, sector * SECTOR), to = std::min(offset + bytes, (sector + 1) * SECTOR);
        if (!(state == MIXED ? fine(m.bytes + from, to - from) : fine(&state, 1))) return false;
    }
    return true;
}

inline void fill(const Marks& m, u64 offset, u64 bytes, u8 value) {
    by_sector(
        offset, bytes,
        [&](u64 sector, u64 count) {
            fill_state(m.sectors + sector, count, value);
            return true;
        },
        [&](u64 sector, u64 from, u64 count) {
            if (m.sectors[sector] == value) return true;
            part(m, sector);
            fill_state(m.bytes + from, count, value);
            return true;
        });
}

// What nobody wrote is WRITTEN now; marks stay.
inline void fill_never(const Marks& m, u64 offset, u64 bytes) {
    for (u64 b = offset; b < offset + bytes; b++)
        if (state_of(m, b) == NEVER) fill(m, b, 1, WRITTEN);
}

// Put down that `me` read a range.
inline void mark_reads(const Marks& m, u64 offset, u64 bytes, u8 me) {
    by_sector(
        offset, bytes,
        [&](u64 sector, u64 count) {
            if (only(m.sectors + sector, count, NEVER, me)) return fill_state(m.sectors + sector, count, me), true;
            for (u64 end = sector + count; sector < end; sector++) {
                u8 state = sector_state(m, sector);
                if (state == MIXED)
                    mark_readers(m.bytes + sector * SECTOR, SECTOR, me);
                else if (state != me)
                    m.sectors[sector] = state == NEVER ? me : (u8)MANY;
            }
            return true;
        },
        [&](u64 sector, u64 from, u64 count) {
            u8 state = sector_state(m, sector);
            if (state == me || state == MANY) return true;
            part(m, sector);
            mark_readers(m.bytes + from, count, me);
            return true;
        });
}

// --- the marks of older launches ---------------------------------------------------------------

// Writers of a page become WRITTEN, and sectors whose bytes all are need no bytes any more.
inline void settle_writers(const Marks& m, u64 page) {
    const __m256i one = _mm256_set1_epi8(WRITTEN), mixed = _mm256_set1_epi8((char)MIXED);
    for (u64 sector = page * (PAGE / SECTOR), end = sector + PAGE / SECTOR; sector < end; sector += 32) {
        __m256i* at = (__m256i*)(m.sectors + sector);
        __m256i v = _mm256_loadu_si256(at), parted = _mm256_cmpeq_epi8(v, mixed);
        _mm256_storeu_si256(at, _mm256_blendv_epi8(_mm256_min_epu8(v, one), mixed, parted));
        for (u32 bits = (u32)_mm256_movemask_epi8(parted); bits; bits &= bits - 1) {
            u64 n = sector + __builtin_ctz(bits);
            settle(m.bytes + n * SECTOR, SECTOR);
            if (only(m.bytes + n * SECTOR, SECTOR, WRITTEN, WRITTEN)) m.sectors[n] = WRITTEN;
        }
    }
}

// Readers of older launches do not matter.
inline void forget_readers(const Marks& m, u64 page) { memset(m.sectors + page * (PAGE / SECTOR), NEVER, PAGE / SECTOR); }

// Bring the pages of a range up to this launch; one thread does it for all.
template <class Settle>
inline void bring_up(const Marks& m, u32 launch, u64 offset, u64 bytes, Settle settle) {
    for (u64 page = offset / PAGE, last = (offset + bytes - 1) / PAGE; page <= last; page++) {
        u32* at = m.launches + page;
        for (u32 old = __atomic_load_n(at, __ATOMIC_ACQUIRE); old != launch; old = __atomic_load_n(at, __ATOMIC_ACQUIRE)) {
            if (old == SETTLING || !__atomic_compare_exchange_n(at, &old, SETTLING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                _mm_pause();
                continue;
            }
            if (old) settle(m, page);
            __atomic_store_n(at, launch, __ATOMIC_RELEASE);
        }
    }
}
