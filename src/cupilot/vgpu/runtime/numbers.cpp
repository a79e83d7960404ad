// Arithmetic that no plain instruction of the host does: directed rounding, conversions between number
// formats with one rounding, and a few integer instructions that work bit by bit.
#include <cfenv>
#include <cmath>
#include <cstring>

#include "engine.h"

namespace numbers {

// Operand n of a lane lies in region n of the data area (lower/lanes.py).
constexpr int REGION_BYTES = 256;

// --- directed rounding ----------------------------------------------------------------------

enum Operation : u32 { ADD, MUL, FMA, DIV, SQRT };
enum Mode : u32 { NEAREST, TO_ZERO, DOWN, UP, NEAREST_AWAY };

// Volatile operands and results keep the arithmetic between the two changes of the rounding mode.
template <class T> static void compute(u8* data, u32 operation) {
    volatile T* a = (T*)data;
    volatile T* b = (T*)(data + REGION_BYTES);
    volatile T* c = (T*)(data + 2 * REGION_BYTES);
    for (int i = 0; i < LANES; i++) {
        T x = a[i];
        switch (operation) {
            case ADD: a[i] = x + b[i]; break;
            case MUL: a[i] = x * b[i]; break;
            case FMA: a[i] = std::fma(x, (T)b[i], (T)c[i]); break;
            case DIV: a[i] = x / b[i]; break;
            default: a[i] = std::sqrt(x);
        }
    }
}

extern "C" void vg_directed(u8* data, u32 operation, u32 mode, u32 bits) {
    int before = fegetround();
    fesetround(mode == TO_ZERO ? FE_TOWARDZERO : mode == DOWN ? FE_DOWNWARD : FE_UPWARD);
    if (bits == 32) compute<float>(data, operation);
    else compute<double>(data, operation);
    fesetround(before);
}

// --- number formats -------------------------------------------------------------------------

enum : u32 { RELU = 1, SATFINITE = 2, SAT = 4 };

// A binary format: significant bits with the hidden one, bias, and where its pattern sits in a register.
struct Format {
    int precision, bias, exponent_bits, shift;
    u64 nan;
};

// in the order of FORMATS in lower/rounding.py, after eight integer types
constexpr Format FORMATS[] = {
    {11, 15, 5, 0, 0x7fff},       {8, 127, 8, 0, 0x7fff},                 {11, 127, 8, 13, 0x7fffffff},
    {24, 127, 8, 0, 0x7fffffff},  {53, 1023, 11, 0, 0x7ff8000000000000},  {4, 7, 4, 0, 0x7f},
    {3, 15, 5, 0, 0x7f},
};
constexpr u32 FIRST_FLOAT = 8, E4M3 = 13;

struct Number {
    enum { FINITE, INFINITE, NOT_A_NUMBER } kind = FINITE;
    bool minus = false;
    u64 size = 0;  // times two to the exponent
    int exponent = 0;
};

static Number read_integer(u64 bits, u32 type) {
    int width = 8 << (type & 3);
    u64 mask = width == 64 ? ~0ull : (1ull << width) - 1;
    Number n;
    n.size = bits & mask;
    if (type < 4 && bits >> (width - 1) & 1) n.minus = true, n.size = (0 - bits) & mask;
    return n;
}

static Number read_float(u64 bits, u32 type) {
    const Format& f = FORMATS[type - FIRST_FLOAT];
    bits >>= f.shift;
    int fraction = f.precision - 1;
    u64 field = bits >> fraction & ((1ull << f.exponent_bits) - 1), low = bits & ((1ull << fraction) - 1);
    Number n;
    n.minus = bits >> (fraction + f.exponent_bits) & 1;
    if (type == E4M3 ? (bits & 0x7f) == 0x7f : field == (1ull << f.exponent_bits) - 1) {
        n.kind = type == E4M3 || low ? Number::NOT_A_NUMBER : Number::INFINITE;
        return n;
    }
    n.size = field ? low | 1ull << fraction : low;
    n.exponent = (field ? (int)field : 1) - f.bias - fraction;
    return n;
}

// size * 2^-shift as an integer, rounded
static u64 rounded(u64 size, int shift, bool minus, u32 mode) {
    if (shift <= 0) return size << -shift;
    u64 whole = shift < 64 ? size >> shift : 0;
    u64 rest = shift < 64 ? size & ((1ull << shift) - 1) : size;
    if (!rest) return whole;
    // twice the rest against one: below, equal, above
    int against = 0;
    if (shift > 64) against = -1;
    else against = rest > 1ull << (shift - 1) ? 1 : rest < 1ull << (shift - 1) ? -1 : 0;
    bool up;
    switch (mode) {
        case TO_ZERO: up = false; break;
        case DOWN: up = minus; break;
        case UP: up = !minus; break;
        case NEAREST_AWAY: up = against >= 0; break;
        default: up = against > 0 || (against == 0 && (whole & 1));
    }
    return whole + up;
}

static u64 write_float(Number n, u32 type, u32 mode, u32 flags) {
    const Format& f = FORMATS[type - FIRST_FLOAT];
    int fraction = f.precision - 1;
    // e4m3 has no infinity: its place is the pattern of NaN
    u64 infinity = type == E4M3 ? f.nan : ((1ull << f.exponent_bits) - 1) << fraction;
    u64 largest = type == E4M3 ? 0x7e : infinity - 1;
    if (n.kind == Number::NOT_A_NUMBER) return flags & SAT ? 0 : f.nan;
    if (n.minus && flags & (RELU | SAT)) return 0;
    u64 bits;
    bool away = mode == NEAREST || mode == NEAREST_AWAY || mode == (n.minus ? DOWN : UP);
    if (n.kind == Number::INFINITE) {
        bits = infinity;
        away = true;
    } else if (!n.size) {
        bits = 0;
    } else {
        int top = 63 - __builtin_clzll(n.size) + n.exponent;
        int lowest = 1 - f.bias - fraction;
        int last = top - fraction > lowest ? top - fraction : lowest;
        u64 whole = rounded(n.size, last - n.exponent, n.minus, mode);
        // a carry out of the fraction moves into the exponent, as it should
        u64 field = (u64)(last - lowest);
        bits = field >= (1ull << f.exponent_bits) ? infinity : (field << fraction) + whole;
    }
    if (bits > largest) bits = flags & SATFINITE || !away ? largest : infinity;
    u64 one = (u64)f.bias << fraction;
    if (flags & SAT && bits > one) bits = one;
    return (bits | (u64)n.minus << (fraction + f.exponent_bits)) << f.shift;
}

extern "C" void vg_convert(u64* data, u32 from, u32 to, u32 mode, u32 flags) {
    for (int i = 0; i < LANES; i++) {
        Number n = from < FIRST_FLOAT ? read_integer(data[i], from) : read_float(data[i], from);
        data[i] = write_float(n, to, mode, flags);
    }
}

// --- integers -------------------------------------------------------------------------------

// data: mask, base, offset (signed); the position of the offset-th set bit from the base, or all ones
extern "C" void vg_fns(u8* data) {
    u32* mask = (u32*)data;
    u32* base = (u32*)(data + REGION_BYTES);
    i32* offset = (i32*)(data + 2 * REGION_BYTES);
    for (int i = 0; i < LANES; i++) {
        u32 m = mask[i], start = base[i], found = ~0u;
        i32 count = offset[i], step = count < 0 ? -1 : 1;
        if (count == 0) {
            if (start < 32 && m >> start & 1) found = start;
        } else {
            u64 left = count < 0 ? -(i64)count : count;
            for (i64 at = start; at >= 0 && at < 32; at += step) {
                if (m >> at & 1 && --left == 0) {
                    found = (u32)at;
                    break;
                }
            }
        }
        mask[i] = found;
    }
}

enum Video : u32 { VADD, VSUB, VAVRG, VABSDIFF, VMIN, VMAX };
enum : u32 { RESULT_SIGNED = 1, A_SIGNED = 2, B_SIGNED = 4, CLAMPED = 8, ACCUMULATED = 16 };

static i32 element(u32 word, int at, int bits, bool is_signed) {
    u32 top = word << (32 - bits - at);
    return is_signed ? (i32)top >> (32 - bits) : (i32)(top >> (32 - bits));
}

static i32 combine(u32 operation, i32 a, i32 b) {
    switch (operation) {
        case VADD: return a + b;
        case VSUB: return a - b;
        case VAVRG: return (a + b + (a + b >= 0)) >> 1;
        case VABSDIFF: return a > b ? a - b : b - a;
        case VMIN: return a < b ? a : b;
        default: return a > b ? a : b;
    }
}

// data: a, b, c; two halfwords or four bytes, stored side by side or added to c
extern "C" void vg_video(u8* data, u32 operation, u32 count, u32 flags) {
    u32* a = (u32*)data;
    u32* b = (u32*)(data + REGION_BYTES);
    u32* c = (u32*)(data + 2 * REGION_BYTES);
    int bits = 32 / (int)count;
    i32 high = flags & RESULT_SIGNED ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    i32 low = flags & RESULT_SIGNED ? -(1 << (bits - 1)) : 0;
    for (int i = 0; i < LANES; i++) {
        u32 packed = 0, total = c[i];
        for (int at = 0; at < 32; at += bits) {
            i32 x = element(a[i], at, bits, flags & A_SIGNED), y = element(b[i], at, bits, flags & B_SIGNED);
            i32 value = combine(operation, x, y);
            if (flags & CLAMPED) value = value < low ? low : value > high ? high : value;
            packed |= ((u32)value & (u32)((1ull << bits) - 1)) << at;
            total += (u32)value;
        }
        a[i] = flags & ACCUMULATED ? total : packed;
    }
}

}  // namespace numbers
