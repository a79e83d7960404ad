// Threads that wait for others: locks between blocks and between lanes of one warp, turns, barriers of a grid.
#include "check.h"

__device__ int lock, counter;
__device__ volatile int turn;

__global__ void between_blocks(int n) {
    for (int i = 0; i < n; i++) {
        if (threadIdx.x == 0) {
            while (atomicCAS(&lock, 0, 1) != 0) {
            }
            __threadfence();
            counter = counter + 1;
            __threadfence();
            atomicExch(&lock, 0);
        }
        __syncthreads();
    }
}

// One lane gets the lock and leaves the loop, and must go on although the others are still in it.
__global__ void between_lanes() {
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    __threadfence();
    counter = counter + 1;
    __threadfence();
    atomicExch(&lock, 0);
}

__global__ void inside_the_loop() {
    for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) != 0) continue;
        counter = counter + 1;
        __threadfence();
        atomicExch(&lock, 0);
        done = true;
    }
}

__global__ void in_turn(int* out) {
    if (threadIdx.x != 0) return;
    while (turn != blockIdx.x) {
    }
    out[blockIdx.x] = blockIdx.x ? out[blockIdx.x - 1] + 1 : 1;
    __threadfence();
    turn = blockIdx.x + 1;
}

__device__ unsigned arrived;
__device__ volatile unsigned generation;

__device__ void wait_for_grid() {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned now = generation;
        __threadfence();
        if (atomicAdd(&arrived, 1) == gridDim.x - 1) {
            arrived = 0;
            __threadfence();
            generation = now + 1;
        } else {
            while (generation == now) {
            }
        }
        __threadfence();
    }
    __syncthreads();
}

__global__ void smooth(float* a, float* b, int n, int steps) {
    for (int step = 0; step < steps; step++) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            b[i] = 0.5f * (a[max(i - 1, 0)] + a[min(i + 1, n - 1)]);
        wait_for_grid();
        float* swapped = a;
        a = b;
        b = swapped;
    }
}

int counted() {
    int value;
    CALL(cudaDeviceSynchronize());
    CALL(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    return value;
}

int main() {
    between_blocks<<<32, 64>>>(4);
    EXPECT(counted() == 128);
    between_lanes<<<2, 64>>>();
    EXPECT(counted() == 256);
    inside_the_loop<<<4, 64>>>();
    EXPECT(counted() == 512);
    int* out = device(std::vector<int>(50));
    in_turn<<<50, 32>>>(out);
    EXPECT(host(out, 50)[49] == 50);
    int n = 5000, steps = 8;
    std::vector<float> x(n), y(n);
    for (int i = 0; i < n; i++) x[i] = (float)(i * 37 % 101);
    float *a = device(x), *b = device(y);
    smooth<<<16, 128>>>(a, b, n, steps);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < n; i++) y[i] = 0.5f * (x[std::max(i - 1, 0)] + x[std::min(i + 1, n - 1)]);
        std::swap(x, y);
    }
    EXPECT(host(a, n) == x);
}
