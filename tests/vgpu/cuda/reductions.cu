// One sum in the ways that programs form it: trees, warp-synchronous code, shuffles, groups, a last block, a grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "check.h"

namespace cg = cooperative_groups;
constexpr int THREADS = 128, BLOCKS = 12;

template <class T>
__device__ T* scratch() {
    extern __shared__ double memory[];
    return (T*)memory;
}

template <class T>
__device__ T share_of(const T* in, unsigned n) {
    T sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    return sum;
}

template <class T>
__device__ T tree(T value) {
    T* s = scratch<T>();
    s[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    T total = s[0];
    __syncthreads();
    return total;
}

template <class T>
__global__ void by_tree(const T* in, T* out, unsigned n) {
    T total = tree(share_of(in, n));
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// The last 32 threads without barriers, as it was written before there was __syncwarp.
template <class T>
__global__ void in_step(const T* in, T* out, unsigned n) {
    volatile T* s = scratch<T>();
    unsigned t = threadIdx.x;
    s[t] = share_of(in, n);
    __syncthreads();
    if (t < 64) s[t] = s[t] + s[t + 64];
    __syncthreads();
    if (t < 32)
        for (int step = 32; step; step /= 2) s[t] = s[t] + s[t + step];
    if (t == 0) out[blockIdx.x] = s[0];
}

template <class T>
__global__ void by_shuffles(const T* in, T* out, unsigned n) {
    T *s = scratch<T>(), sum = share_of(in, n);
    unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) s[threadIdx.x / 32] = sum;
    __syncthreads();
    // only a part of the warp is left, and its lanes read beyond it
    if (threadIdx.x < warps) {
        sum = s[threadIdx.x];
        for (int step = 16; step; step /= 2) sum += __shfl_down_sync((1u << warps) - 1, sum, step);
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <class T>
__global__ void by_groups(const T* in, T* out, unsigned n) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    T sum = cg::reduce(tile, share_of(in, n), cg::plus<T>());
    if (block.thread_rank() == 0) out[blockIdx.x] = 0;
    block.sync();
    if (tile.thread_rank() == 0) atomicAdd(&out[blockIdx.x], sum);
}

__device__ unsigned finished = 0;

template <class T, bool VOLATILE>
__global__ void by_last_block(const T* in, T* out, unsigned n) {
    __shared__ bool last;
    T total = tree(share_of(in, n));
    if (threadIdx.x == 0) {
        if (VOLATILE)
            ((volatile T*)out)[blockIdx.x] = total;
        else
            out[blockIdx.x] = total;
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    T mine = 0;
    if (threadIdx.x < gridDim.x) mine = VOLATILE ? ((volatile T*)out)[threadIdx.x] : out[threadIdx.x];
    total = tree(mine);
    if (threadIdx.x < gridDim.x) out[threadIdx.x] = threadIdx.x ? 0 : total;
}

template <class T>
__global__ void by_grid(const T* in, T* out, unsigned n) {
    auto grid = cg::this_grid();
    T total = tree(share_of(in, n));
    if (threadIdx.x == 0) out[blockIdx.x] = total;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (unsigned i = 1; i < gridDim.x; i++) out[0] += out[i];
    grid.sync();
    if (grid.thread_rank() > 0 && grid.thread_rank() < gridDim.x) out[grid.thread_rank()] = 0;
}

template <class T>
void test() {
    unsigned n = 30011;
    std::vector<T> values(n);
    T sum = 0;
    for (unsigned i = 0; i < n; i++) sum += values[i] = (T)(i * 2654435761u >> 28);
    T *in = device(values), *out = device(std::vector<T>(BLOCKS));
    void (*kernels[])(const T*, T*, unsigned) = {by_tree<T>,   in_step<T>,           by_shuffles<T>,
                                                 by_groups<T>, by_last_block<T, true>, by_last_block<T, false>};
    auto check = [&](const char* what) {
        CALL(cudaGetLastError());
        T total = 0;
        for (T part : host(out, BLOCKS)) total += part;
        if (total != sum) fprintf(stderr, "%s: %f, not %f\n", what, (double)total, (double)sum), exit(1);
    };
    for (auto kernel : kernels) {
        CALL(cudaMemset(out, 0, BLOCKS * sizeof(T)));
        kernel<<<BLOCKS, THREADS, THREADS * sizeof(T)>>>(in, out, n);
        check("a sum");
    }
    void* arguments[] = {&in, &out, &n};
    CALL(cudaLaunchCooperativeKernel(by_grid<T>, BLOCKS, THREADS, arguments, THREADS * sizeof(T), 0));
    check("the grid's sum");
}

int main() {
    test<int>();
    test<float>();
    test<double>();
}
