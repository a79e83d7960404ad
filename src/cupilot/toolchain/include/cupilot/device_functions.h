// Functions for use inside kernels that some of PyTorch's headers bring: atomics on more types, warp shuffles, math
// that is overloaded for float and double, loops over a grid.  Included only after one of those headers.
#pragma once

#include <torch/extension.h>

#ifndef CUPILOT_WITHOUT_HALF
__device__ inline c10::Half atomicAdd(c10::Half* address, c10::Half value) {
  return c10::Half(atomicAdd(reinterpret_cast<__half*>(address), static_cast<__half>(value)));
}
__device__ inline c10::BFloat16 atomicAdd(c10::BFloat16* address, c10::BFloat16 value) {
  return c10::BFloat16(atomicAdd(reinterpret_cast<__nv_bfloat16*>(address), static_cast<__nv_bfloat16>(value)));
}
#endif
// two's complement: the sum is the same without a sign
__device__ inline int64_t atomicAdd(int64_t* address, int64_t value) {
  using Word = unsigned long long;
  return int64_t(atomicAdd(reinterpret_cast<Word*>(address), static_cast<Word>(value)));
}

template <class T>
__device__ T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
template <class T>
__device__ void gpuAtomicAddNoReturn(T* address, T value) {
  atomicAdd(address, value);
}

template <class T>
__device__ T WARP_SHFL(T value, int lane, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_sync(mask, value, lane, width);
}
template <class T>
__device__ T WARP_SHFL_XOR(T value, int lanes, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
template <class T>
__device__ T WARP_SHFL_UP(T value, unsigned delta, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_up_sync(mask, value, delta, width);
}
template <class T>
__device__ T WARP_SHFL_DOWN(T value, unsigned delta, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_down_sync(mask, value, delta, width);
}
__device__ inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
  return __ballot_sync(mask, predicate);
}
__device__ inline void WARP_SYNC(unsigned mask = 0xffffffff) { __syncwarp(mask); }

#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                              \
  for (int64_t cupilot_index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, i = cupilot_index;            \
       cupilot_index < (n); cupilot_index += int64_t(blockDim.x) * gridDim.x, i = index_type(cupilot_index))
#ifndef CUDA_KERNEL_LOOP
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#endif

namespace c10 {
namespace cuda {
namespace compat {

#define CUPILOT_MATH(name)                                                    \
  C10_HOST_DEVICE inline float name(float x) { return ::name##f(x); }         \
  C10_HOST_DEVICE inline double name(double x) { return ::name(x); }
CUPILOT_MATH(exp)
CUPILOT_MATH(log)
CUPILOT_MATH(log1p)
CUPILOT_MATH(sqrt)
CUPILOT_MATH(ceil)
CUPILOT_MATH(floor)
CUPILOT_MATH(tan)
CUPILOT_MATH(tanh)
#undef CUPILOT_MATH
__device__ inline float rsqrt(float x) { return ::rsqrtf(x); }
__device__ inline double rsqrt(double x) { return ::rsqrt(x); }
C10_HOST_DEVICE inline float abs(float x) { return ::fabsf(x); }
C10_HOST_DEVICE inline double abs(double x) { return ::fabs(x); }
C10_HOST_DEVICE inline float max(float x, float y) { return ::fmaxf(x, y); }
C10_HOST_DEVICE inline double max(double x, double y) { return ::fmax(x, y); }
C10_HOST_DEVICE inline float min(float x, float y) { return ::fminf(x, y); }
C10_HOST_DEVICE inline double min(double x, double y) { return ::fmin(x, y); }
C10_HOST_DEVICE inline float pow(float x, float y) { return ::powf(x, y); }
C10_HOST_DEVICE inline double pow(double x, double y) { return ::pow(x, y); }

}  // namespace compat
}  // namespace cuda
}  // namespace c10

namespace at {

template <class T>
C10_HOST_DEVICE bool _isnan(T value) {
  if constexpr (std::is_integral_v<T>) return false;
  else return value != value;
}
template <class T>
C10_HOST_DEVICE bool _isinf(T value) {
  if constexpr (std::is_integral_v<T>) return false;
  else return value == std::numeric_limits<T>::infinity() || value == -std::numeric_limits<T>::infinity();
}

template <class T>
struct numeric_limits {
  static C10_HOST_DEVICE T lowest() { return std::numeric_limits<T>::lowest(); }
  static C10_HOST_DEVICE T max() { return std::numeric_limits<T>::max(); }
  // the ends of the range, infinities included
  static C10_HOST_DEVICE T lower_bound() {
    if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
    else return lowest();
  }
  static C10_HOST_DEVICE T upper_bound() {
    if constexpr (std::numeric_limits<T>::has_infinity) return std::numeric_limits<T>::infinity();
    else return max();
  }
};

namespace native {
template <class T, class Index>
__device__ void fastAtomicAdd(T* tensor, Index index, const Index, T value, bool) {
  atomicAdd(tensor + index, value);
}
}  // namespace native

namespace cuda {
namespace detail {
constexpr int CUDA_NUM_THREADS = 1024;
inline int GET_BLOCKS(int64_t count, int64_t threads = CUDA_NUM_THREADS) {
  return int((count + threads - 1) / threads);
}
}  // namespace detail
}  // namespace cuda

}  // namespace at
