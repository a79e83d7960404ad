// Memory that host and device share, streams with callbacks, host threads, pools, and what a device says of itself.
#include <thread>

#include "check.h"

__device__ __managed__ int shift = 7;
__managed__ float ramp[100];

__global__ void move_up(int* p, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) p[i] += shift;
    if (i < 100) ramp[i] = i;
}

__global__ void count_all(int* counts) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    atomicAdd_system(&counts[0], 3);
    atomicMax_system(&counts[1], i);
    atomicOr_system(&counts[2], 1 << i % 32);
    for (int seen = counts[3];;) {
        int before = atomicCAS_system(&counts[3], seen, seen + 1);
        if (before == seen) break;
        seen = before;
    }
}

struct Managed {
    int values[10];
    void* operator new(size_t bytes) {
        void* p;
        CALL(cudaMallocManaged(&p, bytes));
        return p;
    }
    void operator delete(void* p) { CALL(cudaFree(p)); }
};
__global__ void triple(Managed* m) { m->values[threadIdx.x] = 3 * threadIdx.x; }

void CUDART_CB of_stream(cudaStream_t, cudaError_t error, void* data) { *(int*)data += error == cudaSuccess; }
void CUDART_CB of_host(void* data) { *(int*)data += 10; }

void managed() {
    int n = 1000, *p, *counts;
    CALL(cudaMallocManaged(&p, n * sizeof(int)));
    for (int i = 0; i < n; i++) p[i] = i;
    move_up<<<4, 256>>>(p, n);
    CALL(cudaDeviceSynchronize());
    shift = 1;
    move_up<<<4, 256>>>(p, n);
    CALL(cudaDeviceSynchronize());
    EXPECT(p[5] == 13 && p[999] == 1007 && ramp[99] == 99);
    CALL(cudaMallocManaged(&counts, 4 * sizeof(int)));
    std::fill(counts, counts + 4, 0);
    count_all<<<8, 96>>>(counts);
    CALL(cudaDeviceSynchronize());
    EXPECT(counts[0] == 3 * 768 && counts[1] == 767 && counts[2] == -1 && counts[3] == 768);
    auto* m = new Managed;
    triple<<<1, 10>>>(m);
    CALL(cudaDeviceSynchronize());
    EXPECT(m->values[9] == 27);
    delete m;
}

void streams() {
    int n = 1 << 14, parts = 4, calls = 0, *pinned, *d;
    CALL(cudaHostAlloc(&pinned, n * sizeof(int), cudaHostAllocPortable));
    CALL(cudaMalloc(&d, n * sizeof(int)));
    for (int i = 0; i < n; i++) pinned[i] = i;
    for (int part = 0; part < parts; part++) {
        cudaStream_t s;
        CALL(cudaStreamCreate(&s));
        int from = part * n / parts, bytes = n / parts * (int)sizeof(int);
        CALL(cudaMemcpyAsync(d + from, pinned + from, bytes, cudaMemcpyHostToDevice, s));
        move_up<<<n / parts / 256, 256, 0, s>>>(d + from, n / parts);
        CALL(cudaMemcpyAsync(pinned + from, d + from, bytes, cudaMemcpyDeviceToHost, s));
        CALL(cudaStreamAddCallback(s, of_stream, &calls, 0));
        CALL(cudaLaunchHostFunc(s, of_host, &calls));
        CALL(cudaStreamDestroy(s));
    }
    CALL(cudaDeviceSynchronize());
    EXPECT(calls == 44 && pinned[0] == 1 && pinned[n - 1] == n);
    std::vector<int> own(n, 4);
    int* mapped;
    CALL(cudaHostRegister(own.data(), n * sizeof(int), cudaHostRegisterMapped));
    CALL(cudaHostGetDevicePointer(&mapped, own.data(), 0));
    move_up<<<n / 256, 256>>>(mapped, n);
    CALL(cudaDeviceSynchronize());
    CALL(cudaHostUnregister(own.data()));
    EXPECT(own[n - 1] == 5);
}

void threads() {
    std::vector<std::thread> all;
    std::vector<int> results(6);
    for (int number = 0; number < 6; number++)
        all.emplace_back([&results, number] {
            int* d = device(std::vector<int>(512, number));
            move_up<<<2, 256>>>(d, 512);
            results[number] = host(d, 512)[511];
            CALL(cudaFree(d));
        });
    for (auto& one : all) one.join();
    for (int number = 0; number < 6; number++) EXPECT(results[number] == number + 1);
}

void pools() {
    cudaMemPool_t pool;
    CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long keep = ~0ull, kept = 0;
    CALL(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CALL(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    EXPECT(kept == keep);
    // a program that allocates all the time
    for (int i = 0; i < 500; i++) {
        int* p;
        CALL(cudaMallocAsync(&p, 4096, 0));
        CALL(cudaMemsetAsync(p, i, 4096, 0));
        CALL(cudaFreeAsync(p, 0));
    }
    cudaEvent_t start, end;
    CALL(cudaEventCreate(&start));
    CALL(cudaEventCreate(&end));
    CALL(cudaEventRecord(start));
    int* d = device(std::vector<int>(256));
    for (int i = 0; i < 300; i++) move_up<<<1, 256>>>(d, 256);
    CALL(cudaEventRecord(end));
    float ms = 0;
    CALL(cudaEventElapsedTime(&ms, start, end));
    EXPECT(host(d, 256)[255] == 300 && ms > 0);
}

void properties() {
    cudaDeviceProp p;
    CALL(cudaGetDeviceProperties(&p, 0));
    int khz = 0;
    CALL(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, 0));
    double bytes_per_s = 2.0 * khz * 1e3 * p.memoryBusWidth / 8;
    EXPECT(bytes_per_s > 1e11 && bytes_per_s < 1e13);
    char bus[32];
    int device = -1;
    CALL(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    CALL(cudaDeviceGetByPCIBusId(&device, bus));
    EXPECT(device == 0);
    cudaStream_t s;
    CALL(cudaStreamCreate(&s));
    cudaStreamAttrValue value = {}, back = {};
    value.accessPolicyWindow.num_bytes = 4096;
    CALL(cudaStreamSetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &value));
    CALL(cudaStreamGetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &back));
    EXPECT(back.accessPolicyWindow.num_bytes == 4096);
}

int main() {
    managed();
    streams();
    threads();
    pools();
    properties();
}
