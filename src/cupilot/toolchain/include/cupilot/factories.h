// Making tensors: empty, zeros, ones, full, their _like and new_ forms, empty_strided, arange, tensor, from_blob.
//
// ones and full launch a kernel that fills; arange and tensor write their values on the host and copy them.
// Random numbers are absent on purpose: they compute.
#pragma once

#include <cupilot/views.h>

namespace at {

inline Tensor empty_with(const cupilot::Layout& layout, const TensorOptions& options) {
  const ScalarType type = options.dtype();
  const Device device = options.device().is_cuda() ? Device(kCUDA, 0) : Device(kCPU);
  const size_t bytes = size_t(layout.span()) * elementSize(type);
  return Tensor(cupilot::Shared<cupilot::Storage>(new cupilot::Storage(bytes, device)), layout, type);
}

inline Tensor empty(IntArrayRef sizes, const TensorOptions& options = {}, optional<MemoryFormat> format = nullopt) {
  if (!format) format = options.memory_format_opt();
  return empty_with(cupilot::in_format(sizes, format.value_or(MemoryFormat::Contiguous)), options);
}
inline Tensor empty(IntArrayRef sizes, optional<ScalarType> type, optional<c10::Layout>, optional<Device> device,
                    optional<bool>, optional<MemoryFormat> format = nullopt) {
  return empty(sizes, TensorOptions().dtype(type).device(device), format);
}
inline Tensor full(IntArrayRef sizes, Scalar value, TensorOptions options = {}) {
  // without a type the value decides on it
  if (!options.has_dtype() && !value.isFloatingPoint()) options = options.dtype(value.isBoolean() ? kBool : kLong);
  const Tensor tensor = empty(sizes, options);
  tensor.fill_(value);
  return tensor;
}
inline Tensor zeros(IntArrayRef sizes, const TensorOptions& options = {}) {
  return full(sizes, 0, options.dtype(options.dtype()));
}
inline Tensor ones(IntArrayRef sizes, const TensorOptions& options = {}) {
  return full(sizes, 1, options.dtype(options.dtype()));
}
inline Tensor scalar_tensor(Scalar value, const TensorOptions& options = {}) {
  return full({}, value, options.dtype(options.dtype()));
}

inline Tensor empty_like(const Tensor& like, const TensorOptions& options = {},
                         optional<MemoryFormat> format = nullopt) {
  const TensorOptions all = like.options().merge_in(options);
  if (!format) format = all.memory_format_opt();
  if (format && *format != MemoryFormat::Preserve) return empty(like.sizes(), all, format);
  cupilot::Layout layout;
  for (int i = 0; i < like.dim(); ++i) layout.add(like.size(i), like.stride(i));
  return empty_with(cupilot::dense_like(layout), all);
}
inline Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options = {},
                        optional<MemoryFormat> format = nullopt) {
  const Tensor tensor = empty_like(like, options, format);
  tensor.fill_(value);
  return tensor;
}
inline Tensor zeros_like(const Tensor& like, const TensorOptions& options = {},
                         optional<MemoryFormat> format = nullopt) {
  return full_like(like, 0, options, format);
}
inline Tensor ones_like(const Tensor& like, const TensorOptions& options = {},
                        optional<MemoryFormat> format = nullopt) {
  return full_like(like, 1, options, format);
}
inline Tensor Tensor::new_empty(IntArrayRef sizes, const TensorOptions& options) const {
  return at::empty(sizes, this->options().merge_in(options));
}
inline Tensor Tensor::new_zeros(IntArrayRef sizes, const TensorOptions& options) const {
  return at::zeros(sizes, this->options().merge_in(options));
}
inline Tensor Tensor::new_ones(IntArrayRef sizes, const TensorOptions& options) const {
  return at::ones(sizes, this->options().merge_in(options));
}
inline Tensor Tensor::new_full(IntArrayRef sizes, Scalar value, const TensorOptions& options) const {
  return at::full(sizes, value, this->options().merge_in(options));
}

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

// --- values made on the host; without a type they have that of the numbers given
template <class T>
Tensor tensor(ArrayRef<T> values, const TensorOptions& options = {}) {
  const ScalarType natural = std::is_same_v<T, bool> ? kBool : std::is_integral_v<T> ? kLong : kFloat;
  const ScalarType type = options.has_dtype() ? options.dtype().toScalarType() : natural;
  const Tensor made = empty({int64_t(values.size())}, type);
  for (size_t i = 0; i < values.size(); ++i)
    cupilot::store_scalar(type, static_cast<char*>(made.data_ptr()) + i * elementSize(type), values[i]);
  return made.to(options.device());
}
template <class T>
Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values.begin(), values.size()), options);
}
#ifndef CUPILOT_WITHOUT_VECTOR
template <class T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values), options);
}
#endif
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
Tensor tensor(T value, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(value), options).view(IntArrayRef());
}
#ifndef CUPILOT_WITHOUT_VECTOR
template <class Numbers = std::vector<double>>
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options = {}) {
  const bool whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const ScalarType type = options.has_dtype() ? options.dtype().toScalarType() : whole ? kLong : kFloat;
  const double first = start.toDouble(), by = step.toDouble();
  Numbers values;
  for (size_t i = 0; by > 0 ? first + double(i) * by < end.toDouble() : first + double(i) * by > end.toDouble(); ++i)
    values.push_back(first + double(i) * by);
  return tensor(values, options.dtype(type));
}
template <class Numbers = std::vector<double>>
Tensor arange(Scalar start, Scalar end, const TensorOptions& options = {}) {
  return arange<Numbers>(start, end, 1, options);
}
template <class Numbers = std::vector<double>>
Tensor arange(Scalar end, const TensorOptions& options = {}) {
  return arange<Numbers>(0, end, 1, options);
}
#endif

}  // namespace at
