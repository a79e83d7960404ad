// Atomic updates of memory by the lanes of a warp (PTX ISA: atom, red).
// Lanes act in lane order. Blocks may run on several host threads, so global memory is updated with the host's
// atomic operations; shared memory belongs to one block, which one host thread runs.
#include <cmath>
#include <cstring>

#include "chain.h"
#include "engine.h"

using u16 = uint16_t;
using u128 = unsigned __int128;

// --- the host's atomic operations -----------------------------------------------------------

// Put `now` where `seen` is expected; otherwise `seen` becomes what is there.
template <class Word>
static inline bool swap_word(Word* p, Word& seen, Word now) {
    return __atomic_compare_exchange_n(p, &seen, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline bool swap_word(u128* p, u128& seen, u128 now) {
    u128 expected = seen;
    seen = __sync_val_compare_and_swap(p, expected, now);
    return seen == expected;
}

template <class Word>
static inline Word load_word(Word* p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline u128 load_word(u128* p) { return __sync_val_compare_and_swap(p, (u128)0, (u128)0); }

// --- 16-bit floats --------------------------------------------------------------------------

// Sums of two 16-bit floats are rounded to float and then to 16 bits; that is the same as rounding once,
// because float has more than twice the digits.

static inline float as_float(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline u32 as_bits(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

struct Half {
    static float wide(u16 bits) {
        u32 sign = (u32)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
        if (exponent == 31) return as_float(sign | 0x7f800000 | fraction << 13);
        if (exponent == 0) return as_float(sign | as_bits((float)fraction * 0x1p-24f));
        return as_float(sign | (exponent + 112) << 23 | fraction << 13);
    }
    static u16 narrow(float value) {
        u32 bits = as_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000) return 0x7fff;
        if (magnitude >= as_bits(65520.0f)) return (u16)(sign | 0x7c00);
        // below the smallest normal number the digits count steps of 2^-24
        if (magnitude < as_bits(0x1p-14f)) return (u16)(sign | (u32)std::nearbyint(as_float(magnitude) * 0x1p24f));
        return (u16)(sign | (((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10)));
    }
};

struct Brain {
    static float wide(u16 bits) { return as_float((u32)bits << 16); }
    static u16 narrow(float value) {
        u32 bits = as_bits(value);
        if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
        return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

// --- operations -----------------------------------------------------------------------------

// Each gives the new word from the old one and the operands. `fetch` is the host's own instruction, where it has one.
template <class W>
struct Plain {
    using Word = W;
    static constexpr bool NATIVE = false;
    static constexpr bool WAITS = false;  // whoever does it may wait for what it finds
    static Word fetch(Word*, Word) { return 0; }
};

#define NATIVE_OPERATION(NAME, BUILTIN, EXPRESSION)                                       \
    template <class W>                                                                    \
    struct NAME : Plain<W> {                                                              \
        static constexpr bool NATIVE = sizeof(W) <= 8;                                    \
        static W fetch(W* p, W b) { return BUILTIN(p, b, __ATOMIC_SEQ_CST); }             \
        static W apply(W old, W b, W, bool) { return EXPRESSION; }                        \
    };
NATIVE_OPERATION(And, __atomic_fetch_and, old & b)
NATIVE_OPERATION(Or, __atomic_fetch_or, old | b)
NATIVE_OPERATION(Xor, __atomic_fetch_xor, old ^ b)
NATIVE_OPERATION(Add, __atomic_fetch_add, old + b)

#define OPERATION(NAME, EXPRESSION)                                                       \
    template <class W>                                                                    \
    struct NAME : Plain<W> {                                                              \
        static W apply(W old, W b, W c, bool) { return (void)c, (void)old, EXPRESSION; }  \
    };
template <class W>
struct Exchange : Plain<W> {
    static constexpr bool WAITS = true;
    static W apply(W, W b, W, bool) { return b; }
};
template <class W>
struct Compare : Plain<W> {
    static constexpr bool WAITS = true;
    static W apply(W old, W b, W c, bool) { return old == b ? c : old; }
};
OPERATION(Increment, old >= b ? 0 : old + 1)
OPERATION(Decrement, old == 0 || old > b ? b : old - 1)

template <class W, class Number>
struct Minimum : Plain<W> {
    static W apply(W old, W b, W, bool) { return (Number)b < (Number)old ? b : old; }
};

template <class W, class Number>
struct Maximum : Plain<W> {
    static W apply(W old, W b, W, bool) { return (Number)b > (Number)old ? b : old; }
};

// In global memory subnormal operands and results count as zeros of their sign; in shared memory they do not.
struct AddFloat : Plain<u32> {
    static u32 flush(u32 bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
    static u32 apply(u32 old, u32 b, u32, bool shared) {
        float sum = shared ? as_float(old) + as_float(b) : as_float(flush(old)) + as_float(flush(b));
        if (sum != sum) return 0x7fffffff;
        return shared ? as_bits(sum) : flush(as_bits(sum));
    }
};

struct AddDouble : Plain<u64> {
    static u64 apply(u64 old, u64 b, u64, bool) {
        double x, y;
        memcpy(&x, &old, 8), memcpy(&y, &b, 8);
        x += y;
        memcpy(&old, &x, 8);
        return old;
    }
};

template <class Format>
struct AddShort : Plain<u16> {
    static u16 apply(u16 old, u16 b, u16, bool) { return Format::narrow(Format::wide(old) + Format::wide(b)); }
};

// As the min and max instructions do: a number wins over NaN, and -0 is less than +0.
template <class Format, bool GREATER>
struct ExtremeShort : Plain<u16> {
    static u16 apply(u16 old, u16 b, u16, bool) {
        float x = Format::wide(old), y = Format::wide(b);
        if (x != x) return y != y ? 0x7fff : b;
        if (y != y) return old;
        if (x == y) return GREATER == (bool)(old & 0x8000) ? b : old;
        return (x > y) == GREATER ? old : b;
    }
};

// The operation on both halves of a word.
template <class Short>
struct Packed : Plain<u32> {
    static u32 apply(u32 old, u32 b, u32, bool shared) {
        return (u32)Short::apply((u16)(old >> 16), (u16)(b >> 16), 0, shared) << 16 |
               Short::apply((u16)old, (u16)b, 0, shared);
    }
};

// --- one instruction ------------------------------------------------------------------------

// The lanes of `run` update one word, in order, as one step. b is replaced by what each lane found.
template <class Operation, class Word = typename Operation::Word>
static inline void update_word(Word* p, Word* b, const Word* c, u32 run, bool shared) {
    if (!shared && Operation::NATIVE && !(run & (run - 1))) {
        u32 i = __builtin_ctz(run);
        b[i] = Operation::fetch(p, b[i]);
        return;
    }
    Word found[LANES], seen = shared ? *p : load_word(p), now;
    do {
        now = seen;
        for (u32 bits = run; bits; bits &= bits - 1) {
            u32 i = __builtin_ctz(bits);
            found[i] = now;
            now = Operation::apply(now, b[i], c[i], shared);
        }
        if (shared) *p = now;
        // a value that stays needs no store: the load was the atomic step
    } while (!shared && now != seen && !swap_word(p, seen, now));
    for (u32 bits = run; bits; bits &= bits - 1) b[__builtin_ctz(bits)] = found[__builtin_ctz(bits)];
}

// Lanes of one request may reach several buffers; each buffer's part is counted on its own.
static void count_parts(Context* c, u32 site, Space space, const u64* address, u32 mask, u32 bytes, bool shared) {
    while (mask) {
        u32 part = mask;
        if (!shared) {
            Allocation* a = find_allocation(address[__builtin_ctz(mask)]);
            for (u32 bits = a ? mask : 0; bits; bits &= bits - 1)
                if (address[__builtin_ctz(bits)] - a->base >= a->bytes) part &= ~(bits & -bits);
        }
        count_request(c, site, space, address, part, bytes, true);
        mask &= ~part;
    }
}

// Who takes a lock or waits for a turn finds what another block left there; who only adds to it does not wait.
template <class Operation>
static void meet_word(Context* c, const Warp* w, u64 place, bool changed) {
    const Meeting kind = !changed ? Meeting::LOOK : Operation::WAITS ? Meeting::TAKE : Meeting::PASS;
    meet(c, w, &place, 1, kind, sizeof(typename Operation::Word));
}

// data: the operands of all lanes, element by element, then the second operand (cas); results replace the first.
// Lanes that may not access their address get zero.
template <class Operation>
static void update(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data, u32 space, u32 elements,
                   u32 releases) {
    using Word = typename Operation::Word;
    constexpr u32 WORD_BYTES = sizeof(Word);
    auto* operand = (Word*)data;
    // only cas has a second operand; the others are given some words that they ignore
    const Word* second = elements == 1 ? operand + LANES : operand;
    const Space where = (Space)space;
    u32 fine[2] = {};  // global, shared
    if (releases && mask) publish(c, w);  // what the block wrote before becomes visible through this atomic
    for (u32 bits = mask; bits;) {
        u32 lane = __builtin_ctz(bits), run = 0;
        u64 place = address[lane];
        for (; bits && address[__builtin_ctz(bits)] == place; bits &= bits - 1) run |= bits & -bits;
        bool shared = where == Space::SHARED || (where == Space::GENERIC && place >> 56 == 1);
        u8* p = reach(c, w, site, run, where, place, WORD_BYTES * elements, Use::UPDATE);
        if (p) fine[shared] |= run;
        const bool met = p && !shared && c->time->meetings;
        const Word before = met ? load_word((Word*)p) : Word{};
        for (u32 n = 0; n < elements; n++) {
            Word* b = operand + n * LANES;
            if (p)
                update_word<Operation>((Word*)p + n, b, second, run, shared);
            else
                for (u32 rest = run; rest; rest &= rest - 1) b[__builtin_ctz(rest)] = 0;
        }
        if (met) meet_word<Operation>(c, w, place, load_word((Word*)p) != before);
    }
    for (u32 shared = 0; shared < 2; shared++)
        count_parts(c, site, where, address, fine[shared], WORD_BYTES * elements, shared);
}

#define ATOM(NAME, ...)                                                                                              \
    extern "C" void vg_atom_##NAME(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data, u32 space, \
                                   u32 elements, u32 releases) {                                                     \
        update<__VA_ARGS__>(c, w, site, address, mask, data, space, elements, releases);                             \
    }

ATOM(and_b32, And<u32>) ATOM(and_b64, And<u64>)
ATOM(or_b32, Or<u32>) ATOM(or_b64, Or<u64>)
ATOM(xor_b32, Xor<u32>) ATOM(xor_b64, Xor<u64>)
ATOM(exch_b32, Exchange<u32>) ATOM(exch_b64, Exchange<u64>) ATOM(exch_b128, Exchange<u128>)
ATOM(cas_b16, Compare<u16>) ATOM(cas_b32, Compare<u32>) ATOM(cas_b64, Compare<u64>) ATOM(cas_b128, Compare<u128>)
ATOM(inc_u32, Increment<u32>) ATOM(dec_u32, Decrement<u32>)
ATOM(add_u32, Add<u32>) ATOM(add_u64, Add<u64>)
ATOM(add_f32, AddFloat) ATOM(add_f64, AddDouble)
ATOM(add_f16, AddShort<Half>) ATOM(add_bf16, AddShort<Brain>)
ATOM(add_f16x2, Packed<AddShort<Half>>) ATOM(add_bf16x2, Packed<AddShort<Brain>>)
ATOM(min_u32, Minimum<u32, u32>) ATOM(min_s32, Minimum<u32, i32>)
ATOM(min_u64, Minimum<u64, u64>) ATOM(min_s64, Minimum<u64, i64>)
ATOM(max_u32, Maximum<u32, u32>) ATOM(max_s32, Maximum<u32, i32>)
ATOM(max_u64, Maximum<u64, u64>) ATOM(max_s64, Maximum<u64, i64>)
ATOM(min_f16, ExtremeShort<Half, false>) ATOM(max_f16, ExtremeShort<Half, true>)
ATOM(min_bf16, ExtremeShort<Brain, false>) ATOM(max_bf16, ExtremeShort<Brain, true>)
ATOM(min_f16x2, Packed<ExtremeShort<Half, false>>) ATOM(max_f16x2, Packed<ExtremeShort<Half, true>>)
ATOM(min_bf16x2, Packed<ExtremeShort<Brain, false>>) ATOM(max_bf16x2, Packed<ExtremeShort<Brain, true>>)
