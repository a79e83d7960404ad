// Functions of the special function unit over 32 lanes, and shuffles with run-time lane numbers.
// Errors stay within the bounds that the PTX ISA documents for the .approx forms; results are not
// bit-identical to hardware.
#include <cmath>
#include <cstring>

#include "engine.h"

extern "C" void vg_ex2(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
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
        float result = (float)(p * scale);
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

extern "C" void vg_lg2(float* x) {
    for (int i = 0; i < LANES; i++) {
        float v = x[i];
        // zero, negative numbers and infinity have no logarithm of this kind
        bool usual = v > 0 && v < __builtin_inff();
        float result = (float)log2_positive(usual ? (double)v : 1.0);
        float other = v == 0 ? -__builtin_inff() : v < 0 ? __builtin_nanf("") : v;
        x[i] = usual ? result : other;
    }
}

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

template <int QUARTER> static void circular(float* x) {
    bool near = true;
    for (int i = 0; i < LANES; i++) near &= x[i] > -65536.0f && x[i] < 65536.0f;
    if (near) {
        for (int i = 0; i < LANES; i++) x[i] = (float)sine(x[i], QUARTER);
        return;
    }
    for (int i = 0; i < LANES; i++) x[i] = (float)(QUARTER ? std::cos((double)x[i]) : std::sin((double)x[i]));
}

extern "C" void vg_sin(float* x) { circular<0>(x); }

extern "C" void vg_cos(float* x) { circular<1>(x); }

extern "C" void vg_tanh(float* x) {
    for (int i = 0; i < LANES; i++) x[i] = std::tanh(x[i]);
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
