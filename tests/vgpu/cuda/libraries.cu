// CUB and Thrust: sorts, scans and reductions of blocks and of whole arrays.
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>

#include <numeric>

#include "check.h"

template <int THREADS, int ITEMS>
__global__ void sort_blocks(const int* in, int* out) {
    using Load = cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<int, THREADS, ITEMS>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Sort::TempStorage sort;
    } memory;
    int values[ITEMS], first = blockIdx.x * THREADS * ITEMS;
    Load(memory.load).Load(in + first, values);
    __syncthreads();
    Sort(memory.sort).Sort(values);
    cub::StoreDirectBlocked(threadIdx.x, out + first, values);
}

int main() {
    int n = 20000, part = 512;
    std::vector<int> values(n);
    for (int i = 0; i < n; i++) values[i] = (int)((i * 2654435761u) >> 8) - 5000000;
    auto sorted = values;
    int *in = device(values), *out = device(values);
    sort_blocks<128, 4><<<8, 128>>>(in, out);
    auto result = host(out, n);
    for (int i = 0; i < 8 * part; i += part) {
        std::sort(sorted.begin() + i, sorted.begin() + i + part);
        EXPECT(std::equal(sorted.begin() + i, sorted.begin() + i + part, result.begin() + i));
    }
    std::sort(sorted.begin(), sorted.end());
    void* memory = nullptr;
    size_t bytes = 0;
    CALL(cub::DeviceScan::InclusiveSum(memory, bytes, in, out, n));
    CALL(cudaMalloc(&memory, bytes));
    CALL(cub::DeviceScan::InclusiveSum(memory, bytes, in, out, n));
    std::vector<int> sums(n);
    std::partial_sum(values.begin(), values.end(), sums.begin());
    EXPECT(host(out, n) == sums);

    thrust::device_vector<int> d(values.begin(), values.end());
    thrust::sort(d.begin(), d.end());
    EXPECT(thrust::equal(sorted.begin(), sorted.end(), std::vector<int>(host(d.data().get(), n)).begin()));
    int most = thrust::reduce(d.begin(), d.end(), 0, cuda::maximum<int>());
    EXPECT(most == sorted.back());
    auto squares = thrust::transform_reduce(
        thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(100),
        [] __device__(int x) -> int { return x * x; }, 0, cuda::std::plus<int>());
    EXPECT(squares == 328350);
}
