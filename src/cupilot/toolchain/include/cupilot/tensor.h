// torch::Tensor: a handle to sizes, strides and shared memory, with the calls that do not compute.
//
// Covered: shape queries, pointers, views, copies to other layouts, element types and devices, fills.  resize_(),
// index() and autograd are not.  Computing calls are absent on purpose: using one is a build failure, see
// cupilot.toolchain.diagnostics.
#pragma once

#include <cupilot/accessor.h>
#include <cupilot/storage.h>

namespace at {

using namespace c10;

// What the old Tensor::type() returns, as far as wrappers look at it.
struct DeprecatedTypeProperties {
  ScalarType type;
  bool cuda;
  bool is_cuda() const { return cuda; }
  ScalarType scalarType() const { return type; }
  operator ScalarType() const { return type; }
  const char* toString() const { return c10::toString(type); }
};

class Tensor {
 public:
  using Layout = cupilot::Layout;

  Tensor() = default;
  Tensor(const cupilot::Shared<cupilot::Storage>& storage, const Layout& layout, ScalarType type)
      : body_(new Body{0, storage, layout, type}) {}

  // --- what it is
  bool defined() const { return body_.get() != nullptr; }
  int64_t dim() const { return layout().rank; }
  int64_t ndimension() const { return dim(); }
  IntArrayRef sizes() const { return IntArrayRef(layout().sizes, size_t(layout().rank)); }
  IntArrayRef strides() const { return IntArrayRef(layout().strides, size_t(layout().rank)); }
  int64_t size(int64_t axis) const { return layout().sizes[wrap_axis(axis)]; }
  int64_t stride(int64_t axis) const { return layout().strides[wrap_axis(axis)]; }
  int64_t numel() const { return layout().count(); }
  int64_t storage_offset() const { return layout().offset; }
  int64_t element_size() const { return int64_t(elementSize(scalar_type())); }
  size_t itemsize() const { return elementSize(scalar_type()); }
  size_t nbytes() const { return size_t(numel()) * itemsize(); }
  ScalarType scalar_type() const { return body().type; }
  TypeMeta dtype() const { return scalar_type(); }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  Device device() const { return body().storage->device; }
  int64_t get_device() const { return device().is_cuda() ? device().index() : -1; }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return layout().contiguous();
    if (dim() != (format == MemoryFormat::ChannelsLast ? 4 : 5)) return false;
    const Layout wanted = cupilot::channels_last(sizes());
    for (int i = 0; i < wanted.rank; ++i)
      if (wanted.sizes[i] > 1 && wanted.strides[i] != layout().strides[i]) return false;
    return true;
  }
  MemoryFormat suggest_memory_format() const {
    if (!is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast)) return MemoryFormat::ChannelsLast;
    if (!is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast3d)) return MemoryFormat::ChannelsLast3d;
    return MemoryFormat::Contiguous;
  }
  bool is_non_overlapping_and_dense() const { return cupilot::is_dense(layout()); }
  bool is_same(const Tensor& other) const { return body_.get() == other.body_.get(); }
  bool is_same_size(const Tensor& other) const { return sizes() == other.sizes(); }
  bool is_complex() const { return false; }
  bool is_sparse() const { return false; }
  bool is_quantized() const { return false; }
  bool has_storage() const { return defined(); }
  bool requires_grad() const { return false; }
  const Tensor& requires_grad_(bool = true) const { return *this; }
  const Tensor& set_requires_grad(bool) const { return *this; }
  bool is_leaf() const { return true; }
  const char* toString() const { return c10::toString(scalar_type()); }
  void reset() { body_ = {}; }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }

  // --- pointers
  void* data_ptr() const { return address(); }
  void* mutable_data_ptr() const { return address(); }
  const void* const_data_ptr() const { return address(); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
    TORCH_CHECK(scalar_type() == wanted, "a pointer to ", c10::toString(wanted), " was asked of a tensor of ",
                c10::toString(scalar_type()));
    return reinterpret_cast<T*>(address());
  }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const std::remove_const_t<T>* const_data_ptr() const {
    return data_ptr<const std::remove_const_t<T>>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class Index = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, Index> generic_packed_accessor() const {
    TORCH_CHECK(dim() == int64_t(N), "an accessor of ", N, " dimensions was asked of a tensor of ", dim());
    return GenericPackedTensorAccessor<T, N, Traits, Index>(data_ptr<T>(), layout().sizes, layout().strides);
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, Traits> packed_accessor32() const {
    TORCH_CHECK(layout().span() <= int64_t(0x7fffffff), "packed_accessor32 of a tensor with more than 2^31 elements");
    return generic_packed_accessor<T, N, Traits, int32_t>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, Traits> packed_accessor64() const {
    return generic_packed_accessor<T, N, Traits, int64_t>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class Index = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, Index> packed_accessor() const {
    return generic_packed_accessor<T, N, Traits, Index>();
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    TORCH_CHECK(dim() == int64_t(N), "an accessor of ", N, " dimensions was asked of a tensor of ", dim());
    return TensorAccessor<T, N>(data_ptr<T>(), layout().sizes, layout().strides);
  }

  // --- views, in views.h
  Tensor view(IntArrayRef sizes) const;
  Tensor view(ScalarType type) const;
  Tensor reshape(IntArrayRef sizes) const;
  Tensor flatten(int64_t first = 0, int64_t last = -1) const;
  Tensor unflatten(int64_t axis, IntArrayRef sizes) const;
  Tensor transpose(int64_t first, int64_t second) const;
  Tensor t() const;
  Tensor permute(IntArrayRef axes) const;
  Tensor movedim(int64_t from, int64_t to) const;
  Tensor unsqueeze(int64_t axis) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t axis) const;
  Tensor expand(IntArrayRef sizes, bool implicit = false) const;
  Tensor select(int64_t axis, int64_t index) const;
  Tensor slice(int64_t axis = 0, optional<int64_t> start = nullopt, optional<int64_t> end = nullopt,
               int64_t step = 1) const;
  Tensor narrow(int64_t axis, int64_t start, int64_t length) const;
  Tensor as_strided(IntArrayRef sizes, IntArrayRef strides, optional<int64_t> offset = nullopt) const;
#ifndef CUPILOT_WITHOUT_VECTOR
  // templates only so that the lists cost nothing where they are not used
  template <class Parts = std::vector<Tensor>>
  Parts split(int64_t length, int64_t axis = 0) const;
  template <class Parts = std::vector<Tensor>>
  Parts split(IntArrayRef lengths, int64_t axis = 0) const;
  template <class Parts = std::vector<Tensor>>
  Parts split_with_sizes(IntArrayRef lengths, int64_t axis = 0) const {
    return split<Parts>(lengths, axis);
  }
  template <class Parts = std::vector<Tensor>>
  Parts chunk(int64_t count, int64_t axis = 0) const;
  template <class Parts = std::vector<Tensor>>
  Parts unbind(int64_t axis = 0) const;
#endif
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  Tensor swapaxes(int64_t first, int64_t second) const { return transpose(first, second); }
  Tensor swapdims(int64_t first, int64_t second) const { return transpose(first, second); }
  Tensor mT() const { return transpose(-2, -1); }
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor alias() const { return with(layout()); }
  Tensor detach() const { return alias(); }
  Tensor data() const { return alias(); }
  Tensor variable_data() const { return alias(); }
  Tensor tensor_data() const { return alias(); }
  // in place: other handles of the same tensor see it too
  const Tensor& unsqueeze_(int64_t axis) const { return become(unsqueeze(axis)); }
  const Tensor& squeeze_() const { return become(squeeze()); }
  const Tensor& squeeze_(int64_t axis) const { return become(squeeze(axis)); }
  const Tensor& transpose_(int64_t first, int64_t second) const { return become(transpose(first, second)); }
  const Tensor& t_() const { return become(t()); }
  const Tensor& detach_() const { return *this; }

  // --- what moves memory
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return is_contiguous(format) ? *this : copied(cupilot::in_format(sizes(), format), device(), scalar_type());
  }
  Tensor clone(optional<MemoryFormat> format = nullopt) const {
    const bool preserve = format.value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve;
    return copied(preserve ? cupilot::dense_like(layout()) : cupilot::in_format(sizes(), *format), device(),
                  scalar_type());
  }
  Tensor to(Device where, ScalarType type, bool = false, bool copy = false,
            optional<MemoryFormat> = nullopt) const {
    if (!copy && where.type() == device().type() && type == scalar_type()) return *this;
    // the element type is changed on the device, where there is a kernel for it
    if (where.is_cpu() && is_cuda() && type != scalar_type()) return to(device(), type).to(where, type);
    const bool both = where.is_cuda() && is_cpu() && type != scalar_type();
    const Tensor source = both || where.type() != device().type() ? contiguous() : *this;
    if (both) return source.to(where, scalar_type()).to(where, type);
    return source.copied(cupilot::dense_like(source.layout()), where, type);
  }
  Tensor to(ScalarType type, bool non_blocking = false, bool copy = false,
            optional<MemoryFormat> = nullopt) const {
    return to(device(), type, non_blocking, copy);
  }
  Tensor to(TypeMeta type, bool non_blocking = false, bool copy = false) const {
    return to(device(), type.toScalarType(), non_blocking, copy);
  }
  Tensor to(Device where, bool non_blocking = false, bool copy = false) const {
    return to(where, scalar_type(), non_blocking, copy);
  }
  Tensor to(DeviceType where, bool non_blocking = false, bool copy = false) const {
    return to(Device(where), scalar_type(), non_blocking, copy);
  }
  Tensor to(DeviceType where, ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(Device(where), type, non_blocking, copy);
  }
  Tensor to(const TensorOptions& wanted, bool non_blocking = false, bool copy = false,
            optional<MemoryFormat> = nullopt) const {
    const TensorOptions all = options().merge_in(wanted);
    return to(all.device(), all.dtype(), non_blocking, copy);
  }
  Tensor to(const Tensor& other, bool non_blocking = false, bool copy = false) const {
    return to(other.device(), other.scalar_type(), non_blocking, copy);
  }
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor type_as(const Tensor& other) const { return to(other.options()); }
  Tensor cuda() const { return to(Device(kCUDA, 0)); }
  Tensor cpu() const { return to(Device(kCPU)); }
  const Tensor& copy_(const Tensor& from, bool = false) const {
    Tensor source = from.sizes() == sizes() ? from : from.expand(sizes());
    if (source.device().type() != device().type()) source = source.to(device(), scalar_type());
    cupilot::copy(place(), source.place());
    return *this;
  }
  const Tensor& zero_() const { return fill_(0); }
  const Tensor& fill_(Scalar value) const {
    if (value.toDouble() == 0.0 && is_non_overlapping_and_dense()) cupilot::clear(address(), nbytes(), device());
    else cupilot::fill(place(), value);
    return *this;
  }
  Scalar item() const {
    TORCH_CHECK(numel() == 1, "item() of a tensor of ", numel(), " elements");
    alignas(8) char bytes[8] = {};
    C10_CUDA_CHECK(cudaMemcpy(bytes, address(), itemsize(), cupilot::copy_kind(Device(kCPU), device())));
    return cupilot::load_scalar(scalar_type(), bytes);
  }
  template <class T>
  T item() const {
    return item().to<T>();
  }

  // --- new tensors of the same kind, in factories.h
  Tensor new_empty(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_zeros(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_ones(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_full(IntArrayRef sizes, Scalar value, const TensorOptions& options = {}) const;

 private:
  struct Body {
    long owners;
    cupilot::Shared<cupilot::Storage> storage;
    Layout layout;
    ScalarType type;
  };

  const Body& body() const {
    TORCH_CHECK(defined(), "an undefined tensor was used");
    return *body_.get();
  }
  const Layout& layout() const { return body().layout; }
  char* address() const { return defined() ? body_->storage->data + layout().offset * element_size() : nullptr; }
  int wrap_axis(int64_t axis) const { return int(cupilot::wrap(axis, dim(), "dimension")); }
  Tensor with(const Layout& layout) const { return Tensor(body().storage, layout, scalar_type()); }
  const Tensor& become(const Tensor& changed) const {
    body_->layout = changed.layout();
    return *this;
  }
  cupilot::Place place() const { return {layout(), address(), device(), scalar_type()}; }
  Tensor copied(const Layout& layout, Device where, ScalarType type) const {
    const size_t bytes = size_t(numel()) * elementSize(type);
    const Tensor result(cupilot::Shared<cupilot::Storage>(new cupilot::Storage(bytes, where)), layout, type);
    cupilot::copy(result.place(), place());
    return result;
  }
  static int64_t clamp(int64_t index, int64_t count) {
    const int64_t wrapped = index < 0 ? index + count : index;
    return wrapped < 0 ? 0 : wrapped > count ? count : wrapped;
  }

  cupilot::Shared<Body> body_;
};

inline optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? optional<Device>(tensor.device()) : nullopt;
}

}  // namespace at
