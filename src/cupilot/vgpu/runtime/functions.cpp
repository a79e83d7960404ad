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

extern "C" void vg_lg2(float* x) {
    for (int i = 0; i < LANES; i++) x[i] = (float)std::log2((double)x[i]);
}

extern "C" void vg_sin(float* x) {
    for (int i = 0; i < LANES; i++) x[i] = (float)std::sin((double)x[i]);
}

extern "C" void vg_cos(float* x) {
    for (int i = 0; i < LANES; i++) x[i] = (float)std::cos((double)x[i]);
}

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
