// Tests and updates of ranges of byte states, 32 bytes at a time.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine.h"

// Words of 1, 2, 4, 8, 16 or 32 bytes, from long to short, until a range is done.
template <class Wide, class Narrow>
inline bool over_range(u64 bytes, Wide wide, Narrow narrow) {
    u64 at = 0;
    for (; at + 32 <= bytes; at += 32)
        if (!wide(at)) return false;
    for (; at + 8 <= bytes; at += 8)
        if (!narrow(at, u64{})) return false;
    if (at + 4 <= bytes) {
        if (!narrow(at, u32{})) return false;
        at += 4;
    }
    for (; at < bytes; at++)
        if (!narrow(at, u8{})) return false;
    return true;
}

template <class Word>
inline Word repeated(u8 value) {
    return (Word)((Word)~Word{0} / 255 * value);
}

template <class Word>
inline Word word_at(const u8* p) {
    Word word;
    memcpy(&word, p, sizeof(Word));
    return word;
}

// Whether each 32-byte or shorter piece of a range is all `x`, all `y` or (byte by byte) a mix of the two.
inline bool only(const u8* state, u64 bytes, u8 x, u8 y) {
    const __m256i vx = _mm256_set1_epi8((char)x), vy = _mm256_set1_epi8((char)y);
    return over_range(
        bytes,
        [&](u64 at) {
            __m256i v = _mm256_loadu_si256((const __m256i*)(state + at));
            return _mm256_movemask_epi8(_mm256_or_si256(_mm256_cmpeq_epi8(v, vx), _mm256_cmpeq_epi8(v, vy))) == -1;
        },
        [&](u64 at, auto word) {
            using Word = decltype(word);
            Word v = word_at<Word>(state + at);
            if (v == repeated<Word>(x) || v == repeated<Word>(y)) return true;
            for (u64 b = 0; b < sizeof(Word); b++)
                if (state[at + b] != x && state[at + b] != y) return false;
            return true;
        });
}

// No byte is NEVER.
inline bool all_written(const u8* state, u64 bytes) {
    return over_range(
        bytes,
        [&](u64 at) {
            __m256i v = _mm256_loadu_si256((const __m256i*)(state + at));
            return _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_setzero_si256())) == 0;
        },
        [&](u64 at, auto word) {
            for (u64 b = 0; b < sizeof(word); b++)
                if (!state[at + b]) return false;
            return true;
        });
}

// Every byte is WRITTEN or has the mark of a block.
inline bool marked_written(const u8* state, u64 bytes) {
    const __m256i one = _mm256_set1_epi8(1), most = _mm256_set1_epi8((char)(MIXED - 2));
    return over_range(
        bytes,
        [&](u64 at) {
            __m256i v = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i*)(state + at)), one);
            return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(v, most), most)) == -1;
        },
        [&](u64 at, auto word) {
            for (u64 b = 0; b < sizeof(word); b++)
                if (state[at + b] == NEVER || state[at + b] >= MIXED) return false;
            return true;
        });
}

// A lane that reads some bytes that were written means those: structures have gaps, and rows end within a vector.
// A longer copy means all of its bytes.
inline bool none_written(const u8* state, u64 bytes) { return bytes > 16 || only(state, bytes, NEVER, NEVER); }

// No byte was written by anybody else in this interval: NEVER, WRITTEN or `me`.
inline bool mine_or_old(const u8* state, u64 bytes, u8 me) {
    const __m256i one = _mm256_set1_epi8(1), vm = _mm256_set1_epi8((char)me);
    return over_range(
        bytes,
        [&](u64 at) {
            __m256i v = _mm256_loadu_si256((const __m256i*)(state + at));
            __m256i old = _mm256_cmpeq_epi8(_mm256_max_epu8(v, one), one);
            return _mm256_movemask_epi8(_mm256_or_si256(old, _mm256_cmpeq_epi8(v, vm))) == -1;
        },
        [&](u64 at, auto word) {
            using Word = decltype(word);
            Word v = word_at<Word>(state + at);
            if (!v || v == repeated<Word>(1) || v == repeated<Word>(me)) return true;
            for (u64 b = 0; b < sizeof(Word); b++)
                if (state[at + b] > 1 && state[at + b] != me) return false;
            return true;
        });
}

// Put down that `me` read a range: the only reader, or one of many.
inline void mark_readers(u8* readers, u64 bytes, u8 me) {
    const __m256i zero = _mm256_setzero_si256(), vm = _mm256_set1_epi8((char)me), many = _mm256_set1_epi8((char)MANY);
    over_range(
        bytes,
        [&](u64 at) {
            __m256i v = _mm256_loadu_si256((const __m256i*)(readers + at));
            __m256i alone = _mm256_or_si256(_mm256_cmpeq_epi8(v, zero), _mm256_cmpeq_epi8(v, vm));
            _mm256_storeu_si256((__m256i*)(readers + at), _mm256_blendv_epi8(many, vm, alone));
            return true;
        },
        [&](u64 at, auto word) {
            using Word = decltype(word);
            Word v = word_at<Word>(readers + at), mine = repeated<Word>(me);
            if (v == mine || v == repeated<Word>(MANY)) return true;
            if (!v) {
                memcpy(readers + at, &mine, sizeof(Word));
                return true;
            }
            for (u64 b = 0; b < sizeof(Word); b++)
                readers[at + b] = readers[at + b] == 0 || readers[at + b] == me ? me : (u8)MANY;
            return true;
        });
}

