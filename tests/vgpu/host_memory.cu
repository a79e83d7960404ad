// Wrappers that share memory with their kernels; see test_host_memory.py.
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void copied(const float* from, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}
static float* buffer(bool managed, int64_t n) {
    static float* made[2];
    if (!made[managed]) managed ? cudaMallocManaged((void**)&made[1], 4 * n) : cudaMallocHost((void**)&made[0], 4 * n);
    return made[managed];
}
static void copy(const float* from, float* to, int n) { copied<<<(n + 255) / 256, 256>>>(from, to, n); }

// how: 1 a kernel writes the buffer, 2 the host changes some of it, 4 a kernel reads it
torch::Tensor through(torch::Tensor x, int64_t managed, int64_t how) {
    int n = (int)x.numel();
    float* p = buffer(managed, n);
    auto y = torch::empty_like(x);
    if (how & 1) copy(x.data_ptr<float>(), p, n);
    cudaDeviceSynchronize();
    if (how & 2) for (int i = 0; i < 96; i++) p[i] += 1.0f;
    copy(how & 4 ? p : x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}

static void nothing(void*) {}
torch::Tensor called_back(torch::Tensor x) {
    cudaLaunchHostFunc(0, nothing, nullptr);
    auto y = torch::empty_like(x);
    copy(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    cudaDeviceSynchronize();
    return y;
}

__constant__ float table[1024];
__global__ void looked_up(float* y, int n, int step) {
    int i = threadIdx.x;
    if (i < n) y[i] = table[i * step % 1024];
}
__global__ void aside(float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = i;
    if (i < 3) printf("%d\n", i);
    if (i < 2) free(malloc(8));
    if (i < 64) __nanosleep(500);
    long t = clock64();
    while (clock64() - t < 6400) {}
}
torch::Tensor asides(torch::Tensor x, int64_t which, int64_t step) {
    auto y = torch::zeros_like(x);
    if (which == 0) looked_up<<<1, 32>>>(y.data_ptr<float>(), 32, (int)step);
    if (which == 1) aside<<<1, 256>>>(y.data_ptr<float>(), 256);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("through", &through);
    m.def("called_back", &called_back);
    m.def("asides", &asides);
}
