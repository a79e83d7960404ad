// Reduction 2: the first half takes the second half, without bank conflicts.
#include <torch/extension.h>

constexpr int THREADS = 256, NUMBERS = THREADS;

__global__ void partial_sums(const float* x, float* sums) {
    __shared__ float values[THREADS];
    const unsigned int thread = threadIdx.x;
    values[thread] = x[blockIdx.x * blockDim.x + thread];
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) values[thread] += values[thread + half];
        __syncthreads();
    }
    if (thread == 0) sums[blockIdx.x] = values[0];
}

torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.numel() == x.size(0) * NUMBERS, "rows must have ", NUMBERS, " numbers");
    const int blocks = x.size(0);
    auto sums = torch::empty({blocks}, x.options());
    partial_sums<<<blocks, THREADS>>>(x.data_ptr<float>(), sums.data_ptr<float>());
    return sums;
}
