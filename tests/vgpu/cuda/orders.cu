// Scans and sorts: a look-back over blocks, bitonic, radix, merge, and recursion.
#include "check.h"

__device__ unsigned tickets;

// Each block adds what the blocks before it have published: a total, or a total with everything before it.
__global__ void scan(const unsigned* in, unsigned* out, volatile unsigned long long* published, int n) {
    __shared__ unsigned tile, before, totals[8];
    if (threadIdx.x == 0) tile = atomicAdd(&tickets, 1);
    __syncthreads();
    int i = tile * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned sum = i < n ? in[i] : 0;
    for (int step = 1; step < 32; step *= 2) {
        unsigned lower = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += lower;
    }
    if (lane == 31) totals[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += totals[w];
    if (threadIdx.x == blockDim.x - 1) {
        unsigned prefix = 0;
        published[tile] = (tile ? 1ull : 2ull) << 32 | sum;
        for (int other = (int)tile - 1; other >= 0;) {
            unsigned long long said = published[other];
            if (said >> 32 == 0) continue;
            prefix += (unsigned)said;
            if (said >> 32 == 2) break;
            other--;
        }
        if (tile) published[tile] = 2ull << 32 | (prefix + sum);
        before = prefix;
    }
    __syncthreads();
    if (i < n) out[i] = before + sum;
}

__global__ void exchange(unsigned* keys, unsigned distance, unsigned size) {
    unsigned i = threadIdx.x + blockDim.x * blockIdx.x, j = i ^ distance;
    if (j <= i) return;
    unsigned a = keys[i], b = keys[j];
    if ((a > b) == ((i & size) == 0)) keys[i] = b, keys[j] = a;
}

// One block, bit by bit: those with a zero first, and in the order they had.
__global__ void radix(unsigned* keys) {
    __shared__ unsigned ones[256];
    unsigned t = threadIdx.x, n = blockDim.x;
    for (int bit = 0; bit < 32; bit++) {
        unsigned key = keys[t], one = key >> bit & 1;
        ones[t] = one;
        __syncthreads();
        for (unsigned step = 1; step < n; step *= 2) {
            unsigned lower = t >= step ? ones[t - step] : 0;
            __syncthreads();
            ones[t] += lower;
            __syncthreads();
        }
        keys[one ? n - ones[n - 1] + ones[t] - 1 : t - ones[t]] = key;
        __syncthreads();
    }
}

__global__ void merge(const unsigned* in, unsigned* out, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int base = i / (2 * width) * 2 * width, middle = min(base + width, n);
    bool left = i < middle;
    int low = left ? middle : base, high = left ? min(middle + width, n) : middle, start = low;
    while (low < high) {
        int at = (low + high) / 2;
        if (left ? in[at] < in[i] : in[at] <= in[i])
            low = at + 1;
        else
            high = at;
    }
    out[i - (left ? 0 : width) + low - start] = in[i];
}

__device__ void quick(unsigned* keys, int first, int last) {
    while (first < last) {
        unsigned pivot = keys[(first + last) / 2];
        int i = first, j = last;
        while (i <= j) {
            while (keys[i] < pivot) i++;
            while (keys[j] > pivot) j--;
            if (i <= j) {
                unsigned swapped = keys[i];
                keys[i++] = keys[j];
                keys[j--] = swapped;
            }
        }
        quick(keys, first, j);
        first = i;
    }
}
__global__ void quick_each(unsigned* keys, int count) { quick(keys + threadIdx.x * count, 0, count - 1); }

int main() {
    int n = 20000, tiles = (n + 255) / 256;
    std::vector<unsigned> values(n);
    for (int i = 0; i < n; i++) values[i] = (i * 2654435761u) >> 20;
    unsigned *in = device(values), *out = device(values);
    scan<<<tiles, 256>>>(in, out, device(std::vector<unsigned long long>(tiles)), n);
    auto scanned = host(out, n);
    for (unsigned i = 0, sum = 0; i < (unsigned)n; i++) EXPECT(scanned[i] == (sum += values[i]));

    unsigned count = 4096;
    values.resize(count);
    auto sorted = values;
    std::sort(sorted.begin(), sorted.end());
    unsigned* keys = device(values);
    for (unsigned size = 2; size <= count; size *= 2)
        for (unsigned distance = size / 2; distance; distance /= 2) exchange<<<16, 256>>>(keys, distance, size);
    EXPECT(host(keys, count) == sorted);

    keys = device(values);
    for (int width = 1; width < (int)count; width *= 2) {
        merge<<<17, 256>>>(keys, out, count, width);
        std::swap(keys, out);
    }
    EXPECT(host(keys, count) == sorted);

    std::vector<unsigned> few(values.begin(), values.begin() + 256);
    keys = device(few);
    radix<<<1, 256>>>(keys);
    auto by_radix = host(keys, 256);
    std::sort(few.begin(), few.end());
    EXPECT(by_radix == few);

    keys = device(values);
    quick_each<<<1, 64>>>(keys, 64);
    auto quickly = host(keys, count);
    for (unsigned i = 0; i < count; i += 64) {
        std::sort(values.begin() + i, values.begin() + i + 64);
        EXPECT(std::equal(values.begin() + i, values.begin() + i + 64, quickly.begin() + i));
    }
}
