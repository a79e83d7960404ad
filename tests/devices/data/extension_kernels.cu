// Wrappers with what extensions include, call and launch: macros, streams, 16-bit types, CUB, WMMA, symbols.
#include <torch/all.h>
#include <torch/python.h>
#include <torch/library.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/detail/IndexUtils.cuh>
#include <ATen/AccumulateType.h>
#include <ATen/OpMathType.h>
#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Half.h>
#include <c10/macros/Macros.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cuda.h>
#include <device_launch_parameters.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <cublas_v2.h>
#include <math_constants.h>
#include <limits>
#include <cmath>
namespace cg = cooperative_groups;
using namespace nvcuda;

#define CUDA_CHECK(call) do { cudaError_t err = call; if (err != cudaSuccess) { \
    fprintf(stderr, "CUDA error %s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); exit(1); } } while (0)
#define CUDA_1D_KERNEL_LOOP(i, n) \
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
#define FULL_MASK 0xffffffff
constexpr int kThreads = 256;
__constant__ float c_coef[4];
__device__ float d_scale = 3.0f;
__device__ int d_counter;

template <typename scalar_t, typename acc_t = at::acc_type<scalar_t, true>>
__global__ void C10_LAUNCH_BOUNDS_1(kThreads) softplus(const scalar_t* __restrict__ x, scalar_t* __restrict__ y,
    const int64_t n) {
  CUDA_1D_KERNEL_LOOP(i, n) {
    using opmath_t = at::opmath_type<scalar_t>;
    opmath_t v = static_cast<opmath_t>(x[i]);
    acc_t w = ::log1p(::exp(v));
    y[i] = static_cast<scalar_t>(w);
  }
}
template <typename scalar_t>
__global__ void half_math(const scalar_t* x, scalar_t* y, int n) {
  CUDA_1D_KERNEL_LOOP(i, n) {
    scalar_t v = x[i];
    scalar_t s = v * scalar_t(2) + v / scalar_t(4.0f) - scalar_t(0.5);
    s += v; s *= static_cast<scalar_t>(2.0f);
    if (v > scalar_t(0)) s = -s;
    if (v < 0) s = s - 1;
    y[i] = max(static_cast<float>(s), -100.0f) > 1e30f ? std::numeric_limits<scalar_t>::max() : s;
  }
}
__global__ void native_half(const __half* x, const __nv_bfloat16* b, half* y, __nv_bfloat16* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i + 1 < n) {
    half2 v = reinterpret_cast<const half2*>(x)[i];
    half2 r = __hfma2(v, __float2half2_rn(2.0f), __halves2half2(__float2half(1.0f), __float2half(-1.0f)));
    reinterpret_cast<__half2*>(y)[i] = r;
    z[2 * i] = __float2bfloat16(__bfloat162float(b[2 * i]) + 1.0f);
    z[2 * i + 1] = __hadd(b[2 * i + 1], b[2 * i + 1]);
  }
}
__global__ void row_sum_cg(const float* x, float* y, int cols) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  __shared__ float partial[32];
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * (size_t)cols + c];
  s = cg::reduce(warp, s, cg::plus<float>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = s;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    s = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.f;
    for (int o = warp.size() / 2; o > 0; o /= 2) s += warp.shfl_down(s, o);
    if (warp.thread_rank() == 0) y[blockIdx.x] = s * d_scale;
  }
}
template <int BLOCK>
__global__ void row_max_cub(const float* x, float* y, int cols) {
  using BlockReduce = cub::BlockReduce<float, BLOCK>;
  __shared__ typename BlockReduce::TempStorage temp;
  float m = -CUDART_INF_F;
  for (int c = threadIdx.x; c < cols; c += BLOCK) m = fmaxf(m, x[blockIdx.x * cols + c]);
  m = BlockReduce(temp).Reduce(m, [](float a, float b) { return a > b ? a : b; });
  if (threadIdx.x == 0) y[blockIdx.x] = m;
}
__global__ void wmma_gemm(const half* a, const half* b, float* c, int n) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(fa, a + blockIdx.y * 16 * n + k, n);
    wmma::load_matrix_sync(fb, b + k * n + blockIdx.x * 16, n);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, fc, n, wmma::mem_row_major);
}
extern __shared__ char smem_raw[];
__global__ void big_shared(const float* x, float* y, int n) {
  float* s = reinterpret_cast<float*>(smem_raw);
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i] + c_coef[i % 4];
}
__global__ void count(const float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n &&
    x[i] > 0) atomicAdd(&d_counter, 1); }
__global__ void add_one(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1.0f; }

