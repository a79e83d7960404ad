// How a tensor is described: ArrayRef, optional, Device, MemoryFormat, TensorOptions.
//
// Layouts other than strided are not covered; pinned memory and gradients are accepted and ignored.
#pragma once

#include <cupilot/scalar_types.h>

#include <initializer_list>
#include <utility>
// A source that names none of these is compiled without them: parsing them is half of the time that a small kernel takes.
#ifndef CUPILOT_WITHOUT_OPTIONAL
#include <optional>
#endif
#ifndef CUPILOT_WITHOUT_VECTOR
#include <vector>
#endif

namespace c10 {

#ifndef CUPILOT_WITHOUT_OPTIONAL
template <class T>
using optional = std::optional<T>;
using std::nullopt;
using std::nullopt_t;
#else
struct nullopt_t {
  explicit constexpr nullopt_t(int) {}
};
constexpr nullopt_t nullopt(0);

// Of std::optional, what our own declarations use; for values that are copied bit by bit.
template <class T>
class optional {
 public:
  optional() : none_(), has_(false) {}
  optional(nullopt_t) : optional() {}
  template <class U, class = std::enable_if_t<std::is_convertible_v<U, T>>>
  optional(const U& value) : value_(value), has_(true) {}
  bool has_value() const { return has_; }
  explicit operator bool() const { return has_; }
  const T& operator*() const { return value_; }
  T value_or(T other) const { return has_ ? value_ : other; }

 private:
  union {
    char none_;
    T value_;
  };
  bool has_;
};
#endif

// A view of a sequence that somebody else owns.
template <class T>
class ArrayRef {
 public:
  using value_type = T;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* first, const T* last) : data_(first), size_(last - first) {}
#ifndef CUPILOT_WITHOUT_VECTOR
  ArrayRef(const std::vector<T>& items) : data_(items.data()), size_(items.size()) {}
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
#endif
  // the list lives until the end of the call that it is written in, which is as long as the view is meant to
  ArrayRef(const std::initializer_list<T>& items) : size_(items.size()) { data_ = items.begin(); }
  template <class Array, class = decltype(std::tuple_size<Array>::value)>
  constexpr ArrayRef(const Array& items) : data_(items.data()), size_(items.size()) {}
  template <size_t N>
  constexpr ArrayRef(const T (&items)[N]) : data_(items), size_(N) {}

  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* cbegin() const { return data_; }
  constexpr const T* cend() const { return data_ + size_; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    TORCH_CHECK(i < size_, "index ", i, " is outside a sequence of ", size_);
    return data_[i];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t first, size_t count) const { return ArrayRef(data_ + first, count); }
  ArrayRef slice(size_t first) const { return slice(first, size_ - first); }
  bool equals(ArrayRef other) const { return *this == other; }

  void print(cupilot::Text& text) const {
    text << "[";
    for (size_t i = 0; i < size_; ++i) text << (i ? ", " : "") << data_[i];
    text << "]";
  }
  friend bool operator==(ArrayRef a, ArrayRef b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (a.data_[i] != b.data_[i]) return false;
    return true;
  }
  friend bool operator!=(ArrayRef a, ArrayRef b) { return !(a == b); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
using IntArrayRef = ArrayRef<int64_t>;
#ifndef CUPILOT_WITHOUT_VECTOR
template <class T, unsigned = 0>
using SmallVector = std::vector<T>;
using DimVector = std::vector<int64_t>;

// A list that is passed by value.
template <class T>
struct List : std::vector<T> {
  using std::vector<T>::vector;
  T get(size_t i) const { return this->at(i); }
  std::vector<T> vec() const { return *this; }
};
#endif

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  // "cpu", "cuda" or "cuda:0"
  Device(const char* name) : type_(std::strncmp(name, "cuda", 4) == 0 ? kCUDA : kCPU), index_(-1) {
    TORCH_CHECK(is_cuda() || std::strcmp(name, "cpu") == 0, "there is no device ", name);
    if (const char* const colon = std::strchr(name, ':')) index_ = DeviceIndex(colon[1] - '0');
  }
#ifndef CUPILOT_WITHOUT_STRING
  Device(const std::string& name) : Device(name.c_str()) {}
  std::string str() const {
    cupilot::Text text;
    print(text);
    return text.c_str();
  }
#endif
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  void print(cupilot::Text& text) const {
    text << (is_cuda() ? "cuda" : "cpu");
    if (has_index()) text << ":" << int(index_);
  }
  friend bool operator==(Device a, Device b) { return a.type_ == b.type_ && a.index_ == b.index_; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

// What a factory is told, and whether it was told; without a device a tensor is made on the host, as in PyTorch.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : type_(type) {}
  TensorOptions(TypeMeta type) : type_(type.toScalarType()) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions(DeviceType device) : device_(device) {}
  TensorOptions(Layout) {}
  TensorOptions(MemoryFormat format) : format_(format) {}

  TensorOptions dtype(optional<ScalarType> type) const { return changed(&TensorOptions::type_, type); }
  TensorOptions dtype(ScalarType type) const { return dtype(optional<ScalarType>(type)); }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.toScalarType()); }
  template <class T>
  TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  // a template, so that what converts to a Device, such as "cuda", does not fit both
  template <class T, class = std::enable_if_t<std::is_same_v<T, optional<Device>>>>
  TensorOptions device(T device) const {
    return changed(&TensorOptions::device_, device);
  }
  TensorOptions device(Device where) const { return device(optional<Device>(where)); }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  TensorOptions device_index(DeviceIndex index) const { return device(Device(kCUDA, index)); }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions layout(optional<Layout>) const { return *this; }
  TensorOptions requires_grad(optional<bool>) const { return *this; }
  TensorOptions pinned_memory(optional<bool>) const { return *this; }
  TensorOptions memory_format(optional<MemoryFormat> format) const { return changed(&TensorOptions::format_, format); }
  TensorOptions merge_in(TensorOptions over) const {
    if (!over.type_) over.type_ = type_;
    if (!over.device_) over.device_ = device_;
    if (!over.format_) over.format_ = format_;
    return over;
  }

  TypeMeta dtype() const { return type_.value_or(kFloat); }
  Device device() const { return device_.value_or(Device(kCPU)); }
  Layout layout() const { return kStrided; }
  optional<MemoryFormat> memory_format_opt() const { return format_; }
  bool requires_grad() const { return false; }
  bool pinned_memory() const { return false; }
  bool has_dtype() const { return type_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  template <class T>
  TensorOptions changed(optional<T> TensorOptions::*part, optional<T> value) const {
    TensorOptions options = *this;
    options.*part = value;
    return options;
  }

  optional<ScalarType> type_;
  optional<Device> device_;
  optional<MemoryFormat> format_;
};

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions device(DeviceType type) { return TensorOptions(type); }
inline TensorOptions layout(Layout) { return TensorOptions(); }
inline TensorOptions requires_grad(bool = true) { return TensorOptions(); }
inline TensorOptions memory_format(MemoryFormat format) { return TensorOptions(format); }
template <class T>
TensorOptions dtype() {
  return TensorOptions(CppTypeToScalarType<T>::value);
}

}  // namespace c10

#define LEGACY_CONTIGUOUS_MEMORY_FORMAT c10::MemoryFormat::Contiguous
