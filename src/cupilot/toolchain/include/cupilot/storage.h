// Memory of tensors: reference-counted blocks on the device (cudaMalloc) or on the host, and copies between them.
//
// What cudaMalloc is decides the runtime that is linked.  Fresh memory is never cleared here.
#pragma once

#include <cupilot/layout.h>

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

struct Storage {
  long owners = 0;
  char* data;
  c10::Device device;
  bool owned;

  Storage(void* memory, c10::Device where) : data(static_cast<char*>(memory)), device(where), owned(false) {}
  Storage(size_t bytes, c10::Device where) : data(nullptr), device(where), owned(true) {
    if (bytes == 0) return;
    void* memory = nullptr;
    if (where.is_cuda()) C10_CUDA_CHECK(cudaMalloc(&memory, bytes));
    else memory = std::malloc(bytes);
    TORCH_CHECK(memory, "no memory for ", bytes, " bytes on ", where);
    data = static_cast<char*>(memory);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (!owned || !data) return;
    if (device.is_cuda()) (void)cudaFree(data);
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

// Copies between layouts of equal sizes and element size.
inline void copy(const Layout& to, char* to_data, c10::Device to_device, const Layout& from, const char* from_data,
                 c10::Device from_device, int64_t item_bytes, const char* call) {
  if (to.count() == 0) return;
  const PitchedCopy shape = pitched(to, from, call);
  const cudaMemcpyKind kind = copy_kind(to_device, from_device);
  const size_t width_bytes = shape.width * item_bytes;
  if (shape.rows == 1) {
    C10_CUDA_CHECK(cudaMemcpyAsync(to_data, from_data, width_bytes, kind, nullptr));
  } else {
    C10_CUDA_CHECK(cudaMemcpy2DAsync(to_data, shape.to_pitch * item_bytes, from_data, shape.from_pitch * item_bytes,
                                     width_bytes, shape.rows, kind, nullptr));
  }
  // host memory may be read or freed as soon as this returns
  if (kind != cudaMemcpyDeviceToDevice) C10_CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

}  // namespace cupilot
