// torch::Tensor: a handle to sizes, strides and shared memory, with the calls that do not compute.
//
// Covered: shape queries, pointers, views, zero_(), and copies that the runtime can make.  In-place changes of
// shape (resize_, unsqueeze_) and autograd are not.  Computing calls are absent on purpose: using one is a build
// failure, see cupilot.toolchain.diagnostics.
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
  bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const { return layout().contiguous(); }
  bool is_non_overlapping_and_dense() const { return cupilot::is_dense(layout()); }
  bool is_same(const Tensor& other) const { return body_.get() == other.body_.get(); }
  bool requires_grad() const { return false; }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }

  // --- pointers
  void* data_ptr() const { return address(); }
  void* mutable_data_ptr() const { return address(); }
  const void* const_data_ptr() const { return address(); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
    TORCH_CHECK(scalar_type() == wanted, "a pointer to ", toString(wanted), " was asked of a tensor of ",
                toString(scalar_type()));
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
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    TORCH_CHECK(dim() == int64_t(N), "an accessor of ", N, " dimensions was asked of a tensor of ", dim());
    return TensorAccessor<T, N>(data_ptr<T>(), layout().sizes, layout().strides);
  }

  // --- views
  Tensor view(IntArrayRef sizes) const {
    Layout wanted = cupilot::inferred(sizes, numel());
    TORCH_CHECK(cupilot::view_strides(layout(), wanted), "view ", sizes, " of a tensor of sizes ", this->sizes(),
                " and strides ", strides(), " needs a copy: use reshape");
    return with(wanted);
  }
  Tensor reshape(IntArrayRef sizes) const {
    Layout wanted = cupilot::inferred(sizes, numel());
    return cupilot::view_strides(layout(), wanted) ? with(wanted) : contiguous().view(sizes);
  }
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
  Tensor flatten(int64_t first = 0, int64_t last = -1) const {
    if (dim() == 0) return view({1});
    const int begin = wrap_axis(first), end = wrap_axis(last);
    TORCH_CHECK(begin <= end, "flatten from dimension ", begin, " to ", end);
    Layout wanted;
    for (int i = 0; i < begin; ++i) wanted.add(layout().sizes[i], 0);
    wanted.add(1, 0);
    for (int i = begin; i <= end; ++i) wanted.sizes[begin] *= layout().sizes[i];
    for (int i = end + 1; i < dim(); ++i) wanted.add(layout().sizes[i], 0);
    return reshape(IntArrayRef(wanted.sizes, size_t(wanted.rank)));
  }
  Tensor transpose(int64_t first, int64_t second) const {
    if (dim() == 0) return *this;
    Layout changed = layout();
    const int a = wrap_axis(first), b = wrap_axis(second);
    std::swap(changed.sizes[a], changed.sizes[b]);
    std::swap(changed.strides[a], changed.strides[b]);
    return with(changed);
  }
  Tensor t() const {
    TORCH_CHECK(dim() <= 2, "t() of a tensor of ", dim(), " dimensions");
    return dim() < 2 ? *this : transpose(0, 1);
  }
  Tensor permute(IntArrayRef axes) const {
    TORCH_CHECK(int64_t(axes.size()) == dim(), "permute ", axes, " of a tensor of ", dim(), " dimensions");
    Layout changed;
    changed.offset = layout().offset;
    unsigned seen = 0;
    for (int64_t axis : axes) {
      const int from = wrap_axis(axis);
      TORCH_CHECK(!(seen >> from & 1), "permute ", axes, " names a dimension twice");
      seen |= 1u << from;
      changed.add(layout().sizes[from], layout().strides[from]);
    }
    return with(changed);
  }
  Tensor unsqueeze(int64_t axis) const {
    const int place = int(cupilot::wrap(axis, dim() + 1, "dimension"));
    Layout changed;
    changed.offset = layout().offset;
    for (int i = 0; i <= dim(); ++i) {
      if (i == place) changed.add(1, i < dim() ? layout().sizes[i] * layout().strides[i] : 1);
      if (i < dim()) changed.add(layout().sizes[i], layout().strides[i]);
    }
    return with(changed);
  }
  Tensor squeeze() const {
    Layout changed = layout();
    for (int i = changed.rank - 1; i >= 0; --i)
      if (changed.sizes[i] == 1) changed.remove(i);
    return with(changed);
  }
  Tensor squeeze(int64_t axis) const {
    if (dim() == 0 || size(axis) != 1) return *this;
    Layout changed = layout();
    changed.remove(wrap_axis(axis));
    return with(changed);
  }
  Tensor expand(IntArrayRef sizes) const {
    const int added = int(sizes.size()) - int(dim());
    TORCH_CHECK(added >= 0, "expand to fewer dimensions");
    Layout changed;
    changed.offset = layout().offset;
    for (int i = 0; i < int(sizes.size()); ++i) {
      const int64_t mine = i < added ? 1 : layout().sizes[i - added];
      const int64_t wanted = sizes[i] == -1 && i >= added ? mine : sizes[i];
      TORCH_CHECK(wanted >= 0 && (mine == wanted || mine == 1), "expand ", sizes, " of a tensor of sizes ",
                  this->sizes());
      changed.add(wanted, i < added || mine != wanted ? 0 : layout().strides[i - added]);
    }
    return with(changed);
  }
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  Tensor select(int64_t axis, int64_t index) const {
    const int place = wrap_axis(axis);
    Layout changed = layout();
    changed.offset += cupilot::wrap(index, changed.sizes[place], "index") * changed.strides[place];
    changed.remove(place);
    return with(changed);
  }
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor slice(int64_t axis = 0, optional<int64_t> start = nullopt, optional<int64_t> end = nullopt,
               int64_t step = 1) const {
    TORCH_CHECK(step > 0, "slice with the step ", step);
    const int place = wrap_axis(axis);
    Layout changed = layout();
    const int64_t count = changed.sizes[place];
    const int64_t from = clamp(start.value_or(0), count), to = clamp(end.value_or(count), count);
    changed.offset += from * changed.strides[place];
    changed.sizes[place] = to > from ? (to - from + step - 1) / step : 0;
    changed.strides[place] *= step;
    return with(changed);
  }
  Tensor narrow(int64_t axis, int64_t start, int64_t length) const {
    const int64_t count = size(axis), from = start < 0 ? start + count : start;
    TORCH_CHECK(from >= 0 && length >= 0 && from + length <= count, "narrow from ", start, " by ", length,
                " in a dimension of ", count);
    return slice(axis, from, from + length);
  }
  Tensor detach() const { return *this; }

  // --- what moves memory
  Tensor contiguous(MemoryFormat = MemoryFormat::Contiguous) const {
    return is_contiguous() ? *this : copied(cupilot::row_major(sizes()), device(), "contiguous()");
  }
  Tensor clone(MemoryFormat format = MemoryFormat::Preserve) const {
    const bool preserve = format == MemoryFormat::Preserve;
    return copied(preserve ? cupilot::dense_like(layout()) : cupilot::row_major(sizes()), device(), "clone()");
  }
  Tensor to(Device where) const {
    return where.type() == device().type() ? *this : copied(cupilot::dense_like(layout()), where, "to()");
  }
  Tensor to(DeviceType where) const { return to(Device(where)); }
  Tensor to(ScalarType type) const {
    if (type != scalar_type()) cupilot::unsupported("torch::Tensor::to of another element type");
    return *this;
  }
  Tensor to(TypeMeta type) const { return to(type.toScalarType()); }
  Tensor to(const TensorOptions& options) const { return to(options.dtype()).to(options.device()); }
  Tensor cuda() const { return to(Device(kCUDA, 0)); }
  Tensor cpu() const { return to(Device(kCPU)); }
  const Tensor& copy_(const Tensor& from, bool = false) const {
    if (from.scalar_type() != scalar_type()) cupilot::unsupported("torch::Tensor::copy_ from another element type");
    const Tensor source = from.sizes() == sizes() ? from : from.expand(sizes());
    cupilot::copy(layout(), address(), device(), source.layout(), source.address(), source.device(), element_size(),
                  "copy_()");
    return *this;
  }
  const Tensor& zero_() const {
    if (!is_non_overlapping_and_dense()) cupilot::fail("unsupported host call: zero_() of this layout");
    cupilot::clear(address(), nbytes(), device());
    return *this;
  }
  const Tensor& fill_(Scalar value) const {
    if (value.toDouble() != 0.0) cupilot::unsupported("torch::Tensor::fill_ with anything but zero");
    return zero_();
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
  Tensor copied(const Layout& layout, Device where, const char* call) const {
    const cupilot::Shared<cupilot::Storage> storage(new cupilot::Storage(nbytes(), where));
    const Tensor result(storage, layout, scalar_type());
    cupilot::copy(layout, result.address(), where, this->layout(), address(), device(), element_size(), call);
    return result;
  }
  static int64_t clamp(int64_t index, int64_t count) {
    const int64_t wrapped = index < 0 ? index + count : index;
    return wrapped < 0 ? 0 : wrapped > count ? count : wrapped;
  }

  cupilot::Shared<Body> body_;
};

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

}  // namespace at
