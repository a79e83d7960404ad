// at::cuda and c10::cuda: streams, events, device guards, device properties, raw device memory.
//
// There is one device, so device guards have nothing to switch.  Handles of libraries (cuBLAS and the like) and
// generators of random numbers are absent on purpose.
#pragma once

#include <cupilot/tensor.h>

namespace c10 {

using StreamId = int64_t;

namespace cuda {

class CUDAStream {
 public:
  CUDAStream() = default;
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  DeviceIndex device_index() const { return 0; }
  Device device() const { return Device(kCUDA, 0); }
  StreamId id() const { return reinterpret_cast<StreamId>(stream_); }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  friend bool operator==(CUDAStream a, CUDAStream b) { return a.stream_ == b.stream_; }
  friend bool operator!=(CUDAStream a, CUDAStream b) { return a.stream_ != b.stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

inline CUDAStream& current_stream() {
  static CUDAStream stream;
  return stream;
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return current_stream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) { return CUDAStream(stream); }
inline void setCurrentCUDAStream(CUDAStream stream) { current_stream() = stream; }

// PyTorch's pool has 32 streams, given out in turn.
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) {
  static cudaStream_t pool[32] = {};
  static unsigned next = 0;
  cudaStream_t& stream = pool[next++ % 32];
  if (!stream) C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CUDAStream(stream);
}

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  ~CUDAGuard() {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
  Device current_device() const { return Device(kCUDA, 0); }
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  explicit OptionalCUDAGuard(optional<Device>) {}
  explicit OptionalCUDAGuard(DeviceIndex) {}
  ~OptionalCUDAGuard() {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
};
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream) : before_(current_stream()) { current_stream() = stream; }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() { current_stream() = before_; }
  CUDAStream original_stream() const { return before_; }

 private:
  CUDAStream before_;
};

inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline void stream_synchronize(cudaStream_t stream) { C10_CUDA_CHECK(cudaStreamSynchronize(stream)); }

namespace CUDACachingAllocator {
inline void* raw_alloc(size_t bytes) {
  void* const memory = cupilot::Allocator::get().allocate(bytes);
  TORCH_CHECK(memory, "no memory for ", bytes, " bytes on the device");
  return memory;
}
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* memory) {
  if (cupilot::Allocator::get().give) cupilot::Allocator::get().release(memory);
  else C10_CUDA_CHECK(cudaFree(memory));
}
inline void emptyCache() {}
}  // namespace CUDACachingAllocator

}  // namespace cuda
}  // namespace c10

namespace at {

struct DeviceGuard : c10::cuda::CUDAGuard {
  using c10::cuda::CUDAGuard::CUDAGuard;
};
struct OptionalDeviceGuard : c10::cuda::OptionalCUDAGuard {
  using c10::cuda::OptionalCUDAGuard::OptionalCUDAGuard;
};
struct NoGradGuard {
  ~NoGradGuard() {}
};
struct InferenceMode {
  explicit InferenceMode(bool = true) {}
  ~InferenceMode() {}
};
struct AutoDispatchBelowADInplaceOrView {
  ~AutoDispatchBelowADInplaceOrView() {}
};

namespace cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::set_device;
using c10::cuda::setCurrentCUDAStream;
using c10::cuda::stream_synchronize;

inline bool is_available() { return true; }
inline cudaDeviceProp* getDeviceProperties(DeviceIndex) {
  static cudaDeviceProp properties;
  static const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  C10_CUDA_CHECK(error);
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return 32; }

class CUDAEvent {
 public:
  explicit CUDAEvent(unsigned flags = cudaEventDisableTiming) : flags_(flags) {}
  CUDAEvent(const CUDAEvent&) = delete;
  ~CUDAEvent() {
    if (event_) (void)cudaEventDestroy(event_);
  }
  void record(CUDAStream stream = getCurrentCUDAStream()) {
    if (!event_) C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags_));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  void block(CUDAStream stream) const {
    if (event_) C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0));
  }
  void synchronize() const {
    if (event_) C10_CUDA_CHECK(cudaEventSynchronize(event_));
  }
  float elapsed_time(const CUDAEvent& end) const {
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, event_, end.event_));
    return ms;
  }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
  unsigned flags_;
};

template <class T>
C10_HOST_DEVICE constexpr T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace cuda

template <class A, class B>
C10_HOST_DEVICE constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}
template <class A, class B>
C10_HOST_DEVICE constexpr auto divup(A a, B b) {
  return ceil_div(a, b);
}
template <class A, class B>
C10_HOST_DEVICE constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace at
