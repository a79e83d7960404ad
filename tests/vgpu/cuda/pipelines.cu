// Asynchronous copies: pipelines of threads and blocks, barriers, producers beside consumers.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
#include <cuda/barrier>
#include <cuda_pipeline.h>

#include "check.h"

#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;

__global__ void prim(const float4 *in, float4 *out, int tiles) {
    __shared__ float4 b[2][64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&b[0][t], &in[t], 16);
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&b[(i + 1) & 1][t], &in[(i + 1) * 64 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = b[i & 1][63 - t];
        out[i * 64 + t] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2);
        __syncthreads();
    }
}

__global__ void cgcopy(const int *in, int *out, int n) {
    extern __shared__ int s[];
    auto b = cg::this_thread_block();
    for (int i = 0; i < n; i += blockDim.x) {
        cg::memcpy_async(b, s, in + i, sizeof(int) * blockDim.x);
        cg::wait(b);
        out[i + threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
        b.sync();
    }
}

template <int S> __global__ void pipe(const int *in, int *out, int batches) {
    auto b = cg::this_thread_block();
    __shared__ int s[S][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, S> st;
    auto p = cuda::make_pipeline(b, &st);
    for (int c = 0, f = 0; c < batches; c++) {
        for (; f < batches && f < c + S; f++) {
            p.producer_acquire();
            cuda::memcpy_async(b, s[f % S], in + f * 128, cuda::aligned_size_t<16>(512), p);
            p.producer_commit();
        }
        p.consumer_wait();
        out[c * 128 + threadIdx.x] = s[c % S][threadIdx.x] + s[c % S][(threadIdx.x + 1) % 128];
        p.consumer_release();
    }
}

__global__ void tpipe(const int *in, int *out, int batches) {
    __shared__ int s[2][128];
    auto p = cuda::make_pipeline();
    int t = threadIdx.x;
    p.producer_acquire();
    cuda::memcpy_async(&s[0][t], &in[t], sizeof(int), p);
    p.producer_commit();
    for (int c = 0; c < batches; c++) {
        if (c + 1 < batches) {
            p.producer_acquire();
            cuda::memcpy_async(&s[(c + 1) & 1][t], &in[(c + 1) * 128 + t], sizeof(int), p);
            p.producer_commit();
        }
        p.consumer_wait();
        out[c * 128 + t] = s[c & 1][t] * 3;
        p.consumer_release();
    }
}

__global__ void bar(const int *in, int *out, int rounds) {
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    __shared__ int s[128];
    auto g = cg::this_thread_block();
    if (g.thread_rank() == 0) init(&b, g.size());
    g.sync();
    int acc = 0;
    for (int i = 0; i < rounds; i++) {
        cuda::memcpy_async(g, s, in + i * 128, sizeof(s), b);
        b.arrive_and_wait();
        acc += s[(threadIdx.x + i) % 128];
        b.arrive_and_wait();
    }
    out[threadIdx.x] = acc;
}

__global__ void split(int *o) {
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&b, blockDim.x);
    __syncthreads();
    s[threadIdx.x] = threadIdx.x;
    auto tok = b.arrive();
    int local = threadIdx.x * 2;
    b.wait(std::move(tok));
    o[threadIdx.x] = s[63 - threadIdx.x] + local;
}

__global__ void spec(const int *in, int *out, int n) {
    __shared__ cuda::barrier<cuda::thread_scope_block> ready[2], filled[2];
    __shared__ int buf[2][32];
    auto blk = cg::this_thread_block();
    if (blk.thread_rank() < 2) {
        init(&ready[blk.thread_rank()], 64);
        init(&filled[blk.thread_rank()], 64);
    }
    blk.sync();
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; i++) {
            ready[i & 1].arrive_and_wait();
            buf[i & 1][threadIdx.x] = in[i * 32 + threadIdx.x];
            (void)filled[i & 1].arrive();
        }
    } else {
        (void)ready[0].arrive();
        (void)ready[1].arrive();
        for (int i = 0; i < n; i++) {
            filled[i & 1].arrive_and_wait();
            out[i * 32 + threadIdx.x - 32] = buf[i & 1][63 - threadIdx.x];
            (void)ready[i & 1].arrive();
        }
    }
}

int main() {
    int n = 128 * 16;
    int *in, *out;
    CALL(cudaMallocManaged(&in, n * 4));
    CALL(cudaMallocManaged(&out, n * 4));
    for (int i = 0; i < n; i++) in[i] = i * 7;
    cgcopy<<<1, 128, 512>>>(in, out, n);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) EXPECT(out[i] == in[i / 128 * 128 + 127 - i % 128]);
    pipe<3><<<1, 128>>>(in, out, 16);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) EXPECT(out[i] == in[i] + in[i / 128 * 128 + (i + 1) % 128]);
    tpipe<<<1, 128>>>(in, out, 16);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) EXPECT(out[i] == in[i] * 3);
    bar<<<1, 128>>>(in, out, 16);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 128; i++) {
        int a = 0;
        for (int r = 0; r < 16; r++) a += in[r * 128 + (i + r) % 128];
        EXPECT(out[i] == a);
    }
    split<<<1, 64>>>(out);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 64; i++) EXPECT(out[i] == 63 - i + 2 * i);
    spec<<<1, 64>>>(in, out, 16);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 512; i++) EXPECT(out[i] == in[i / 32 * 32 + 31 - i % 32]);
    float4 *fi, *fo;
    CALL(cudaMallocManaged(&fi, 64 * 8 * 16));
    CALL(cudaMallocManaged(&fo, 64 * 8 * 16));
    for (int i = 0; i < 512; i++) fi[i] = make_float4(i, i + 1, i + 2, i + 3);
    prim<<<1, 64>>>(fi, fo, 8);
    CALL(cudaDeviceSynchronize());
    for (int i = 0; i < 512; i++) EXPECT(fo[i].w == 2 * fi[i / 64 * 64 + 63 - i % 64].w);
}
