// Functions of the special function unit over 32 lanes, and shuffles with run-time lane numbers.
//
// The .approx instructions are executed with the error that the PTX ISA documents ("Floating Point Instructions",
// "Half Precision Floating Point Instructions"), because code that relies on more than that is not right on a GPU:
// a hash of the operand chooses the error, evenly spread over all that is documented.  The same operand gives the same
// result every time; neighbours may be off in different directions, and results are not bit-identical to hardware.
// Powers of two whose exponent is an integer are exact, and so are their logarithms: CUDA's own functions need that.
#include <cmath>
#include <cstring>

#include "engine.h"

// Between -1 and 1, from the bits of an operand.
static inline double share(u32 bits, u32 salt) {
    u32 h = (bits ^ salt) * 0x9e3779b1u;
    h = (h ^ h >> 15) * 0x85ebca77u;
    h = (h ^ h >> 13) * 0xc2b2ae3du;
    h ^= h >> 16;
    return (double)(i32)h * 0x1p-31;
}

static inline u32 bits_of(float v) {
    u32 bits;
    memcpy(&bits, &v, 4);
    return bits;
}

// The distance between neighbouring numbers around a value.
static inline double step_at(double value) {
    u32 exponent = bits_of((float)value) & 0x7f800000u;
    exponent = exponent < 0x00800000u ? 0x00800000u : exponent > 0x7f000000u ? 0x7f000000u : exponent;
    float power;
    memcpy(&power, &exponent, 4);
    return (double)power * 0x1p-23;
}

// Off by up to so many steps before the last rounding, which adds half a step.
static inline float off_by_steps(double value, double steps, float operand, u32 salt) {
    return (float)(value + share(bits_of(operand), salt) * steps * step_at(value));
}

static inline float off_by(double value, double error, float operand, u32 salt) {
    return (float)(value + share(bits_of(operand), salt) * error);
}

enum Salt : u32 { EX2 = 0x11, LG2 = 0x23, SIN = 0x35, COS = 0x47, TANH = 0x59, RCP = 0x6b, SQRT = 0x7d, RSQRT = 0x8f, DIV = 0xa1 };

constexpr double ROUNDING = 0x1p-24;

// --- exponential and logarithm ------------------------------------------------------------------

static inline double power_of_two(float v) {
    float clamped = v < -151.0f ? -151.0f : v > 129.0f ? 129.0f : v;
    float whole = __builtin_floorf(clamped + 0.5f);
    double f = (double)(clamped - whole) * 0.6931471805599453;
    // Taylor series of exp on [-ln2/2, ln2/2]
    double p = 1.0 / 5040;
    p = p * f + 1.0 / 720;
    p = p * f + 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f + 1.0 / 6;
    p = p * f + 0.5;
    p = p * f + 1.0;
    p = p * f + 1.0;
    u64 bits = (u64)((i64)whole + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, 8);
    return p * scale;
}

// At most 2 ulp.  expf, for which CUDA documents 2 ulp too, calls it with a reduced argument and adds to the error, so
// there is less of it there.
extern "C" void vg_ex2(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = power_of_two(v), steps = __builtin_fabsf(v) <= 1.0f ? 1.0 : 1.5;
        bool exact = v == __builtin_floorf(v) || v < -149.0f;
        float result = off_by_steps(value, exact ? 0.0 : steps, v, EX2);
        x[i] = v != v ? v : result;
    }
}

// log2 of a positive number: mantissa within [sqrt(1/2), sqrt(2)), and the series of artanh in (m - 1) / (m + 1)
static inline double log2_positive(double v) {
    u64 bits;
    memcpy(&bits, &v, 8);
    u64 moved = bits - 0x3fe6a09e667f3bcdull;
    i64 exponent = (i64)moved >> 52;
    u64 inner = bits - ((u64)exponent << 52);
    double m;
    memcpy(&m, &inner, 8);
    double s = (m - 1) / (m + 1), q = s * s;
    double p = 1.0 / 15;
    for (int n = 13; n > 0; n -= 2) p = p * q + 1.0 / n;
    return (double)(i32)exponent + 2.8853900817779268 * s * p;
}

