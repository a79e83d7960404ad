// Memory of tensors: reference-counted blocks on the device (cudaMalloc) or on the host, copies and fills.
//
// What cudaMalloc is decides the runtime that is linked.  Fresh memory is never cleared here.  The program that calls the
// wrappers may give tensors memory of its own (cupilot_allocator); cudaMalloc in a wrapper stays what it is.
#pragma once

#include <cupilot/elementwise.h>

#include <cstdlib>

namespace cupilot {

// Counts owners of a T that has a `long owners`; not atomic, as wrappers run on one thread.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T* object) : object_(object) { ++object_->owners; }
  Shared(const Shared& other) : object_(other.object_) {
    if (object_) ++object_->owners;
  }
  Shared(Shared&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Shared& operator=(Shared other) noexcept {
    T* const mine = object_;
    object_ = other.object_;
    other.object_ = mine;
    return *this;
  }
  ~Shared() {
    if (object_ && --object_->owners == 0) delete object_;
  }
  T* operator->() const { return object_; }
  T* get() const { return object_; }

 private:
  T* object_ = nullptr;
};

// Who gives memory on the device to tensors: cudaMalloc, or, as PyTorch does, somebody who keeps it for the next one.
struct Allocator {
  void* (*take)(size_t) = nullptr;
  void (*give)(void*) = nullptr;

  static Allocator& get() {
    static Allocator allocator;
    return allocator;
  }
  void* allocate(size_t bytes) const {
    if (take) return take(bytes);
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
  }
  void release(void* memory) const {
    if (give) give(memory);
    else (void)cudaFree(memory);
  }
};

struct Storage {
  long owners = 0;
  char* data;
  c10::Device device;
  bool owned;

  Storage(void* memory, c10::Device where) : data(static_cast<char*>(memory)), device(where), owned(false) {}
  Storage(size_t bytes, c10::Device where) : data(nullptr), device(where), owned(true) {
    if (bytes == 0) return;
    void* const memory = where.is_cuda() ? Allocator::get().allocate(bytes) : std::malloc(bytes);
    TORCH_CHECK(memory, "no memory for ", bytes, " bytes on ", where);
    data = static_cast<char*>(memory);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (!owned || !data) return;
    if (device.is_cuda()) Allocator::get().release(data);
    else std::free(data);
  }
};

inline cudaMemcpyKind copy_kind(c10::Device to, c10::Device from) {
  if (to.is_cuda()) return from.is_cuda() ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from.is_cuda() ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

inline void clear(void* data, size_t bytes, c10::Device device) {
  if (bytes == 0) return;
  if (device.is_cuda()) C10_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, nullptr));
  else std::memset(data, 0, bytes);
}

// One side of a copy.
struct Place {
  const Layout& layout;
  char* data;
  c10::Device device;
  c10::ScalarType type;
};

// Within memory of the host, element by element; for the small tensors that wrappers build there.
inline void copy_on_host(const Elements& elements, const Place& to, const Place& from) {
  for (int64_t i = 0; i < elements.count; ++i) {
    int64_t left = i, to_place = 0, from_place = 0;
    for (int axis = elements.rank - 1; axis >= 0; --axis) {
      const int64_t index = left % elements.sizes[axis];
      left /= elements.sizes[axis];
      to_place += index * elements.to_strides[axis];
      from_place += index * elements.from_strides[axis];
    }
    store_scalar(to.type, to.data + to_place * int64_t(c10::elementSize(to.type)),
                 load_scalar(from.type, from.data + from_place * int64_t(c10::elementSize(from.type))));
  }
}

// Copies between layouts of equal sizes: by the runtime where it can, else by a kernel.
inline void copy(const Place& to, const Place& from) {
  if (to.layout.count() == 0) return;
  Layout merged_to, merged_from;
  merge(to.layout, from.layout, merged_to, merged_from);
  const cudaMemcpyKind kind = copy_kind(to.device, from.device);
  const int64_t item_bytes = int64_t(c10::elementSize(to.type));
  PitchedCopy shape;
  if (to.type != from.type || !pitched(merged_to, merged_from, shape)) {
    if (kind == cudaMemcpyHostToHost) return copy_on_host(Elements(merged_to, merged_from), to, from);
    if (kind != cudaMemcpyDeviceToDevice)
      fail("unsupported host call: a copy between host and device that changes the layout or the element type");
    if (to.type == from.type) reorder(Elements(merged_to, merged_from), to.data, from.data, item_bytes);
    else convert(Elements(merged_to, merged_from), to.data, to.type, from.data, from.type, c10::Scalar());
    return;
  }
  if (shape.rows == 1) {
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, shape.width * item_bytes, kind, nullptr));
  } else {
    C10_CUDA_CHECK(cudaMemcpy2DAsync(to.data, shape.to_pitch * item_bytes, from.data, shape.from_pitch * item_bytes,
                                     shape.width * item_bytes, shape.rows, kind, nullptr));
  }
  // host memory may be read or freed as soon as this returns
  if (kind != cudaMemcpyDeviceToDevice) C10_CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

inline void fill(const Place& to, c10::Scalar value) {
  if (to.layout.count() == 0) return;
  Layout merged, same;
  merge(to.layout, to.layout, merged, same);
  const Elements elements(merged, same);
  if (to.device.is_cuda()) return convert(elements, to.data, to.type, nullptr, to.type, value);
  alignas(8) char item[8] = {};
  store_scalar(to.type, item, value);
  Layout one = to.layout;
  for (int64_t& stride : one.strides) stride = 0;
  copy_on_host(Elements(to.layout, one), to, Place{one, item, to.device, to.type});
}

}  // namespace cupilot
