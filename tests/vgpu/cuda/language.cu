// Parameters of all kinds, templates, overloads, constants, and odd control flow.
#include <type_traits>
#include <utility>

#include "check.h"

template <class T, int N>
struct Vec {
    T d[N];
    __host__ __device__ T &operator[](int i) { return d[i]; }
    __host__ __device__ const T &operator[](int i) const { return d[i]; }
    __host__ __device__ friend Vec operator+(const Vec &a, const Vec &b) {
        Vec r;
        for (int i = 0; i < N; i++) r[i] = a[i] + b[i];
        return r;
    }
};

struct Big {
    int x[900];
};

__global__ void bigk(const __grid_constant__ Big s, int *o) {
    o[threadIdx.x] = s.x[threadIdx.x * 9];
}

__device__ constexpr int tab[5] = {1, 4, 9, 16, 25};
__constant__ double cd[3] = {1.5, 2.5, 3.5};

template <class T> __global__ void gen(T *o) {
    if constexpr (std::is_same_v<T, Vec<int, 3>>) {
        Vec<int, 3> a{{1, 2, 3}}, b{{4, 5, 6}};
        o[threadIdx.x] = a + b;
    } else o[threadIdx.x] = (T)(tab[threadIdx.x % 5] + cd[threadIdx.x % 3]);
}

namespace ns {
    enum class E : short { A = 3, B = -4 };
    union U { float f; unsigned u; };
    struct B { unsigned a : 5, b : 11, c : 16; };
    __global__ void odd(int *o, E e, bool flag, char c, short s, long long l, double d, float f, U u, B b) {
        o[0] = (int)e;
        o[1] = flag;
        o[2] = c;
        o[3] = s;
        o[4] = (int)(l >> 32);
        o[5] = (int)d;
        o[6] = (int)f;
        o[7] = u.u;
        o[8] = b.a;
        o[9] = b.b;
        o[10] = b.c;
    }
}

__global__ void overload(int *a) {
    a[0] = 1;
}

__global__ void overload(int *a, int b) {
    a[0] = b;
}

__global__ void overload(float *a) {
    a[0] = 3;
}

__device__ int counter;

__device__ int &cref() {
    return counter;
}

__global__ void gotos(int *o, int n) {
    int i = 0, s = 0;
    again: s += i;
    if (++i < n) goto again;
    o[0] = s;
    cref() = s;
    static __device__ int st;
    st = s;
    do {
        s--;
        if (s % 7 == 0) continue;
        if (s < 20) break;
    } while (s > 0);
    o[1] = s;
    for (;;) {
        if (s++ > 50) break;
        switch (s % 5) {
            case 0: s += 2;
            [[fallthrough]];
            case 1: continue;
            default: s++;
        }
    }
    o[2] = s;
}

int main() {
    int *o;
    CALL(cudaMalloc(&o, 4096));
    int h[1024];
    Big b;
    for (int i = 0; i < 900; i++) b.x[i] = i;
    bigk<<<1, 100>>>(b, o);
    CALL(cudaMemcpy(h, o, 400, cudaMemcpyDeviceToHost));
    EXPECT(h[99] == 891);
    gen<<<1, 30>>>((double*)o);
    double hd[30];
    CALL(cudaMemcpy(hd, o, 240, cudaMemcpyDeviceToHost));
    EXPECT(hd[7] == 9 + 2.5);
    gen<<<1, 30>>>((Vec<int, 3>*)o);
    CALL(cudaMemcpy(h, o, 360, cudaMemcpyDeviceToHost));
    EXPECT(h[5] == 9);
    ns::U u;
    u.f = 1.0f;
    ns::B bb{17, 1000, 50000};
    ns::odd<<<1, 1>>>(o, ns::E::B, true, -5, -300, -1ll << 40, 2.9, -3.9f, u, bb);
    CALL(cudaMemcpy(h, o, 44, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == -4 && h[1] == 1 && h[2] == -5 && h[3] == -300 && h[4] == -256 && h[5] == 2 && h[6] == -3 &&
        h[7] == 0x3f800000 && h[8] == 17 && h[9] == 1000 && h[10] == 50000);
    overload<<<1, 1>>>(o, 9);
    CALL(cudaMemcpy(h, o, 4, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 9);
    void (*fp)(int *) = overload;
    fp<<<1, 1>>>(o);
    cudaFuncAttributes fa;
    CALL(cudaFuncGetAttributes(&fa, (const void*)fp));
    CALL(cudaMemcpy(h, o, 4, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 1);
    gotos<<<1, 1>>>(o, 100);
    CALL(cudaMemcpy(h, o, 12, cudaMemcpyDeviceToHost));
    int s = 4950;
    do {
        s--;
        if (s % 7 == 0) continue;
        if (s < 20) break;
    } while (s > 0);
    EXPECT(h[0] == 4950 && h[1] == s);
    int c;
    CALL(cudaMemcpyFromSymbol(&c, counter, 4));
    EXPECT(c == 4950);
}