// 2^-22: absolute for operands in (0.5, 2), relative elsewhere.
extern "C" void vg_lg2(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        // zero, negative numbers and infinity have no logarithm of this kind
        bool usual = v > 0 && v < __builtin_inff();
        double value = log2_positive(usual ? (double)v : 1.0), size = __builtin_fabs(value);
        double error = size < 1 ? 0x1p-22 - ROUNDING / 2 : (0x1p-22 - ROUNDING) * size;
        float result = off_by(value, value == __builtin_floor(value) ? 0.0 : error, v, LG2);
        float other = v == 0 ? -__builtin_inff() : v < 0 ? __builtin_nanf("") : v;
        x[i] = usual ? result : other;
    }
}

// --- sine and cosine ----------------------------------------------------------------------------

// Sine of x, or of x + pi/2: the nearest multiple of pi/2 is taken off, the rest is in [-pi/4, pi/4].
static inline double sine(double x, int quarter) {
    double k = __builtin_floor(x * 0.6366197723675814 + 0.5);
    double r = (x - k * 1.5707963267948966) - k * 6.123233995736766e-17, q = r * r;
    double s = r * (1 + q * (-1.0 / 6 + q * (1.0 / 120 + q * (-1.0 / 5040 + q * (1.0 / 362880 - q / 39916800)))));
    double c = 1 + q * (-0.5 + q * (1.0 / 24 + q * (-1.0 / 720 + q * (1.0 / 40320 - q / 3628800))));
    int n = ((int)k + quarter) & 3;
    double result = n & 1 ? c : s;
    return n & 2 ? -result : result;
}

// Absolute 2^-20.5 within [-2 pi, 2 pi] and 2^-14.7 within [-100 pi, 100 pi]; beyond, nothing is documented.  An error
// that grows with the operand, as that of a range reduction in fp32 does, fits both and goes on from there.
template <int QUARTER> static inline float off_by_reduction(double value, float v) {
    double size = __builtin_fabs((double)v), turns = size * 0.15915494309189535;
    double error = 0x1.6a09e667f3bcdp-21 * (turns < 1 ? 1.0 : turns) - ROUNDING;
    if (!QUARTER && error > size) error = size;  // as small as the operand
    if (error > 2.0) error = 2.0;
    float result = off_by(value, error, v, QUARTER ? COS : SIN);
    return result > 1 ? 1 : result < -1 ? -1 : result;
}

template <int QUARTER> static void circular(float* x) {
    bool near = true;
    for (int i = 0; i < LANES; i++) near &= x[i] > -65536.0f && x[i] < 65536.0f;
    if (near) {
        for (int i = 0; i < LANES; i++) {
            float v = x[i];
            float result = off_by_reduction<QUARTER>(sine(v, QUARTER), v);
            x[i] = v == 0 ? (QUARTER ? 1.0f : v) : result;
        }
        return;
    }
    for (int i = 0; i < LANES; i++) {
        double v = x[i], value = QUARTER ? std::cos(v) : std::sin(v);
        x[i] = value != value ? (float)value : v == 0 ? (QUARTER ? 1.0f : x[i]) : off_by_reduction<QUARTER>(value, x[i]);
    }
}

extern "C" void vg_sin(float* x) { circular<0>(x); }

extern "C" void vg_cos(float* x) { circular<1>(x); }

// --- hyperbolic tangent ---------------------------------------------------------------------------

static inline float within_one(float v) { return v > 1 ? 1 : v < -1 ? -1 : v; }

// Relative 2^-11; subnormal numbers pass.
extern "C" void vg_tanh(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = std::tanh((double)v);
        bool exact = v != v || std::isinf(v) || __builtin_fabsf(v) < 0x1p-126f;
        x[i] = exact ? (float)value : within_one(off_by(value, (0x1p-11 - ROUNDING) * value, v, TANH));
    }
}

// --- the same in half precision: the result is rounded to its type afterwards -----------------------

