// What headers of PyTorch bring for use inside kernels.
#include <torch/extension.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/DeviceUtils.cuh>
#include <ATen/cuda/NumericLimits.cuh>
#include <ATen/NumericUtils.h>
#include <ATen/native/cuda/KernelUtils.cuh>
#include <ATen/cuda/detail/KernelUtils.h>
#include <c10/cuda/CUDAMathCompat.h>
template <class T>
__global__ void total(const T* x, T* y, int n) {
  CUDA_KERNEL_LOOP(i, n) gpuAtomicAdd(y, x[i]);
}
template <class T>
__global__ void most(const T* x, float* y, int n) {
  float m = at::numeric_limits<float>::lower_bound();
  for (int i = threadIdx.x; i < n; i += 32) if (!at::_isnan(x[i])) m = c10::cuda::compat::max(m, float(x[i]));
  for (int d = 16; d; d /= 2) m = fmaxf(m, WARP_SHFL_XOR(m, d));
  if (threadIdx.x == 0) at::native::fastAtomicAdd(y, 0, 1, c10::cuda::compat::exp(m), true);
}
std::vector<torch::Tensor> forward(torch::Tensor x) {
  auto y = torch::zeros({1}, x.options()); auto z = torch::zeros({1}, torch::dtype(torch::kFloat).device(torch::kCUDA));
  const int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND3(at::kHalf, at::kBFloat16, at::kLong, x.scalar_type(), "total", [&] {
    total<scalar_t><<<at::cuda::detail::GET_BLOCKS(n, 64), 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
    most<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>(), z.data_ptr<float>(), n);
  });
  return {y, z};
}
