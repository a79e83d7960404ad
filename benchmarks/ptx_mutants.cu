// The kernels whose PTX is mutated (see ptx_mutants.py).  Pointers lead to buffers of 4096 words, ints are 64; the grid
// has two blocks of 64 threads.  Loops are not unrolled where that would only repeat the same instructions.
#include <cassert>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void
#define INDEX int t = threadIdx.x, i = blockIdx.x * blockDim.x + t

__constant__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__device__ float scale = 0.5f;

KERNEL reduce(const float* x, float* out, int n) {
    __shared__ float part[2];
    INDEX;
    float v = i < n ? x[i] * scale : 0.0f;
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (t % 32 == 0) part[t / 32] = v;
    __syncthreads();
    if (t == 0) out[blockIdx.x] = part[0] + part[1];
}

KERNEL product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[8][8], right[8][8];
    int x = threadIdx.x % 8, y = threadIdx.x / 8;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < n; k += 8) {
        left[y][x] = a[y * n + k + x], right[y][x] = b[(k + y) * 8 + x];
        __syncthreads();
#pragma unroll 2
        for (int j = 0; j < 8; j++) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[blockIdx.x * 64 + threadIdx.x] = sum;
}

KERNEL tensor(const half* a, const half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> l;
    fragment<matrix_b, 16, 16, 16, half, col_major> r;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 1.0f);
    load_matrix_sync(l, a, 16), load_matrix_sync(r, b, 16);
    mma_sync(sum, l, r, sum);
    store_matrix_sync(c + 256 * (2 * blockIdx.x + threadIdx.x / 32), sum, 16, mem_row_major);
}

KERNEL copies(const int4* in, int4* out, int n) {
    __shared__ int4 tile[2][64];
    INDEX;
    __pipeline_memcpy_async(&tile[0][t], in + t, 16);
    __pipeline_commit();
    for (int s = 0; s < 4; s++) {
        if (s < 3) __pipeline_memcpy_async(&tile[(s + 1) % 2][t], in + 64 * (s + 1) + t, 16, s);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        out[4 * i + s] = tile[s % 2][n - 1 - t];
        __syncthreads();
    }
}

KERNEL arrivals(const int* in, int* out) {
    __shared__ unsigned long long bar;
    __shared__ int seen[64];
    INDEX;
    unsigned where = (unsigned)__cvta_generic_to_shared(&bar);
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(where));
    __syncthreads();
    seen[t] = in[i];
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(where) : "memory");
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(where), "l"(token) : "memory");
    out[i] = seen[63 - t];
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int twice(int v) { return 2 * v; }
__device__ __noinline__ int square(int v) { return v * v; }
__device__ int (*const actions[2])(int) = {twice, square};

KERNEL calls(const int* in, int* out) {
    INDEX;
    out[i] = fibonacci(t % 7) + actions[in[t] & 1](t);
}

KERNEL atomics(int* counts, float* sums, unsigned long long* lock) {
    __shared__ int bins[32];
    INDEX;
    if (t < 32) bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[t % 7], 1), atomicMax(&bins[31], i);
    atomicAdd(sums + t % 3, 0.25f), atomicCAS(counts + 40, i, i + 1), atomicXor(counts + 41, 1 << t % 32);
    atomicAdd((double*)lock + 1, 1.0), atomicExch(lock, (unsigned long long)i);
    __syncthreads();
    if (t < 32) atomicAdd(counts + t, bins[t]);
}

KERNEL branches(const int* in, int* out, int n) {
    INDEX;
    int local[8], v = in[i];
#pragma unroll 1
    for (int j = 0; j < 8; j++) local[(j + v) & 7] = table[(j + t) & 15];
    for (int j = 0; j < (t & 15); j++) {
        switch ((v + j) & 7) {
            case 0: v += 3; break;
            case 1: v ^= local[j & 7]; break;
            case 2: v *= 5; continue;
            case 3: if (v > n) return; v--; break;
            case 4: v = __brev(v); break;
            case 5: v /= j + 1; break;
            default: v = v % (n + 1) + local[v & 7];
        }
    }
    out[i] = v;
}

KERNEL halves(const half2* x, half2* out, double* wide) {
    INDEX;
    half2 v = __hfma2(x[i], __float2half2_rn(0.5f), h2exp2(x[i]));
    out[i] = __hmax2(v, __hneg2(x[i]));
    double d = sqrt((double)__half2float(__low2half(v))) / (1.0 + t);
    wide[i] = fma(d, 2.0, rint(d)) + (double)__float2int_rz(__sinf((float)t));
}

KERNEL bits(const unsigned* x, int* out) {
    INDEX;
    unsigned v = x[i], w = x[63 - t];
    int r = __dp4a((int)v, (int)w, t) + __popc(v) + __clz(w) + __ffs(v);
    r ^= __byte_perm(v, w, 0x5410 + t) ^ __funnelshift_l(v, w, t) ^ (int)__umulhi(v, w);
    out[i] = r + __vadd4(v, w) + __vabsdiffu2(v, w) + (int)((v & w) | (~v & 0xff00ff));
}

KERNEL votes(const unsigned* x, int* out) {
    INDEX;
    unsigned v = x[i], w = x[63 - t];
    int r = 0;
    unsigned same = __match_any_sync(~0u, v & 3), votes = __ballot_sync(~0u, v > w);
    if (__any_sync(same, w & 1)) r += __popc(votes & same) + __reduce_add_sync(~0u, t);
    out[i] = r + __syncthreads_count(v & 1) + __syncthreads_or(w & 2);
}

KERNEL talks(const int* in, int* out, int n) {
    INDEX;
    if (t == 5 && in[0] == 12345) printf("%d %s %f\n", i, "words", 0.5 * t);
    assert(n > 0);
    int* own = (int*)malloc(16);
    if (own) own[1] = t, out[i] = own[1], free(own);
}
