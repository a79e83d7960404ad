// Reduction 6: as 5, with a fixed grid whose threads add many numbers each.
#include <torch/extension.h>

constexpr unsigned int THREADS = 256, NUMBERS = 2 * THREADS;

// What a lane writes has been read before by all lanes of the warp.
__device__ void last_warp(volatile float* values, unsigned int thread) {
    float sum = values[thread];
#pragma unroll
    for (unsigned int half = 32; half > 0; half /= 2) {
        sum += values[thread + half];
        __syncwarp();
        values[thread] = sum;
        __syncwarp();
    }
}

template <unsigned int SIZE>
__global__ void partial_sums(const float* x, float* sums, unsigned int count) {
    __shared__ float values[SIZE];
    const unsigned int thread = threadIdx.x;
    float sum = 0.0f;
    for (unsigned int at = blockIdx.x * SIZE * 2 + thread; at < count; at += gridDim.x * SIZE * 2)
        sum += x[at] + x[at + SIZE];
    values[thread] = sum;
    __syncthreads();
    if constexpr (SIZE >= 512) {
        if (thread < 256) values[thread] += values[thread + 256];
        __syncthreads();
    }
    if constexpr (SIZE >= 256) {
        if (thread < 128) values[thread] += values[thread + 128];
        __syncthreads();
    }
    if constexpr (SIZE >= 128) {
        if (thread < 64) values[thread] += values[thread + 64];
        __syncthreads();
    }
    if (thread < 32) last_warp(values, thread);
    if (thread == 0) sums[blockIdx.x] = values[0];
}

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.size(2) == NUMBERS, "a block takes ", NUMBERS, " numbers in a round");
    const unsigned int blocks = x.size(1);
    auto sums = torch::empty({blocks}, x.options());
    partial_sums<THREADS><<<blocks, THREADS>>>(x.data_ptr<float>(), sums.data_ptr<float>(), x.numel());
    return sums;
}
