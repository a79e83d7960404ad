// Function pointers in tables, virtual functions, lambdas, parameter packs, and the device heap.
#include "check.h"

typedef float (*op)(float, float);

__device__ float fadd(float a, float b) {
    return a + b;
}

__device__ float fmulx(float a, float b) {
    return a * b;
}

__device__ float fsubx(float a, float b) {
    return a - b;
}

__device__ op table[3] = {fadd, fmulx, fsubx};
__device__ op single = fmulx;

__global__ void call(op *t, op s, float *o) {
    int i = threadIdx.x;
    o[i] = t[i % 3](i, 2) + s(1, i);
}

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};

struct Square : Shape {
    float a;
    __device__ Square(float x) : a(x) {}
    __device__ float area() const override { return a * a; }
};

struct Disc : Shape {
    float r;
    __device__ Disc(float x) : r(x) {}
    __device__ float area() const override { return 3.0f * r * r; }
};

__global__ void virt(float *o) {
    Shape *s;
    if (threadIdx.x & 1) s = new Square(threadIdx.x);
    else s = new Disc(threadIdx.x);
    o[threadIdx.x] = s->area();
    delete s;
}

template <class F> __global__ void apply(F f, float *o) {
    int i = threadIdx.x;
    o[i] = f(i);
}

template <class T, class... R> __device__ T sumv(T a, R... r) {
    if constexpr (sizeof...(r) == 0) return a;
    else return a + sumv(r...);
}

__global__ void heap(int **p, int n) {
    p[threadIdx.x] = (int*)malloc(n * 4);
    for (int i = 0; i < n; i++) p[threadIdx.x][i] = threadIdx.x + i;
    __syncthreads();
    int *q = p[(threadIdx.x + 1) % blockDim.x];
    int s = 0;
    for (int i = 0; i < n; i++) s += q[i];
    __syncthreads();
    p[threadIdx.x][0] = s;
}

__global__ void heap2(int **p, int *o) {
    o[threadIdx.x] = p[threadIdx.x][0];
    free(p[threadIdx.x]);
}

int main() {
    op *t, s;
    CALL(cudaGetSymbolAddress((void**)&t, table));
    CALL(cudaMemcpyFromSymbol(&s, single, sizeof s));
    float *o, h[32];
    CALL(cudaMalloc(&o, 128));
    call<<<1, 32>>>(t, s, o);
    CALL(cudaMemcpy(h, o, 128, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) EXPECT(h[i] == (i % 3 == 0 ? i + 2 : i % 3 == 1 ? i * 2 : i - 2) + i);
    virt<<<1, 32>>>(o);
    CALL(cudaMemcpy(h, o, 128, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) EXPECT(h[i] == (i & 1 ? 1 : 3) * i * i);
    float k = 4;
    apply<<<1, 32>>>([=] __device__(int i) { return sumv(k, (float)i, 1.0f); }, o);
    CALL(cudaMemcpy(h, o, 128, cudaMemcpyDeviceToHost));
    EXPECT(h[3] == 8);
    int **p, *r, hr[32];
    CALL(cudaMalloc(&p, 256));
    CALL(cudaMalloc(&r, 128));
    heap<<<1, 32>>>(p, 10);
    heap2<<<1, 32>>>(p, r);
    CALL(cudaMemcpy(hr, r, 128, cudaMemcpyDeviceToHost));
    EXPECT(hr[0] == 55);
    CALL(cudaDeviceSynchronize());
}