inline void fill_state(u8* state, u64 bytes, u8 value) {
    const __m256i v = _mm256_set1_epi8((char)value);
    over_range(
        bytes,
        [&](u64 at) {
            _mm256_storeu_si256((__m256i*)(state + at), v);
            return true;
        },
        [&](u64 at, auto word) {
            using Word = decltype(word);
            Word w = repeated<Word>(value);
            memcpy(state + at, &w, sizeof(Word));
            return true;
        });
}

// Marks become WRITTEN: an interval is over.
inline void settle(u8* state, u64 bytes) {
    const __m256i one = _mm256_set1_epi8(1);
    over_range(
        bytes,
        [&](u64 at) {
            __m256i* p = (__m256i*)(state + at);
            _mm256_storeu_si256(p, _mm256_min_epu8(_mm256_loadu_si256(p), one));
            return true;
        },
        [&](u64 at, auto word) {
            for (u64 b = 0; b < sizeof(word); b++) state[at + b] = state[at + b] ? 1 : 0;
            return true;
        });
}

// --- the bytes that a site's cover names, from the lowest address on ---------------------------

// All covered bytes are WRITTEN or `me`; puts down that `me` read them when asked to.
inline bool cover_read(const Site& s, const u8* state, u8* readers, u8 me, bool mark) {
    const __m256i one = _mm256_set1_epi8(WRITTEN), vm = _mm256_set1_epi8((char)me), many = _mm256_set1_epi8((char)MANY);
    const __m256i zero = _mm256_setzero_si256();
    __m256i fine = _mm256_set1_epi8(-1);
    for (u32 n = 0; n < s.cover_vectors; n++) {
        __m256i cover = _mm256_load_si256((const __m256i*)(s.cover + 32 * n));
        __m256i v = _mm256_loadu_si256((const __m256i*)(state + 32 * n));
        __m256i good = _mm256_or_si256(_mm256_cmpeq_epi8(v, one), _mm256_cmpeq_epi8(v, vm));
        fine = _mm256_and_si256(fine, _mm256_or_si256(good, _mm256_xor_si256(cover, _mm256_set1_epi8(-1))));
        if (mark) {
            __m256i* at = (__m256i*)(readers + 32 * n);
            __m256i r = _mm256_loadu_si256(at);
            __m256i alone = _mm256_or_si256(_mm256_cmpeq_epi8(r, zero), _mm256_cmpeq_epi8(r, vm));
            _mm256_storeu_si256(at, _mm256_blendv_epi8(r, _mm256_blendv_epi8(many, vm, alone), cover));
        }
    }
    return _mm256_movemask_epi8(fine) == -1;
}

// No covered byte was written or read by anybody else in this interval.
inline bool cover_write(const Site& s, const u8* state, const u8* readers, u8 me) {
    const __m256i one = _mm256_set1_epi8(WRITTEN), vm = _mm256_set1_epi8((char)me), zero = _mm256_setzero_si256();
    __m256i fine = _mm256_set1_epi8(-1);
    for (u32 n = 0; n < s.cover_vectors; n++) {
        __m256i cover = _mm256_load_si256((const __m256i*)(s.cover + 32 * n));
        __m256i v = _mm256_loadu_si256((const __m256i*)(state + 32 * n));
        __m256i r = _mm256_loadu_si256((const __m256i*)(readers + 32 * n));
        __m256i old = _mm256_cmpeq_epi8(_mm256_max_epu8(v, one), one);
        __m256i good = _mm256_and_si256(_mm256_or_si256(old, _mm256_cmpeq_epi8(v, vm)),
                                        _mm256_or_si256(_mm256_cmpeq_epi8(r, zero), _mm256_cmpeq_epi8(r, vm)));
        fine = _mm256_and_si256(fine, _mm256_or_si256(good, _mm256_xor_si256(cover, _mm256_set1_epi8(-1))));
    }
    return _mm256_movemask_epi8(fine) == -1;
}

inline void cover_fill(const Site& s, u8* state, u8 value) {
    const __m256i v = _mm256_set1_epi8((char)value);
    for (u32 n = 0; n < s.cover_vectors; n++) {
        __m256i* at = (__m256i*)(state + 32 * n);
        __m256i cover = _mm256_load_si256((const __m256i*)(s.cover + 32 * n));
        _mm256_storeu_si256(at, _mm256_blendv_epi8(_mm256_loadu_si256(at), v, cover));
    }
}