template <int BITS> static void half_ex2(float* x, double documented) {
    double error = documented - std::ldexp(1.0, -BITS);
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = power_of_two(v);
        float result = off_by(value, v == __builtin_floorf(v) ? 0.0 : error * value, v, EX2);
        x[i] = v != v ? v : result;
    }
}

template <int BITS> static void half_tanh(float* x, double documented) {
    double error = documented - std::ldexp(1.0, -BITS - 1);
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = std::tanh((double)v), size = __builtin_fabs(value);
        bool exact = v != v || std::isinf(v) || v == 0;
        // an absolute error, which does not turn small results into other ones
        x[i] = exact ? (float)value : within_one(off_by(value, error < size / 2 ? error : size * error, v, TANH));
    }
}

extern "C" void vg_ex2_f16(float* x) { half_ex2<11>(x, 0x1.125fbee250663p-10); }  // relative 2^-9.9
extern "C" void vg_ex2_bf16(float* x) { half_ex2<8>(x, 0x1p-7); }                 // relative 2^-7
extern "C" void vg_tanh_f16(float* x) { half_tanh<11>(x, 0x1.0251353756991p-11); }  // absolute 2^-10.987
extern "C" void vg_tanh_bf16(float* x) { half_tanh<8>(x, 0x1p-8); }                 // absolute 2^-8

// --- reciprocals, roots, quotients ------------------------------------------------------------------

static inline bool is_usual(double value) { return value != 0 && value - value == 0; }

// rcp: 1 ulp
extern "C" void vg_rcp(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = 1.0 / (double)v;
        x[i] = is_usual(value) ? off_by_steps(value, 0.5, v, RCP) : (float)value;
    }
}

// sqrt: relative 2^-23
extern "C" void vg_sqrt(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = std::sqrt((double)v);
        x[i] = is_usual(value) ? off_by(value, (0x1p-23 - ROUNDING) * value, v, SQRT) : (float)value;
    }
}

// rsqrt: relative 2^-22.9
extern "C" void vg_rsqrt(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        double value = 1.0 / std::sqrt((double)v);
        x[i] = is_usual(value) ? off_by(value, (0x1.125fbee250669p-23 - ROUNDING) * value, v, RSQRT) : (float)value;
    }
}

// div: 2 ulp; div.approx by more than 2^126 gives zero, or NaN for an infinity
extern "C" void vg_div(float* x, u32 full) {
    float* y = x + LANES * 2;  // the next operand (lower/lanes.py)
    for (int i = 0; i < LANES; i++) {
        float a = x[i], b = y[i];
        double value = (double)a / (double)b;
        float result = is_usual(value) ? off_by_steps(value, 1.5, a, DIV ^ bits_of(b)) : (float)value;
        bool huge = !full && __builtin_fabsf(b) > 0x1p126f && __builtin_fabsf(b) < __builtin_inff();
        if (huge) result = std::isinf(a) || a != a ? __builtin_nanf("") : std::copysign(0.0f, result);
        x[i] = result;
    }
}

// data: values, b, c (32 words each); the moved values replace the first. Returns the in-range bits.
extern "C" u32 vg_shfl(u32* data, u32 mode) {
    u32 moved[LANES], inside = 0;
    for (u32 lane = 0; lane < LANES; lane++) {
        u32 b = data[LANES + lane] & 31, c = data[2 * LANES + lane];
        u32 bound = c & 31, segment = c >> 8 & 31;
        i32 maximum = (i32)((lane & segment) | (bound & ~segment));
        i32 other = (i32)lane;
        bool in;
        if (mode == 0) other = (i32)lane - (i32)b, in = other >= maximum;
        else if (mode == 1) other = (i32)(lane + b), in = other <= maximum;
        else if (mode == 2) other = (i32)(lane ^ b), in = other <= maximum;
        else other = (i32)((lane & segment) | (b & ~segment)), in = other <= maximum;
        if (!in) other = (i32)lane;
        moved[lane] = data[other];
        inside |= (u32)in << lane;
    }
    memcpy(data, moved, sizeof moved);
    return inside;
}
