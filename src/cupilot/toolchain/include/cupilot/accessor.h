// TensorAccessor and PackedTensorAccessor: indexing with strides, on the host and inside kernels.
#pragma once

#include <cupilot/check.h>

namespace at {

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  C10_HOST_DEVICE TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}

  C10_HOST_DEVICE decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1, Traits, Index>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  C10_HOST_DEVICE Index size(Index axis) const { return sizes_[axis]; }
  C10_HOST_DEVICE Index stride(Index axis) const { return strides_[axis]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  const Index* sizes_;
  const Index* strides_;
};

// Carries its sizes and strides, so that it can be passed to a kernel.
template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  GenericPackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = static_cast<Index>(sizes[i]);
      strides_[i] = static_cast<Index>(strides[i]);
    }
  }

  C10_HOST_DEVICE decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1, Traits, Index>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  C10_HOST_DEVICE Index size(Index axis) const { return sizes_[axis]; }
  C10_HOST_DEVICE Index stride(Index axis) const { return strides_[axis]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }

 private:
  PtrType data_;
  Index sizes_[N];
  Index strides_[N];
};

template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, Index>;
template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;

}  // namespace at
