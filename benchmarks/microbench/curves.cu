// The kernels whose speed microbenchmarks measure: streams at a chosen occupancy, caches at a chosen size, one lane
// that follows pointers.
#include <torch/extension.h>

#include <algorithm>

template <int OPERATION>
__global__ void streamed(double* out, const double* a, const double* b, int64_t count) {
    int64_t i = threadIdx.x + (int64_t)blockIdx.x * blockDim.x;
    if (OPERATION == 0) out[i] = 1.25;
    if (OPERATION == 1 && a[i] == 123.456) out[i] = 1.0;
    if (OPERATION == 2) out[i] = 1.25 * a[i];
    if (OPERATION == 3) out[i] = a[i] + 1.25 * b[i];
    if (OPERATION == 4 && i > 0 && i < count - 1) out[i] = 0.5 * a[i - 1] - a[i] + 0.5 * a[i + 1];
    if (OPERATION == 5 && i > 1 && i < count - 2)
        out[i] = 0.25 * a[i - 2] + 0.5 * a[i - 1] - a[i] + 0.5 * a[i + 1] + 0.25 * a[i + 2];
}

// Shared memory that nobody uses limits how many blocks an SM holds.
torch::Tensor stream(torch::Tensor a, torch::Tensor b, int64_t operation, int64_t threads, int64_t shared) {
    auto out = torch::empty_like(a);
    using Kernel = void (*)(double*, const double*, const double*, int64_t);
    Kernel kernels[] = {streamed<0>, streamed<1>, streamed<2>, streamed<3>, streamed<4>, streamed<5>};
    Kernel kernel = kernels[operation];
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<(unsigned)(a.numel() / threads), threads, shared>>>(
        out.data_ptr<double>(), a.data_ptr<double>(), b.data_ptr<double>(), a.numel());
    return out;
}

// Every block reads the same `count` numbers over and over, eight independent loads at a time.
__global__ void rereading(const double* a, double* out, int count, int rounds) {
    double sum = 0;
    for (int round = 0; round < rounds; round++)
#pragma unroll 1
        for (int i = threadIdx.x; i < count; i += 8 * blockDim.x) {
#pragma unroll
            for (int k = 0; k < 8; k++) sum += a[i + k * blockDim.x];
        }
    if (sum == 123.456) out[blockIdx.x] = sum;
}

torch::Tensor reread(torch::Tensor a, int64_t blocks, int64_t threads, int64_t rounds) {
    auto out = torch::empty({blocks}, a.options());
    rereading<<<(unsigned)blocks, threads>>>(a.data_ptr<double>(), out.data_ptr<double>(), a.numel(), rounds);
    return out;
}

// Blocks read their own parts of a data set, one part after another, so that each byte is read by several SMs in turn.
__global__ void sharing(const double* a, double* out, int64_t parts) {
    constexpr int PER_THREAD = 8;
    int64_t base = (int64_t)(blockIdx.x % parts) * blockDim.x * PER_THREAD + threadIdx.x;
    double sum = 0;
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) sum += a[base + k * blockDim.x];
    if (sum == 123.456) out[blockIdx.x] = sum;
}

torch::Tensor share(torch::Tensor a, int64_t blocks, int64_t threads) {
    auto out = torch::empty({blocks}, a.options());
    sharing<<<(unsigned)blocks, threads>>>(a.data_ptr<double>(), out.data_ptr<double>(), a.numel() / (threads * 8));
    return out;
}

__global__ void chasing(const int64_t* next, int64_t* out, int64_t steps) {
    int64_t at = 0;
    for (int64_t step = 0; step < steps; step++) at = next[at];
    out[0] = at;
}

torch::Tensor chase(torch::Tensor next, int64_t steps) {
    auto out = torch::empty({1}, next.options());
    chasing<<<1, 1>>>(next.data_ptr<int64_t>(), out.data_ptr<int64_t>(), steps);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("stream", &stream);
    m.def("reread", &reread);
    m.def("share", &share);
    m.def("chase", &chase);
}
