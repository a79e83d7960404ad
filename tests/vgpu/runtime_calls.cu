// Runtime calls, checked against the values that CUDA documents; the argument says which.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cuda_runtime.h>

static int failures = 0;
static void is(int line, const char* what, long long got, long long wanted) {
    if (got == wanted) return;
    failures++;
    printf("line %d: %s is %lld, not %lld\n", line, what, got, wanted);
}
#define IS(got, wanted) is(__LINE__, #got, (long long)(got), (long long)(wanted))
#define OK(call) IS(call, cudaSuccess)

__global__ void add(const int* a, const int* b, int* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void __launch_bounds__(64) bounded(int* out) { out[threadIdx.x] = 1; }
__global__ void reversed(int* out) {
    extern __shared__ int s[];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__constant__ int table[4] = {2, 3, 5, 7};
__device__ int state = 40;
__global__ void through(int* out) { out[threadIdx.x] = table[threadIdx.x] + state; }
__global__ void transposed(const char* in, size_t in_pitch, char* out, size_t out_pitch) {
    int x = threadIdx.x, y = threadIdx.y;
    ((int*)(out + x * out_pitch))[y] = ((const int*)(in + y * in_pitch))[x];
}
__global__ void astray(int* p, int offset) { *(int*)((char*)p + offset) = 1; }

static void memory() {
    int *d = nullptr, *h = nullptr, *m = nullptr, back[64];
    OK(cudaMalloc(&d, sizeof back));
    OK(cudaMallocHost(&h, sizeof back));
    OK(cudaMallocManaged(&m, sizeof back));
    for (int i = 0; i < 64; i++) h[i] = i, m[i] = 100 * i;
    add<<<2, 32>>>(h, m, d, 64);  // pinned memory is mapped
    OK(cudaGetLastError());
    OK(cudaMemcpy(back, d, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) IS(back[i], 101 * i);
    OK(cudaMemset(d, 0x01, 8));
    OK(cudaMemcpy(back, d, sizeof back, cudaMemcpyDefault));
    IS(back[0], 0x01010101), IS(back[1], 0x01010101), IS(back[2], 202);
    IS(cudaMemset(d + 60, 0, 32), cudaErrorInvalidValue);
    IS(cudaMemcpy(d, back, sizeof back + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    IS(cudaMemcpy(d, back, 4, (cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    IS(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
    OK(cudaGetLastError());
    cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, d + 3)), IS(a.type, cudaMemoryTypeDevice), IS(a.hostPointer, 0);
    OK(cudaPointerGetAttributes(&a, h + 3)), IS(a.type, cudaMemoryTypeHost), IS(a.devicePointer, h + 3);
    OK(cudaPointerGetAttributes(&a, m + 3)), IS(a.type, cudaMemoryTypeManaged);
    OK(cudaPointerGetAttributes(&a, back)), IS(a.type, cudaMemoryTypeUnregistered);
    size_t free_before, free_after, total;
    OK(cudaMemGetInfo(&free_before, &total));
    IS(free_before + sizeof back, total);
    void* large;
    IS(cudaMalloc(&large, total), cudaErrorMemoryAllocation), IS(cudaGetLastError(), 2);
    IS(cudaFree(h), cudaErrorInvalidValue), IS(cudaFree(back), cudaErrorInvalidValue);
    OK(cudaFree(d)), OK(cudaFreeHost(h)), OK(cudaFree(m)), OK(cudaFree(nullptr));
    IS(cudaFree(d), cudaErrorInvalidValue);
    OK(cudaMemGetInfo(&free_after, &total)), IS(free_after, total);
    std::vector<int> own(1000, 5);
    int *seen, *out;
    OK(cudaMalloc(&out, 4000));
    OK(cudaHostRegister(own.data(), 4000, cudaHostRegisterMapped));
    IS(cudaHostRegister(own.data() + 9, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&seen, own.data(), 0));
    add<<<10, 128>>>(seen, seen, out, 1000);
    OK(cudaDeviceSynchronize());
    OK(cudaHostUnregister(own.data())), IS(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
    OK(cudaMemcpy(own.data(), out, 4000, cudaMemcpyDeviceToHost)), IS(own[0], 10), IS(own[999], 10);
    OK(cudaFree(out));
    cudaGetLastError();
}

static void shapes() {
    const int W = 5, H = 3;
    int in[H][W], back[W][H];
    for (int i = 0; i < W * H; i++) in[0][i] = i;
    char *a, *b;
    size_t pa, pb;
    OK(cudaMallocPitch((void**)&a, &pa, W * 4, H)), OK(cudaMallocPitch((void**)&b, &pb, H * 4, W));
    IS(pa % 32, 0);
    OK(cudaMemcpy2D(a, pa, in, W * 4, W * 4, H, cudaMemcpyHostToDevice));
    transposed<<<1, dim3(W, H)>>>(a, pa, b, pb);
    OK(cudaMemcpy2D(back, H * 4, b, pb, H * 4, W, cudaMemcpyDeviceToHost));
    for (int x = 0; x < W; x++) for (int y = 0; y < H; y++) IS(back[x][y], in[y][x]);
    IS(cudaMemcpy2D(a, 4, in, 4, 8, H, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    OK(cudaMemset2D(a, pa, 0xff, 4, H));
    OK(cudaMemcpy2D(in, W * 4, a, pa, W * 4, H, cudaMemcpyDeviceToHost));
    IS(in[1][0], -1), IS(in[1][1], 6);
    cudaPitchedPtr v;
    OK(cudaMalloc3D(&v, make_cudaExtent(8, 2, 3)));
    OK(cudaMemset3D(v, 3, make_cudaExtent(8, 2, 3)));
    char cube[3][2][8] = {};
    cudaMemcpy3DParms p = {};
    p.srcPtr = v, p.dstPtr = make_cudaPitchedPtr(cube, 8, 8, 2), p.kind = cudaMemcpyDeviceToHost;
    p.extent = make_cudaExtent(4, 2, 2), p.dstPos = make_cudaPos(4, 0, 1);
    OK(cudaMemcpy3D(&p));
    IS(cube[0][0][4], 0), IS(cube[1][0][3], 0), IS(cube[1][0][4], 3), IS(cube[2][1][7], 3);
    cudaGetLastError();
}

static void symbols() {
    int *d, *where, back[4], next[2] = {11, 13}, now = 0;
    size_t bytes;
    OK(cudaMalloc(&d, 16));
    OK(cudaMemcpyFromSymbol(&now, state, 4)), IS(now, 40);
    OK(cudaMemcpyToSymbol(table, next, 8, 4));
    OK(cudaGetSymbolSize(&bytes, table)), IS(bytes, 16);
    OK(cudaGetSymbolAddress((void**)&where, state));
    OK(cudaMemset(where, 0, 4));
    through<<<1, 4>>>(d);
    OK(cudaMemcpy(back, d, 16, cudaMemcpyDeviceToHost));
    IS(back[0], 2), IS(back[1], 11), IS(back[2], 13), IS(back[3], 7);
    IS(cudaMemcpyToSymbol(table, next, 8, 12), cudaErrorInvalidValue);
    IS(cudaMemcpyToSymbol(table, next, 8, 0, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
    IS(cudaGetSymbolSize(&bytes, (const void*)next), cudaErrorInvalidSymbol);
    cudaGetLastError();
}

static void called(void* data) { ++*(int*)data; }

static void streams() {
    cudaStream_t s, t;
    cudaEvent_t start, end, untimed;
    int *d, h[64] = {}, calls = 0, low, high;
    float ms = -1, twice = -1;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)), OK(cudaStreamCreate(&t));
    unsigned flags;
    OK(cudaStreamGetFlags(s, &flags)), IS(flags, cudaStreamNonBlocking);
    OK(cudaDeviceGetStreamPriorityRange(&low, &high)), IS(low, 0), IS(high < low, 1);
    OK(cudaEventCreate(&start)), OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    IS(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
    OK(cudaMallocAsync(&d, 1 << 20, s));
    OK(cudaMemsetAsync(d, 0, 1 << 20, s));
    OK(cudaEventRecord(start, s));
    add<<<1024, 256, 0, s>>>(d, d, d, 1 << 18);
    OK(cudaEventRecord(end, s)), OK(cudaEventSynchronize(end)), OK(cudaEventQuery(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    IS(ms > 1e-3 && ms < 1, 1);
    add<<<1024, 256, 0, s>>>(d, d, d, 1 << 18);
    OK(cudaEventRecord(end, s)), OK(cudaEventElapsedTime(&twice, start, end));
    IS(twice > 1.8 * ms && twice < 2.2 * ms, 1);
    OK(cudaEventRecord(untimed, s)), OK(cudaStreamWaitEvent(t, untimed, 0));
    IS(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
    OK(cudaLaunchHostFunc(t, called, &calls)), OK(cudaStreamSynchronize(t)), IS(calls, 1);
    OK(cudaMemcpyAsync(h, d, sizeof h, cudaMemcpyDeviceToHost, t)), OK(cudaStreamQuery(t));
    OK(cudaStreamDestroy(s));
    IS(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    add<<<1, 1, 0, s>>>(d, d, d, 1);
    IS(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(start)), IS(cudaEventRecord(start), cudaErrorInvalidResourceHandle);
    OK(cudaFreeAsync(d, t)), OK(cudaStreamDestroy(t));
    cudaGetLastError();
}

static void graphs() {
    cudaStream_t s, t;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    int *d, h[32], calls = 0;
    size_t nodes = 0;
    cudaStreamCreate(&s), cudaStreamCreate(&t), cudaEventCreate(&fork), cudaEventCreate(&join);
    OK(cudaMalloc(&d, 128)), OK(cudaMemset(d, 0, 128));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(d, 1, 128, s));
    OK(cudaEventRecord(fork, s)), OK(cudaStreamWaitEvent(t, fork, 0));
    OK(cudaLaunchHostFunc(t, called, &calls));
    for (int n = 32; n == 32; n = 0) add<<<1, 32, 0, s>>>(d, d, d, n);  // arguments are those of now
    OK(cudaEventRecord(join, t)), OK(cudaStreamWaitEvent(s, join, 0));
    OK(cudaMemcpyAsync(h, d, 128, cudaMemcpyDeviceToHost, s));
    IS(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaMemcpy(h, d, 128, cudaMemcpyDeviceToHost)), IS(h[0], 0), IS(calls, 0);  // nothing ran yet
    OK(cudaGraphGetNodes(graph, nullptr, &nodes)), IS(nodes, 4);
    OK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(ready, s));
    OK(cudaStreamSynchronize(s)), IS(h[31], 0x02020202), IS(calls, 3);
    OK(cudaGraphExecDestroy(ready)), OK(cudaGraphDestroy(graph));
    // built by hand, in an order that the edges correct
    OK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t copied, filled, doubled;
    cudaMemsetParams fill = {};
    fill.dst = d, fill.value = 7, fill.elementSize = 4, fill.width = 32, fill.height = 1;
    int n = 32;
    void* arguments[] = {&d, &d, &d, &n};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void*)add, kernel.gridDim = 1, kernel.blockDim = 32, kernel.kernelParams = arguments;
    OK(cudaGraphAddMemcpyNode1D(&copied, graph, nullptr, 0, h, d, 128, cudaMemcpyDeviceToHost));
    OK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    OK(cudaGraphAddKernelNode(&doubled, graph, &filled, 1, &kernel));
    OK(cudaGraphAddDependencies(graph, &doubled, &copied, nullptr, 1));
    OK(cudaGraphInstantiate(&ready, graph, 0)), OK(cudaGraphLaunch(ready, s)), IS(h[5], 14);
    n = 4;
    OK(cudaGraphExecKernelNodeSetParams(ready, doubled, &kernel));
    OK(cudaGraphLaunch(ready, s)), IS(h[3], 14), IS(h[4], 7);
    cudaGetLastError();
}

static void launches() {
    int *d, h[64];
    OK(cudaMalloc(&d, 1 << 16));
    reversed<<<1, 64, 256>>>(d);
    OK(cudaMemcpy(h, d, 256, cudaMemcpyDeviceToHost)), IS(h[0], 63), IS(h[63], 0);
    add<<<1, 2048>>>(d, d, d, 1);
    IS(cudaPeekAtLastError(), cudaErrorInvalidConfiguration), IS(cudaGetLastError(), 9), OK(cudaGetLastError());
    add<<<0, 32>>>(d, d, d, 1), IS(cudaGetLastError(), cudaErrorInvalidConfiguration);
    add<<<dim3(1, 70000), 32>>>(d, d, d, 1), IS(cudaGetLastError(), cudaErrorInvalidConfiguration);
    bounded<<<1, 65>>>(d), IS(cudaGetLastError() != cudaSuccess, 1);
    reversed<<<1, 64, 50 << 10>>>(d), IS(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(reversed, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    reversed<<<1, 64, 50 << 10>>>(d), OK(cudaGetLastError());
    IS(cudaFuncSetAttribute(reversed, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20), cudaErrorInvalidValue);
    IS(cudaLaunchKernel((const void*)h, 1, 1, nullptr, 0, 0), cudaErrorInvalidDeviceFunction);
    int n = 1;
    void* arguments[] = {&d, &d, &d, &n};
    IS(cudaLaunchCooperativeKernel((void*)add, 1 << 20, 128, arguments, 0, 0), cudaErrorCooperativeLaunchTooLarge);
    OK(cudaDeviceSynchronize());
    cudaGetLastError();
}

static void properties() {
    int count = 0, device = -1, value = 0, blocks = 0, size = 0, grid = 0;
    OK(cudaGetDeviceCount(&count)), IS(count, 1), OK(cudaGetDevice(&device)), IS(device, 0);
    IS(cudaSetDevice(1), cudaErrorInvalidDevice), OK(cudaSetDevice(0));
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    IS(strstr(p.name, "A100") != nullptr, 1), IS(p.major, 8), IS(p.minor, 0), IS(p.multiProcessorCount, 108);
    IS(p.sharedMemPerBlock, 49152), IS(p.sharedMemPerBlockOptin, 166912), IS(p.warpSize, 32), IS(p.regsPerBlock, 65536);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerMultiProcessor, 0)), IS(value, 2048);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrCooperativeLaunch, 0)), IS(value, 1);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrIntegrated, 0)), IS(value, 0);
    IS(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)0, 0), cudaErrorInvalidValue);
    cudaFuncAttributes a;
    OK(cudaFuncGetAttributes(&a, add)), IS(a.ptxVersion, 80), IS(a.maxThreadsPerBlock, 1024), IS(a.sharedSizeBytes, 0);
    IS(a.numRegs >= 8 && a.numRegs <= 32, 1), IS(a.constSizeBytes, 16);
    OK(cudaFuncGetAttributes(&a, bounded)), IS(a.maxThreadsPerBlock, 64);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0)), IS(blocks, 8);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 40 << 10)), IS(blocks, 4);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &size, add, 0, 0)), IS(grid * size, 108 * 2048);
    size_t bytes = 0;
    OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 4, 256)), IS(bytes >= 39 << 10 && bytes <= 41 << 10, 1);
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 24)), OK(cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize));
    IS(bytes, 1 << 24);
    IS(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"), 0);
    IS(strcmp(cudaGetErrorString(cudaErrorLaunchOutOfResources), "too many resources requested for launch"), 0);
    IS(strcmp(cudaGetErrorString((cudaError_t)12345), "unrecognized error code"), 0);
    cudaGetLastError();
}

static void broken(int offset, int error) {
    int *d, h = 0;
    OK(cudaMalloc(&d, 64));
    astray<<<1, 1>>>(d, offset);
    OK(cudaGetLastError());  // the launch itself was fine
    IS(cudaDeviceSynchronize(), error);
    IS(cudaGetLastError(), error), IS(cudaGetLastError(), error);
    IS(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost), error);
    astray<<<1, 1>>>(d, 0);
    IS(cudaGetLastError(), error), IS(cudaFree(d), error);
    OK(cudaDeviceReset()), OK(cudaGetLastError()), OK(cudaMalloc(&d, 64)), OK(cudaFree(d));
}

int main(int argc, char** argv) {
    if (!strcmp(argv[1], "illegal")) broken(64, cudaErrorIllegalAddress), broken(2, cudaErrorMisalignedAddress);
    else if (!strcmp(argv[1], "array")) {
        cudaArray_t array;
        cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        IS(cudaMallocArray(&array, &format, 4, 4), cudaErrorNotSupported);
    } else memory(), shapes(), symbols(), streams(), graphs(), launches(), properties();
    puts(failures ? "wrong" : "all as documented");
    return failures != 0;
}
