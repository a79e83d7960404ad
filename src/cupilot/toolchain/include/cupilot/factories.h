// Making tensors: empty, zeros, their _like forms, empty_strided, from_blob.
//
// Filling with other values (ones, full, rand, arange) computes and is absent on purpose.
#pragma once

#include <cupilot/tensor.h>

namespace at {

inline Tensor empty_with(const cupilot::Layout& layout, const TensorOptions& options) {
  const ScalarType type = options.dtype();
  const Device device = options.device().is_cuda() ? Device(kCUDA, 0) : Device(kCPU);
  const size_t bytes = size_t(layout.span()) * elementSize(type);
  return Tensor(cupilot::Shared<cupilot::Storage>(new cupilot::Storage(bytes, device)), layout, type);
}

inline Tensor empty(IntArrayRef sizes, const TensorOptions& options = {}, optional<MemoryFormat> = nullopt) {
  return empty_with(cupilot::row_major(sizes), options);
}
inline Tensor zeros(IntArrayRef sizes, const TensorOptions& options = {}) {
  const Tensor tensor = empty(sizes, options);
  tensor.zero_();
  return tensor;
}
inline Tensor empty_like(const Tensor& like, const TensorOptions& options, optional<MemoryFormat> format = nullopt) {
  if (format == MemoryFormat::Contiguous) return empty(like.sizes(), options);
  cupilot::Layout layout;
  for (int i = 0; i < like.dim(); ++i) layout.add(like.size(i), like.stride(i));
  return empty_with(cupilot::dense_like(layout), options);
}
inline Tensor empty_like(const Tensor& like) { return empty_like(like, like.options()); }
inline Tensor empty_like(const Tensor& like, MemoryFormat format) { return empty_like(like, like.options(), format); }
inline Tensor zeros_like(const Tensor& like, const TensorOptions& options) {
  const Tensor tensor = empty_like(like, options);
  tensor.zero_();
  return tensor;
}
inline Tensor zeros_like(const Tensor& like) { return zeros_like(like, like.options()); }
inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  TORCH_CHECK(sizes.size() == strides.size(), "empty_strided with sizes ", sizes, " and strides ", strides);
  cupilot::Layout layout;
  for (size_t i = 0; i < sizes.size(); ++i) layout.add(sizes[i], strides[i]);
  return empty_with(layout, options);
}

// The memory stays the caller's.
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  TORCH_CHECK(sizes.size() == strides.size(), "from_blob with sizes ", sizes, " and strides ", strides);
  cupilot::Layout layout;
  for (size_t i = 0; i < sizes.size(); ++i) layout.add(sizes[i], strides[i]);
  const Device device = options.device().is_cuda() ? Device(kCUDA, 0) : Device(kCPU);
  return Tensor(cupilot::Shared<cupilot::Storage>(new cupilot::Storage(data, device)), layout, options.dtype());
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  const cupilot::Layout layout = cupilot::row_major(sizes);
  return from_blob(data, sizes, IntArrayRef(layout.strides, size_t(layout.rank)), options);
}

}  // namespace at
