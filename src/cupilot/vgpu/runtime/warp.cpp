// Exchange between the lanes of a warp that needs a look at all of them (PTX ISA: shfl, match, redux).
// Only the lanes that are active at the moment and named in the member mask take part; lanes with different
// member masks form groups of their own.
#include <cstring>

#include "engine.h"

// The lanes of `left` that share the first one's member mask, among the active ones that it names.
static u32 next_group(const u32* members, u32 active, u32 left) {
    u32 wanted = members[__builtin_ctz(left)], group = 0;
    for (u32 bits = left; bits; bits &= bits - 1)
        if (members[__builtin_ctz(bits)] == wanted) group |= bits & -bits;
    // a lane outside its own mask is undefined on hardware; here it is alone
    u32 named = group & wanted & active;
    return named ? named : left & -left;
}

// data: values, b, c, members (32 words each); the moved values replace the first. Returns the in-range bits.
extern "C" u32 vg_shuffle(u32* data, u32 mode, u32 active) {
    const u32 *amount = data + LANES, *clamp = data + 2 * LANES, *members = data + 3 * LANES;
    u32 moved[LANES], inside = 0;
    for (u32 lane = 0; lane < LANES; lane++) {
        u32 b = amount[lane] & 31, bound = clamp[lane] & 31, segment = clamp[lane] >> 8 & 31;
        i32 maximum = (i32)((lane & segment) | (bound & ~segment)), other;
        bool in;
        if (mode == 0) other = (i32)lane - (i32)b, in = other >= maximum;
        else if (mode == 1) other = (i32)(lane + b), in = other <= maximum;
        else if (mode == 2) other = (i32)(lane ^ b), in = other <= maximum;
        else other = (i32)((lane & segment) | (b & ~segment)), in = other <= maximum;
        inside |= (u32)in << lane;
        if (!in) other = (i32)lane;
        // what an absent lane holds is undefined on hardware; here it is zero
        moved[lane] = (active & members[lane]) >> other & 1 ? data[other] : 0;
    }
    memcpy(data, moved, sizeof moved);
    return inside;
}

// data: 32 values of 8 bytes, then members; results replace the members. With `all`, returns the lanes whose group
// agrees; else a lane gets the mask of the lanes with its value.
extern "C" u32 vg_match(u64* data, u32 all, u32 active) {
    u32* members = (u32*)(data + LANES);
    u32 result[LANES] = {}, agreed = 0;
    for (u32 left = active; left;) {
        u32 group = next_group(members, active, left);
        left &= ~group;
        for (u32 rest = group; rest;) {
            u64 value = data[__builtin_ctz(rest)];
            u32 same = 0;
            for (u32 bits = rest; bits; bits &= bits - 1)
                if (data[__builtin_ctz(bits)] == value) same |= bits & -bits;
            rest &= ~same;
            if (all && same != group) break;
            agreed |= same;
            for (u32 bits = same; bits; bits &= bits - 1) result[__builtin_ctz(bits)] = same;
        }
    }
    memcpy(members, result, sizeof result);
    return agreed;
}

// --- redux ----------------------------------------------------------------------------------

template <class Combine>
static inline void reduce(u32* data, u32 active, Combine combine) {
    const u32* members = data + LANES;
    for (u32 left = active; left;) {
        u32 group = next_group(members, active, left);
        left &= ~group;
        u32 total = data[__builtin_ctz(group)];
        for (u32 bits = group & (group - 1); bits; bits &= bits - 1) total = combine(total, data[__builtin_ctz(bits)]);
        for (u32 bits = group; bits; bits &= bits - 1) data[__builtin_ctz(bits)] = total;
    }
}

// Floats as integers of the same order: -0 is less than +0.
static inline i32 order_of(u32 bits) { return (i32)(bits & 0x80000000 ? ~bits ^ 0x80000000 : bits); }
static inline bool is_nan(u32 bits) { return (bits & 0x7fffffff) > 0x7f800000; }

template <bool GREATER>
static void reduce_float(u32* data, u32 active, u32 absolute, u32 spread_nan) {
    for (u32 i = 0; i < LANES; i++) {
        if (absolute) data[i] &= 0x7fffffff;
        if (is_nan(data[i])) data[i] = 0x7fffffff;
    }
    reduce(data, active, [=](u32 a, u32 b) {
        if (is_nan(a) || is_nan(b)) return spread_nan ? 0x7fffffffu : is_nan(a) ? b : a;
        return (order_of(a) > order_of(b)) == GREATER ? a : b;
    });
}

// data: values, members (32 words each); every lane's value becomes the result of its group.
#define REDUX(NAME, EXPRESSION) \
    extern "C" void vg_redux_##NAME(u32* data, u32 active) { reduce(data, active, [](u32 a, u32 b) { return EXPRESSION; }); }

REDUX(add_u32, a + b)
REDUX(and_b32, a & b)
REDUX(or_b32, a | b)
REDUX(xor_b32, a ^ b)
REDUX(min_u32, a < b ? a : b)
REDUX(max_u32, a > b ? a : b)
REDUX(min_s32, (i32)a < (i32)b ? a : b)
REDUX(max_s32, (i32)a > (i32)b ? a : b)

extern "C" void vg_redux_min_f32(u32* data, u32 active, u32 absolute, u32 spread_nan) {
    reduce_float<false>(data, active, absolute, spread_nan);
}

extern "C" void vg_redux_max_f32(u32* data, u32 active, u32 absolute, u32 spread_nan) {
    reduce_float<true>(data, active, absolute, spread_nan);
}
