// Lanes that act together: counters advanced once per group, buckets, scans within tiles.
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void odd_ones(int *dst, const int *src, int *n, int m) {
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < m; i += blockDim.x * gridDim.x) {
        if (src[i] % 2 == 0) continue;
        auto here = cg::coalesced_threads();
        int first = here.thread_rank() == 0 ? atomicAdd(n, here.size()) : 0;
        dst[here.shfl(first, 0) + here.thread_rank()] = src[i];
    }
}

__global__ void thirds(int *dst, const int *src, int *n, int m) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= m || src[i] % 3) return;
    unsigned active = __activemask(), before = active & ((1u << threadIdx.x % 32) - 1);
    int place = 0;
    if (before == 0) place = atomicAdd(n, __popc(active));
    dst[__shfl_sync(active, place, __ffs(active) - 1) + __popc(before)] = src[i];
}

__global__ void labeled(const int *bucket, int *cnt, int m) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < m) {
        auto a = cg::coalesced_threads();
        auto l = cg::labeled_partition(a, bucket[i]);
        if (l.thread_rank() == 0) atomicAdd(&cnt[bucket[i]], l.size());
    }
}

__global__ void match(const int *bucket, int *cnt, int m) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < m) {
        unsigned p = __match_any_sync(__activemask(), bucket[i]);
        if ((threadIdx.x & 31) == __ffs(p) - 1) atomicAdd(&cnt[bucket[i]], __popc(p));
    }
}

__global__ void tiles(int *o) {
    auto b = cg::this_thread_block();
    auto t = cg::tiled_partition<8>(b);
    int v = t.thread_rank();
    int s = cg::inclusive_scan(t, v);
    int e = cg::exclusive_scan(t, v);
    bool any = t.any(v == 3);
    unsigned bal = t.ballot(v > 4);
    auto bp = cg::binary_partition(t, v % 2 == 0);
    o[threadIdx.x] = s * 10000 + e * 100 + any * 10 + bp.size() + (bal == 0xe0 ? 0 : 5);
}

int main() {
    int m = 20000;
    std::vector<int> h(m);
    for (auto &x : h) x = rand() % 1000;
    int *s, *d, *n, c;
    CALL(cudaMalloc(&s, m * 4));
    CALL(cudaMalloc(&d, m * 4));
    CALL(cudaMalloc(&n, 4000));
    CALL(cudaMemcpy(s, h.data(), m * 4, cudaMemcpyHostToDevice));
    CALL(cudaMemset(n, 0, 4));
    odd_ones<<<20, 256>>>(d, s, n, m);
    CALL(cudaMemcpy(&c, n, 4, cudaMemcpyDeviceToHost));
    int r = 0;
    for (int x : h) r += x & 1;
    EXPECT(c == r);
    std::vector<int> q(c);
    CALL(cudaMemcpy(q.data(), d, c * 4, cudaMemcpyDeviceToHost));
    long s1 = 0, s2 = 0;
    for (int x : q) s1 += x;
    for (int x : h) if (x & 1) s2 += x;
    EXPECT(s1 == s2);
    CALL(cudaMemset(n, 0, 4));
    thirds<<<(m + 255) / 256, 256>>>(d, s, n, m);
    CALL(cudaMemcpy(&c, n, 4, cudaMemcpyDeviceToHost));
    r = 0;
    for (int x : h) r += x % 3 == 0;
    EXPECT(c == r);
    for (int k = 0; k < 2; k++) {
        CALL(cudaMemset(n, 0, 4000));
        if (k) match<<<(m + 127) / 128, 128>>>(s, n, m);
        else labeled<<<(m + 127) / 128, 128>>>(s, n, m);
        std::vector<int> cn(1000), rf(1000);
        CALL(cudaMemcpy(cn.data(), n, 4000, cudaMemcpyDeviceToHost));
        for (int x : h) rf[x]++;
        EXPECT(cn == rf);
    }
    tiles<<<1, 64>>>(d);
    int t[64];
    CALL(cudaMemcpy(t, d, 256, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        int v = i % 8;
        EXPECT(t[i] == v * (v + 1) / 2 * 10000 + v * (v - 1) / 2 * 100 + 10 + 4);
    }
}
