// Inline assembly: special registers, carries, predicates, permutations, cache operators, barriers.
#include "check.h"

__global__ void ids(unsigned *o) {
    unsigned l;
    asm("mov.u32 %0, %%laneid;" : "=r"(l));
    unsigned w;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(w));
    unsigned s;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(s));
    unsigned m;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(m));
    unsigned n;
    asm("mov.u32 %0, %%nsmid;" : "=r"(n));
    o[threadIdx.x] = l;
    o[64 + threadIdx.x] = w;
    o[128 + threadIdx.x] = m;
    o[192 + threadIdx.x] = s < n;
}

__device__ int cube(int x) {
    int y;
    asm("{ .reg .s32 square; mul.lo.s32 square, %1, %1; mad.lo.s32 %0, square, %1, 0; }" : "=r"(y) : "r"(x));
    return y;
}

__device__ unsigned long long mad128lo(unsigned long long a, unsigned long long b, unsigned long long c,
    unsigned long long &hi) {
    unsigned long long lo;
    asm("mad.lo.cc.u64 %0, %2, %3, %4;\n\tmadc.hi.u64 %1, %2, %3, 0;" : "=l"(lo), "=l"(hi) : "l"(a), "l"(b),
        "l"(c));
    return lo;
}

__global__ void misc(int *o, unsigned long long *w, float *f) {
    int i = threadIdx.x;
    o[i] = cube(i);
    unsigned long long hi;
    w[2 * i] = mad128lo(0xffffffffffffull * (i + 3), 0x123456789abcdefull, i, hi);
    w[2 * i + 1] = hi;
    float x = i * 0.25f, y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    f[i] = y;
    int p;
    asm("{ .reg .pred p; setp.gt.s32 p, %1, 5; selp.s32 %0, 10, 20, p; }" : "=r"(p) : "r"(i));
    o[32 + i] = p;
    unsigned b;
    asm("bfe.u32 %0, %1, 4, 8;" : "=r"(b) : "r"(i * 12345));
    o[64 + i] = b;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(b) : "r"(i), "r"(i * 7));
    o[96 + i] = b;
    asm volatile("st.global.cg.s32 [%0], %1;" ::"l"(o + 128 + i), "r"(i) : "memory");
    int v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.s32 %0, [%1];" : "=r"(v) : "l"(o + i));
    o[160 + i] = v;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(b) : "r"(i), "r"(i * 3), "r"(i * 5));
    o[192 + i] = b;
    asm volatile("bar.sync 1, 32;");
    asm volatile("membar.gl;");
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; red.global.add.u32 [a], 1; }" ::"l"(o + 224));
    asm("shf.l.wrap.b32 %0, %1, %2, 8;" : "=r"(b) : "r"(i), "r"(0xabcd0000 + i));
    o[256 + i] = b;
}

int main() {
    unsigned *o, h[256];
    CALL(cudaMalloc(&o, 1024));
    ids<<<1, 64>>>(o);
    CALL(cudaMemcpy(h, o, 1024, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        EXPECT(h[i] == i % 32 && h[64 + i] == i / 32);
        EXPECT(h[128 + i] == (1u << i % 32) - 1 && h[192 + i]);
    }
    int *p, hp[288];
    unsigned long long *w, hw[64];
    float *f, hf[32];
    CALL(cudaMalloc(&p, sizeof hp));
    CALL(cudaMemset(p, 0, sizeof hp));
    CALL(cudaMalloc(&w, 512));
    CALL(cudaMalloc(&f, 128));
    misc<<<1, 32>>>(p, w, f);
    CALL(cudaMemcpy(hp, p, sizeof hp, cudaMemcpyDeviceToHost));
    CALL(cudaMemcpy(hw, w, 512, cudaMemcpyDeviceToHost));
    CALL(cudaMemcpy(hf, f, 128, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) {
        EXPECT(hp[i] == i * i * i);
        unsigned __int128 q = (unsigned __int128)(0xffffffffffffull * (i + 3)) * 0x123456789abcdefull + i;
        EXPECT(hw[2 * i] == (unsigned long long)q && hw[2 * i + 1] == (unsigned long long)(q >> 64));
        EXPECT(fabs(hf[i] - exp2(i * .25)) < 1e-5 * exp2(i * .25));
        EXPECT(hp[32 + i] == (i > 5 ? 10 : 20));
        EXPECT(hp[64 + i] == ((i * 12345u) >> 4 & 255));
        EXPECT(hp[96 + i] == ((i & 0xffff) | ((i * 7) & 0xffff) << 16));
        EXPECT(hp[128 + i] == i && hp[160 + i] == hp[i] && hp[192 + i] == (i ^ i * 3 ^ i * 5));
        EXPECT((unsigned)hp[256 + i] == (unsigned)((0xabcd0000u + i) << 8 | (unsigned)i >> 24));
    }
    EXPECT(hp[224] == 32);
}
