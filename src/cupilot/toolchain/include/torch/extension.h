// The part of PyTorch's C++ interface that kernel wrappers use, without PyTorch: see the headers in cupilot/.
#pragma once

#include <cupilot/cuda_context.h>
#include <cupilot/dispatch.h>
#include <cupilot/factories.h>
#include <cupilot/module.h>

#include <cmath>

namespace at {

using TensorList = ArrayRef<Tensor>;
#ifndef CUPILOT_WITHOUT_VECTOR
using OptionalIntArrayRef = optional<std::vector<int64_t>>;
#endif

// A range of integers, for loops.
template <class T>
struct IntegerRange {
  struct Iterator {
    T at;
    T operator*() const { return at; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(Iterator other) const { return at < other.at; }
  };
  T first, last;
  Iterator begin() const { return {first}; }
  Iterator end() const { return {last}; }
};

}  // namespace at

namespace c10 {

template <class T>
at::IntegerRange<T> irange(T last) {
  return {T(0), last};
}
template <class A, class T>
at::IntegerRange<T> irange(A first, T last) {
  return {T(first), last};
}

}  // namespace c10

namespace torch {

using namespace at;
using at::device;
using at::dtype;
using at::IntArrayRef;
using at::Tensor;

namespace cuda {
using c10::cuda::device_count;
inline bool is_available() { return true; }
inline void synchronize(int64_t = -1) { c10::cuda::device_synchronize(); }
}  // namespace cuda

}  // namespace torch
