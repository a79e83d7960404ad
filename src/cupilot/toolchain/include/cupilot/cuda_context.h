// at::cuda and c10::cuda: the current stream (always the default one), device guards, device properties.
//
// Streams from a pool and CUDA graphs are not covered.
#pragma once

#include <cupilot/tensor.h>

namespace c10 {
namespace cuda {

class CUDAStream {
 public:
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
  DeviceIndex device_index() const { return 0; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(nullptr)); }
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(); }

// There is one device, so a guard has nothing to switch.
struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  ~CUDAGuard() {}
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  explicit OptionalCUDAGuard(optional<Device>) {}
  ~OptionalCUDAGuard() {}
};

inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

}  // namespace cuda
}  // namespace c10

namespace at {

struct OptionalDeviceGuard : c10::cuda::OptionalCUDAGuard {
  using c10::cuda::OptionalCUDAGuard::OptionalCUDAGuard;
};
struct NoGradGuard {
  ~NoGradGuard() {}
};

namespace cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::current_device;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::OptionalCUDAGuard;

inline cudaDeviceProp* getDeviceProperties(DeviceIndex) {
  static cudaDeviceProp properties;
  static const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  C10_CUDA_CHECK(error);
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }

template <class T>
T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace cuda

template <class T>
C10_HOST_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace at