torch::Tensor softplus_cuda(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard device_guard(at::device_of(x));
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  const int blocks = std::min<int64_t>(at::ceil_div(n, (int64_t)kThreads), 4096);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "softplus", [&] {
    softplus<scalar_t><<<blocks, kThreads, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  AT_CUDA_CHECK(cudaGetLastError());
  return y;
}
torch::Tensor half_math_cuda(torch::Tensor x) {
  c10::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "half_math", ([&] {
    half_math<scalar_t><<<1, 128, 0, c10::cuda::getCurrentCUDAStream(x.get_device())>>>(x.data_ptr<scalar_t>(),
        y.data_ptr<scalar_t>(), x.numel());
  }));
  return y;
}
std::vector<torch::Tensor> native_half_cuda(torch::Tensor x) {
  auto b = x.to(torch::kBFloat16);
  auto h = x.to(torch::kHalf);
  auto y = torch::empty_like(h), z = torch::empty_like(b);
  native_half<<<1, 64>>>(reinterpret_cast<const __half*>(h.data_ptr<at::Half>()),
      reinterpret_cast<__nv_bfloat16*>(b.data_ptr<at::BFloat16>()),
    (half*)y.data_ptr(), static_cast<__nv_bfloat16*>(z.data_ptr()), (int)x.numel());
  return {y, z.to(torch::kFloat)};
}
torch::Tensor row_sum(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options());
  row_sum_cg<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
torch::Tensor row_max(torch::Tensor x) {
  auto y = torch::empty({x.size(0), 1}, x.options());
  row_max_cub<128><<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y.squeeze(-1);
}
torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
  int n = a.size(0);
  auto c = torch::zeros({n, n}, a.options().dtype(torch::kFloat));
  auto ah = a.to(at::kHalf).contiguous(), bh = b.to(at::kHalf).contiguous();
  dim3 grid(n / 16, n / 16), block(32, 1, 1);
  wmma_gemm<<<grid, block>>>(reinterpret_cast<half*>(ah.data_ptr<c10::Half>()),
      (const half*)bh.data_ptr<torch::Half>(), c.data_ptr<float>(), n);
  return c;
}
torch::Tensor shared(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  size_t bytes = n * sizeof(float);
  float coef[4] = {1, 2, 3, 4};
  C10_CUDA_CHECK(cudaMemcpyToSymbol(c_coef, coef, sizeof(coef)));
  int limit = at::cuda::getCurrentDeviceProperties()->sharedMemPerBlockOptin;
  TORCH_CHECK(bytes <= (size_t)limit, "needs ", bytes, " of ", limit);
  CUDA_CHECK(cudaFuncSetAttribute(big_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
  auto stream = at::cuda::getStreamFromPool(/*isHighPriority=*/false);
  {
    at::cuda::CUDAStreamGuard guard(stream);
    big_shared<<<1, 256, bytes, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  }
  at::cuda::CUDAEvent event; event.record(stream); event.block(at::cuda::getCurrentCUDAStream());
  stream.synchronize();
  return y;
}
torch::Tensor counter(torch::Tensor x) {
  int zero = 0, host = -1; float* temp = nullptr; float s = 4.0f;
  cudaMemcpyToSymbol(d_counter, &zero, sizeof(int));
  cudaMemcpyToSymbol(d_scale, &s, sizeof(float), 0, cudaMemcpyHostToDevice); s = 3.0f; cudaMemcpyToSymbol(d_scale,
      &s, sizeof(float));
  CUDA_CHECK(cudaMalloc(&temp, x.nbytes()));
  CUDA_CHECK(cudaMalloc((void**)&temp, x.nbytes()));
  CUDA_CHECK(cudaMemcpyAsync(temp, x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToDevice,
      at::cuda::getCurrentCUDAStream()));
  count<<<4, 256>>>(temp, x.numel());
  cudaDeviceSynchronize();
  cudaMemcpyFromSymbol(&host, d_counter, sizeof(int));
  cudaFree(temp);
  auto y = torch::full({1}, (float)host, x.options());
  static torch::Tensor cached; if (!cached.defined()) cached = torch::zeros({1}, x.options());
  static std::vector<torch::Tensor> pool; pool.push_back(y);
  cudaStream_t s1, s2; cudaStreamCreate(&s1); cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking);
  cudaEvent_t ev; cudaEventCreateWithFlags(&ev, cudaEventDisableTiming);
  add_one<<<1, 32, 0, s1>>>(y.data_ptr<float>(), 1); cudaEventRecord(ev, s1); cudaStreamWaitEvent(s2, ev, 0);
  add_one<<<1, 32, 0, s2>>>(y.data_ptr<float>(), 1);
  float* yp = y.data_ptr<float>(); int one = 1; void* args[] = {&yp, &one};
  cudaLaunchKernel((void*)add_one, dim3(1), dim3(32), args, 0, s2);
  cudaStreamSynchronize(s2); cudaStreamDestroy(s1); cudaStreamDestroy(s2); cudaEventDestroy(ev);
  return y;
}
std::vector<torch::Tensor> forward(std::string op, torch::Tensor x, c10::optional<torch::Tensor> y) {
  if (op == "softplus") return {softplus_cuda(x)};
  if (op == "half_math") return {half_math_cuda(x)};
  if (op == "native_half") return native_half_cuda(x);
  if (op == "row_sum") return {row_sum(x)};
  if (op == "row_max") return {row_max(x)};
  if (op == "gemm") return {gemm(x, *y)};
  if (op == "shared") return {shared(x)};
  return {counter(x)};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, py::arg("op"), py::arg("x"), py::arg("y") = py::none());
}
