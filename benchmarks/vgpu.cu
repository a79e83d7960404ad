// Kernels whose speed on the virtual GPU is measured (see vgpu.py).
#include <cuda_fp16.h>
#include <mma.h>

// C = A B for square row-major matrices: a block makes 64 x 64 elements, a thread 4 x 4.
extern "C" __global__ void sgemm(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][64], right[16][64];
    const int x = threadIdx.x, y = threadIdx.y, t = 16 * y + x;
    const float* a_row = a + (64 * blockIdx.y + t / 4) * n + t % 4 * 4;
    const float* b_row = b + t / 16 * n + 64 * blockIdx.x + t % 16 * 4;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        const float4 av = *(const float4*)(a_row + k);
        left[t % 4 * 4 + 0][t / 4] = av.x;
        left[t % 4 * 4 + 1][t / 4] = av.y;
        left[t % 4 * 4 + 2][t / 4] = av.z;
        left[t % 4 * 4 + 3][t / 4] = av.w;
        *(float4*)&right[t / 16][t % 16 * 4] = *(const float4*)(b_row + k * n);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float l[4], r[4];
            for (int i = 0; i < 4; i++) l[i] = left[j][4 * y + i], r[i] = right[j][4 * x + i];
            for (int i = 0; i < 4; i++)
                for (int m = 0; m < 4; m++) sum[i][m] += l[i] * r[m];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 4; m++) c[(64 * blockIdx.y + 4 * y + i) * n + 64 * blockIdx.x + 4 * x + m] = sum[i][m];
}

// Three arrays in, one out.
extern "C" __global__ void streaming(const float* x, const float* y, const float* z, float* out, long long n) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = fmaxf(x[i] * y[i] + z[i], 0.0f);
}

// Steps to 1 in the 3n + 1 sequence: neighbours go different ways for different times.
extern "C" __global__ void divergent(unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned steps = 0;
    for (unsigned long long v = i + 1; v != 1; steps++) {
        if (v & 1)
            v = 3 * v + 1;
        else
            v >>= 1;
    }
    out[i] = steps;
}

// C = A B for halves, summed in fp32: a block of four warps makes 64 x 64 elements, a warp 32 x 32.
extern "C" __global__ void wmma(const half* a, const half* b, float* c, int n) {
    using namespace nvcuda::wmma;
    __shared__ alignas(32) half left[64][24], right[16][72];
    const int t = threadIdx.x, warp = t / 32, row = warp / 2 * 32, column = warp % 2 * 32;
    fragment<accumulator, 16, 16, 16, float> sum[2][2];
    for (int i = 0; i < 4; i++) fill_fragment(sum[i / 2][i % 2], 0.0f);
    for (int k = 0; k < n; k += 16) {
        *(uint4*)&left[t / 2][t % 2 * 8] = *(const uint4*)(a + (64 * blockIdx.y + t / 2) * n + k + t % 2 * 8);
        *(uint4*)&right[t / 8][t % 8 * 8] = *(const uint4*)(b + (k + t / 8) * n + 64 * blockIdx.x + t % 8 * 8);
        __syncthreads();
        fragment<matrix_a, 16, 16, 16, half, row_major> l[2];
        fragment<matrix_b, 16, 16, 16, half, row_major> r[2];
        for (int i = 0; i < 2; i++) {
            load_matrix_sync(l[i], &left[row + 16 * i][0], 24);
            load_matrix_sync(r[i], &right[0][column + 16 * i], 72);
        }
        for (int i = 0; i < 4; i++) mma_sync(sum[i / 2][i % 2], l[i / 2], r[i % 2], sum[i / 2][i % 2]);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        const int at = (64 * blockIdx.y + row + i / 2 * 16) * n + 64 * blockIdx.x + column + i % 2 * 16;
        store_matrix_sync(c + at, sum[i / 2][i % 2], n, mem_row_major);
    }
}

// About a thousand instructions of mixed kinds; NAME and COUNT come from the command line.
#ifdef NAME
extern "C" __global__ void NAME(const float* x, float* out, int n) {
    __shared__ float tile[256];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i >= n) return;
    float v = x[i], w = 0.0f;
    unsigned bits = __float_as_uint(v);
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        tile[t] = v;
        __syncthreads();
        w = fmaf(tile[(t + j) & 255], 0.5f, w);
        bits = (bits << 5 ^ bits >> 3) + (unsigned)j;
        if (bits & 1) w += __shfl_xor_sync(__activemask(), v, 1);
        v = w * 0.25f + (float)(bits & 7) - v / (1.0f + w * w);
        __syncthreads();
    }
    out[i] = v;
}
#endif
