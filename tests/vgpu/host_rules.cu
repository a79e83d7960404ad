// Wrappers that keep or break the rules for host code; see test_host_rules.py.
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
__device__ float scale = 1.0f;
__managed__ float shift = 0.0f;
__global__ void copied(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * scale + shift;
}
static float* data(torch::Tensor t) { return t.data_ptr<float>(); }
static void launch(torch::Tensor x, torch::Tensor y, int n, cudaStream_t stream = nullptr) {
    if (n > 0) copied<<<(n + 255) / 256, 256, 0, stream>>>(data(x), data(y), n);
}

torch::Tensor plain(torch::Tensor x) {
    auto y = torch::empty_like(x);
    launch(x, y, (int)x.numel());
    return y;
}

// --- a result that stays from call to call ------------------------------------------------------
static torch::Tensor keep;
torch::Tensor kept(torch::Tensor x, int64_t written, int64_t how) {
    if (!keep.defined()) keep = torch::empty_like(x);
    if (how == 0) launch(x, keep, (int)written);
    if (how == 1) cudaMemset(data(keep), 0, 4 * written);
    if (how == 2) cudaMemcpy(data(keep), data(x), 4 * written, cudaMemcpyDeviceToDevice);
    return keep;
}
torch::Tensor from_kept(torch::Tensor x, int64_t written) {
    auto y = torch::empty_like(x);
    launch(x, keep, (int)written);
    launch(keep, y, (int)x.numel());
    return y;
}

// --- streams --------------------------------------------------------------------------------------
torch::Tensor streams(torch::Tensor x, int64_t how) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    static cudaStream_t side, other, blocking;
    static cudaEvent_t event;
    if (!side) {
        cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaStreamCreate(&blocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    if (how == 0) launch(x, y, n, side);
    if (how == 1) launch(x, y, n, side), cudaStreamSynchronize(side);
    if (how == 2) launch(x, y, n, side), cudaDeviceSynchronize();
    if (how == 3) launch(x, y, n, side), cudaEventRecord(event, side), cudaEventSynchronize(event);
    if (how == 4) launch(x, y, n, side), cudaEventRecord(event, side), cudaStreamWaitEvent(nullptr, event, 0);
    if (how == 5) launch(x, y, n, blocking);
    if (how == 6) {  // a copy waits for the default stream only
        float first;
        launch(x, y, n, side), cudaMemcpy(&first, data(y), 4, cudaMemcpyDeviceToHost);
    }
    if (how == 7) launch(x, y, n, at::cuda::getStreamFromPool());
    if (how == 8) {
        auto stream = at::cuda::getStreamFromPool();
        at::cuda::CUDAEvent done;
        launch(x, y, n, stream), done.record(stream), done.block(at::cuda::getDefaultCUDAStream());
    }
    if (how == 9) cudaEventRecord(event, side), launch(x, y, n, side), cudaEventSynchronize(event);  // too early
    if (how == 10 || how == 11) {
        launch(x, y, n, side), cudaEventRecord(event, side);
        if (how == 10) cudaStreamWaitEvent(other, event, 0);
        cudaStreamSynchronize(other);
    }
    if (how == 12) launch(x, y, n, side), (void)cudaStreamQuery(side);
    if (how == 13) { launch(x, y, n, side); while (cudaStreamQuery(side) == cudaErrorNotReady) {} }
    if (how == 14) launch(x, y, n), cudaMemsetAsync(data(y), 0, 4, side);
    if (how == 15) launch(x, y, n), cudaMemcpyAsync(data(y), data(x), 4, cudaMemcpyDeviceToDevice, side);
    if (how == 16) {
        cudaEventRecord(event, side), launch(x, y, n, side);
        cudaEventRecord(event, side), cudaStreamWaitEvent(blocking, event, 0);
    }
    if (how == 17) { launch(x, y, n, side), cudaEventRecord(event, side); while (cudaEventQuery(event)) {} }
    if (how == 18) launch(x, y, n, side), cudaEventRecord(event, side), (void)cudaEventQuery(event);
    if (how == 19) launch(x, y, n, side), cudaStreamSynchronize(side), launch(x, y, n, side);
    if (how == 20 || how == 21) {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal);
        launch(x, y, n, side);
        cudaStreamEndCapture(side, &graph), cudaGraphInstantiate(&ready, graph, 0);
        cudaGraphLaunch(ready, how == 20 ? side : nullptr);
    }
    if (how == 22 || how == 23) {  // pinned memory is written when the stream gets there, other memory at once
        static float *pinned, first;
        if (!pinned) cudaMallocHost(&pinned, 4);
        launch(x, y, n, side), cudaMemcpyAsync(how == 22 ? &first : pinned, data(y), 4, cudaMemcpyDeviceToHost, side);
    }
    return y;
}

// --- memory ---------------------------------------------------------------------------------------
torch::Tensor touches(torch::Tensor x, int64_t how) {
    auto y = plain(x);
    if (how == 1) return data(y)[0] == 123.0f ? x : y;
    if (how == 2) data(y)[0] = 1.0f;
    if (how == 3) return *(volatile int*)8 ? x : y;
    if (how == 4) {
        static const float four = 4.0f;
        cudaMemcpyToSymbol(scale, &four, 4);
        shift = 1.0f;  // managed memory is the host's too
        float *pinned, *managed, back;
        cudaMallocHost(&pinned, 4000), cudaMallocManaged(&managed, 4000);
        for (int i = 0; i < 1000; i++) pinned[i] = managed[i] = (float)i;
        copied<<<4, 256>>>(pinned, data(y), 1000);
        copied<<<4, 256>>>(data(y), managed, 1000);
        cudaMemcpy(&back, data(y) + 9, 4, cudaMemcpyDeviceToHost);
        TORCH_CHECK(back == 37.0f && managed[9] == 149.0f, back, " ", managed[9]);
        cudaFreeHost(pinned), cudaFree(managed);
    }
    return y;
}
torch::Tensor copies(torch::Tensor x) {
    auto y = plain(x);
    std::vector<float> host(1000);
    float *pinned, *managed;
    cudaMallocHost(&pinned, 4000), cudaMallocManaged(&managed, 4000);
    cudaMemcpy(host.data(), data(x), 4000, cudaMemcpyDeviceToHost);
    cudaMemcpy(data(y), host.data(), 2000, cudaMemcpyHostToDevice);
    cudaMemcpy(data(y), data(x), 1000, cudaMemcpyDeviceToDevice);
    cudaMemset(data(y), 0, 500);
    cudaMemcpy(pinned, data(x), 400, cudaMemcpyDeviceToDevice);  // whatever the caller says
    cudaMemcpy(managed, data(x), 300, cudaMemcpyDefault);
    cudaMemcpy(host.data(), pinned, 200, cudaMemcpyHostToHost);
    cudaFreeHost(pinned), cudaFree(managed);
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("plain", &plain), m.def("kept", &kept), m.def("from_kept", &from_kept), m.def("streams", &streams);
    m.def("touches", &touches), m.def("copies", &copies);
}
