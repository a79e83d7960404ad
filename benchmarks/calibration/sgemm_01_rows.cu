// SGEMM 1: one thread per output; neighbouring threads are in neighbouring rows, so that nothing is coalesced.
#include <torch/extension.h>

constexpr int EDGE = 32;

__global__ void sgemm(int m, int n, int k, float alpha, const float* a, const float* b, float beta, const float* c,
                      float* out) {
    const int row = blockIdx.x * EDGE + threadIdx.x, column = blockIdx.y * EDGE + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
    out[row * n + column] = alpha * sum + beta * c[row * n + column];
}

torch::Tensor forward(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty_like(c);
    const dim3 grid((m + EDGE - 1) / EDGE, (n + EDGE - 1) / EDGE);
    sgemm<<<grid, dim3(EDGE, EDGE)>>>(m, n, k, 0.5f, a.data_ptr<float>(), b.data_ptr<float>(), 3.0f,
                                      c.data_ptr<float>(), out.data_ptr<float>());
    return out;
}
