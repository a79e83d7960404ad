// Code that looks like a mistake and is none: nothing may be found here.
#include "check.h"

constexpr int N = 1024;
extern __shared__ float dynamic[];

// Lanes beyond half of a step read past what was written, and nobody takes their result.
template <int THREADS>
__global__ void past_the_end(const float* in, float* out) {
    volatile float* s = dynamic;
    int t = threadIdx.x;
    s[t] = in[blockIdx.x * THREADS + t];
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2)
        if (t < 32) s[t] = s[t] + s[t + step];
    if (t == 0) out[blockIdx.x] = s[0];
}

struct __align__(16) Point {
    float x, y, z;
};
struct Mixed {
    char c;
    double d;
    short s;
};
__global__ void by_member(Point* p, Mixed* q) {
    int i = threadIdx.x;
    p[i].x = i, p[i].y = 2 * i, p[i].z = 3 * i;
    q[i].c = i, q[i].d = i * .5, q[i].s = i;
}
__global__ void as_a_whole(Point* to, const Point* from, Mixed* other_to, const Mixed* other_from) {
    __shared__ Point s[64];
    int i = threadIdx.x;
    s[i].x = from[i].x, s[i].y = from[i].y, s[i].z = from[i].z;
    __syncthreads();
    to[i] = s[63 - i];
    to[i + 64] = from[i];
    other_to[i] = other_from[i];
}

// The last vector of a row is half empty.
__global__ void row(float* a, int width) {
    if (threadIdx.x < width) a[threadIdx.x] = threadIdx.x;
}
__global__ void by_vectors(const float4* a, float* out, int width) {
    float4 v = a[threadIdx.x];
    float parts[4] = {v.x, v.y, v.z, v.w}, sum = 0;
    for (int k = 0; k < 4; k++)
        if (threadIdx.x * 4 + k < width) sum += parts[k];
    out[threadIdx.x] = sum;
}

__global__ void all_say_the_same(int* values, int n, bool* changed) {
    __shared__ int agreed;
    agreed = 5;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && values[i] > agreed) values[i]--, *changed = true;
}

__global__ void within_warps(float* out) {
    __shared__ float s[64];
    int t = threadIdx.x, base = t / 32 * 32, lane = t % 32;
    s[t] = t;
    __syncwarp();
    float v = s[base + (lane + 1) % 32];
    __syncwarp();
    s[t] = v * 2;
    __syncwarp();
    out[t] = s[base + 31 - lane];
}

__global__ void two_uses(int* out) {
    __shared__ union {
        int i[128];
        float f[128];
    } u;
    u.i[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int v = u.i[127 - threadIdx.x];
    __syncthreads();
    u.f[threadIdx.x] = v;
    __syncthreads();
    out[threadIdx.x] = (int)u.f[threadIdx.x ^ 1];
}

__global__ void sometimes_set(int* out) {
    int last;
    bool set = false;
    for (int i = 0; i < 2; i++)
        if ((threadIdx.x + i) % 3 == 0) last = i, set = true;
    out[threadIdx.x] = set ? last : -1;
}

__global__ void after_a_fence(int* data, int* done, int* sum) {
    __shared__ bool last;
    data[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (last)
        for (int i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) atomicAdd(sum, data[i]);
}

int main() {
    float *ones = device(std::vector<float>(N, 1)), *out = device(std::vector<float>(N));
    past_the_end<32><<<4, 32, 2 * 32 * sizeof(float)>>>(ones, out);
    EXPECT(host(out, 4)[3] == 32);
    past_the_end<64><<<4, 64, 64 * sizeof(float)>>>(ones, out);
    EXPECT(host(out, 4)[3] == 64);
    Point *p, *p2;
    Mixed *q, *q2;
    CALL(cudaMalloc(&p, 64 * sizeof(Point)));
    CALL(cudaMalloc(&p2, 128 * sizeof(Point)));
    CALL(cudaMalloc(&q, 64 * sizeof(Mixed)));
    CALL(cudaMalloc(&q2, 64 * sizeof(Mixed)));
    by_member<<<1, 64>>>(p, q);
    as_a_whole<<<1, 64>>>(p2, p, q2, q);
    EXPECT(host(p2, 128)[1].z == 3 * 62 && host(p2, 128)[65].y == 2 && host(q2, 64)[9].d == 4.5);
    float* partly;
    CALL(cudaMalloc(&partly, 64 * sizeof(float)));
    row<<<1, 64>>>(partly, 61);
    by_vectors<<<1, 16>>>((float4*)partly, out, 61);
    EXPECT(host(out, 16)[15] == 60);
    int* values = device(std::vector<int>(N, 9));
    bool* changed;
    CALL(cudaMalloc(&changed, 1));
    all_say_the_same<<<4, 256>>>(values, N, changed);
    EXPECT(host(values, N)[N - 1] == 8 && host((char*)changed, 1)[0] == 1);
    within_warps<<<1, 64>>>(out);
    EXPECT(host(out, 64)[32] == 2 * 32 && host(out, 64)[33] == 2 * 63);
    two_uses<<<1, 128>>>(values);
    EXPECT(host(values, 128)[0] == 126);
    sometimes_set<<<1, 64>>>(values);
    EXPECT(host(values, 64)[0] == 0 && host(values, 64)[1] == -1 && host(values, 64)[2] == 1);
    int *done = device(std::vector<int>(2)), *data;
    CALL(cudaMalloc(&data, N * sizeof(int)));
    after_a_fence<<<8, 128>>>(data, done, done + 1);
    EXPECT(host(done, 2)[1] == N);
}
