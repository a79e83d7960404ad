// The mathematical functions of CUDA against those of the host.
#include "check.h"

__global__ void f32(float *o, const float *x) {
    int i = threadIdx.x;
    float v = x[i];
    float *p = o + i * 32;
    p[0] = sinf(v);
    p[1] = cosf(v);
    p[2] = tanf(v);
    p[3] = expf(v);
    p[4] = logf(fabsf(v) + 1);
    p[5] = powf(fabsf(v), 1.7f);
    p[6] = atan2f(v, 2);
    p[7] = sqrtf(fabsf(v));
    p[8] = cbrtf(v);
    p[9] = erff(v);
    p[10] = tgammaf(fabsf(v) * 0.5f + 1);
    p[11] = lgammaf(fabsf(v) + 1);
    p[12] = fmodf(v, 1.3f);
    p[13] = sinhf(v * .5f);
    p[14] = tanhf(v);
    p[15] = asinf(v / 100);
    p[16] = log1pf(fabsf(v));
    p[17] = expm1f(v * 0.1f);
    p[18] = hypotf(v, 3);
    p[19] = floorf(v);
    p[20] = rintf(v);
    p[21] = ldexpf(v, 3);
    int e;
    p[22] = frexpf(v, &e) + e;
    p[23] = j0f(v);
    p[24] = erfcf(v);
    p[25] = normcdff(v);
    p[26] = exp2f(v);
    p[27] = log2f(fabsf(v) + .5f);
    p[28] = remainderf(v, 1.1f);
    p[29] = roundf(v);
    p[30] = fdimf(v, 1);
    p[31] = copysignf(2, v);
}

__global__ void f64(double *o, const float *x) {
    int i = threadIdx.x;
    double v = x[i];
    double *p = o + i * 16;
    p[0] = sin(v);
    p[1] = cos(v * 1e5);
    p[2] = exp(v);
    p[3] = log(fabs(v) + 1);
    p[4] = pow(fabs(v), 2.7);
    p[5] = sqrt(fabs(v));
    p[6] = atan(v);
    p[7] = erf(v);
    p[8] = tgamma(fabs(v) * .5 + 1);
    p[9] = fmod(v, 1.3);
    p[10] = cosh(v * 0.5);
    p[11] = rsqrt(fabs(v) + 1);
    p[12] = cbrt(v);
    p[13] = 1.0 / (v + 1000);
    p[14] = fma(v, v, 1.0);
    p[15] = nextafter(v, 100.0);
}

int main() {
    float x[64], *dx, *o;
    double *d;
    for (int i = 0; i < 64; i++) x[i] = (i - 32) * 0.37f + 0.01f;
    CALL(cudaMalloc(&dx, 256));
    CALL(cudaMalloc(&o, 64 * 32 * 4));
    CALL(cudaMalloc(&d, 64 * 16 * 8));
    CALL(cudaMemcpy(dx, x, 256, cudaMemcpyHostToDevice));
    f32<<<1, 64>>>(o, dx);
    f64<<<1, 64>>>(d, dx);
    CALL(cudaDeviceSynchronize());
    std::vector<float> h(2048);
    std::vector<double> g(1024);
    CALL(cudaMemcpy(h.data(), o, 8192, cudaMemcpyDeviceToHost));
    CALL(cudaMemcpy(g.data(), d, 8192, cudaMemcpyDeviceToHost));
    int bad = 0;
    for (int i = 0; i < 64; i++) {
        double v = x[i], w = fabs(v);
        int e;
        double fr = frexp(v, &e) + e;
        double r[32] = {sin(v), cos(v), tan(v), exp(v), log(w + 1), pow(w, 1.7f), atan2(v, 2), sqrt(w), cbrt(v),
            erf(v), tgamma(w * .5 + 1), lgamma(w + 1), fmodf(x[i], 1.3f), sinh(v * .5), tanh(v), asin(v / 100),
            log1p(w), expm1(v * 0.1f), hypot(v, 3), floor(v), rint(v), ldexp(v, 3), fr, j0(v), erfc(v),
            .5 * erfc(-v / sqrt(2.)), exp2(v), log2(w + .5), remainderf(x[i], 1.1f), round(v), fdim(v, 1),
            copysign(2, v)};
        for (int k = 0; k < 32; k++)
            if (!(fabs(h[i * 32 + k] - r[k]) <= 3e-6 * fabs(r[k]) + 1e-6))
                fprintf(stderr, "f32 function %d of %g: %.9g, not %.9g\n", k, v, h[i * 32 + k], r[k]), bad++;
        double s[16] = {sin(v), cos(v * 1e5), exp(v), log(w + 1), pow(w, 2.7), sqrt(w), atan(v), erf(v),
            tgamma(w * .5 + 1), fmod(v, 1.3), cosh(v * .5), 1 / sqrt(w + 1), cbrt(v), 1 / (v + 1000), fma(v, v,
            1.0), nextafter(v, 100.)};
        for (int k = 0; k < 16; k++)
            if (!(fabs(g[i * 16 + k] - s[k]) <= 1e-14 * fabs(s[k])))
                fprintf(stderr, "f64 function %d of %g: %.17g, not %.17g\n", k, v, g[i * 16 + k], s[k]), bad++;
    }
    EXPECT(bad == 0);
}
