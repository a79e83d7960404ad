// What the programs of this folder check with: a failure is told with its line and ends the program with 1.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CALL(call)                                                                                       \
    do {                                                                                                 \
        cudaError_t error_ = (call);                                                                     \
        if (error_ != cudaSuccess) {                                                                     \
            fprintf(stderr, "line %d: %s gives %s\n", __LINE__, #call, cudaGetErrorString(error_));      \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)
#define EXPECT(condition)                                                   \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

template <class T>
T* device(const std::vector<T>& values) {
    T* p;
    CALL(cudaMalloc(&p, values.size() * sizeof(T)));
    CALL(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T>
std::vector<T> host(const T* p, size_t count) {
    std::vector<T> values(count);
    CALL(cudaMemcpy(values.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}
