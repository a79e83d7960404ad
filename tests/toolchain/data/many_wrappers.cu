#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) AT_ASSERTM(x.is_contiguous(), #x, " must be contiguous")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  CHECK_CONTIGUOUS(x)

template <typename scalar_t>
__global__ void double_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n) {
  __shared__ scalar_t tile[256];
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  using acc_t = at::acc_type<scalar_t, true>;
  if (i < n) y[i] = static_cast<scalar_t>(static_cast<acc_t>(tile[threadIdx.x]) * acc_t(2));
}

__global__ void rows_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x,
                            torch::PackedTensorAccessor64<float, 1> y) {
  const int row = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < x.size(1); ++i) sum += x[row][i];
  y[row] = sum;
}

torch::Tensor double_it(const torch::Tensor& x) {
  CHECK_INPUT(x);
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  const int blocks = std::min<int64_t>((n + 255) / 256, at::cuda::getCurrentDeviceProperties()->multiProcessorCount);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::kBFloat16, x.scalar_type(), "double_it", ([&] {
    double_kernel<scalar_t><<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

std::tuple<torch::Tensor, at::Tensor> two_outputs(torch::Tensor x, int rows, float) {
  auto sums = torch::zeros({rows}, x.options().dtype(torch::kFloat32));
  auto counts = torch::empty({rows, 2}, torch::TensorOptions().dtype(torch::kInt64).device(x.device()));
  rows_kernel<<<1, rows>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
                           sums.packed_accessor64<float, 1>());
  return std::make_tuple(sums, counts);
}

std::vector<torch::Tensor> halves(torch::Tensor x) {
  const int64_t n = x.size(0) / 2;
  return {x.narrow(0, 0, n), x.slice(0, n)};
}

torch::Tensor with_optional(torch::Tensor x, c10::optional<torch::Tensor> bias, double eps, bool flag) {
  TORCH_CHECK(flag, "flag is off, eps is ", eps);
  return bias.has_value() ? *bias : x;
}

void add_row_sums(torch::Tensor& y, torch::Tensor x) {
  auto from = x.accessor<float, 2>();
  auto to = y.accessor<float, 1>();
  for (int64_t i = 0; i < from.size(0); ++i)
    for (int64_t j = 0; j < from.size(1); ++j) to[i] += from[i][j];
}

torch::Tensor reshaped(torch::Tensor x, const std::string& op, int64_t a, int64_t b) {
  if (op == "view") return x.view({-1, a});
  if (op == "reshape") return x.reshape({a, -1});
  if (op == "flatten") return x.flatten(a, b);
  if (op == "unsqueeze") return x.unsqueeze(a);
  if (op == "squeeze") return x.squeeze();
  if (op == "squeeze_one") return x.squeeze(a);
  if (op == "transpose") return x.transpose(a, b);
  if (op == "t") return x.t();
  if (op == "permute") return x.permute({a, b, 0});
  if (op == "select") return x.select(a, b);
  if (op == "index") return x[a];
  if (op == "slice") return x.slice(a, 1, -1, b);
  if (op == "narrow") return x.narrow(a, b, 2);
  if (op == "expand") return x.unsqueeze(0).expand({a, -1, -1, b});
  if (op == "contiguous") return x.contiguous();
  if (op == "clone") return x.clone();
  if (op == "empty_like") return torch::empty_like(x);
  if (op == "zeros_like") return torch::zeros_like(x);
  if (op == "copy_") return torch::empty(x.sizes(), x.options()).copy_(x);
  AT_ERROR("no operation ", op);
}

void host_checks(torch::Tensor one) {
  TORCH_CHECK(one.item<float>() == 1.5f && one.item().toDouble() == 1.5);
  TORCH_CHECK(at::Half(1.5f) * at::Half(2.0f) == 3.0f && at::Half(1.5f) < 2 && float(c10::BFloat16(3)) == 3.0f);
  TORCH_CHECK(std::numeric_limits<at::Half>::max() == 65504.0f, "largest half");
  TORCH_CHECK((std::is_same<decltype(at::Half(1) + 1.0f), float>::value && sizeof(at::Half) == sizeof(__half)));
  TORCH_CHECK(one.dtype() == torch::kFloat32 && torch::kFloat == one.dtype() && one.type().is_cuda());
  const auto zeros = torch::zeros({2, 3}).cuda().cpu();
  TORCH_CHECK((zeros.accessor<float, 2>()[1][2] == 0.0f));
  TORCH_CHECK((torch::empty({2, 3}).strides() == torch::IntArrayRef({3, 1})));
  std::vector<int64_t> sizes = one.sizes().vec();
  sizes.push_back(4);
  TORCH_CHECK(torch::empty(sizes, torch::dtype(torch::kHalf).device(torch::kCUDA)).nbytes() == 8);
}

// --- types of parameters and results
torch::Tensor sized(const std::string& which, torch::Tensor x, std::vector<int64_t> a, at::IntArrayRef b,
                    const std::vector<double>& c, torch::List<int64_t> d, std::array<bool, 2> e) {
  TORCH_CHECK(a.size() == 2 && b.size() == 1 && c[0] == 0.5 && d.get(0) == 7 && e[1], "lists");
  return x.new_empty(which == "a" ? at::IntArrayRef(a) : b);
}
at::Tensor last_of(at::TensorList xs, bool first) { return first ? xs[0] : xs.vec().back(); }
c10::optional<at::Tensor> typed(torch::Tensor&& x, torch::ScalarType type, const at::Scalar& a, torch::Scalar b,
                                std::optional<double> c, c10::Device where, uint8_t d) {
  TORCH_CHECK(x.scalar_type() == type, "a tensor of ", x.scalar_type(), ", ", x.dtype(), " on ", where, ", not ", type);
  TORCH_CHECK(a.isIntegral(false) && a.toLong() == 3 && b.isFloatingPoint() && !c && d == 255);
  return c ? c10::nullopt : c10::optional<at::Tensor>(x);
}
std::tuple<at::Tensor, std::vector<at::Tensor>> nested(torch::Tensor x) { return {x, {x[0], x[1]}}; }
std::pair<at::Tensor, at::Tensor> paired(const torch::Tensor x) { return {x, x.t()}; }
int version() { return 3; }
bool knows(const std::vector<std::string>&, float*) { return true; }
namespace deep {
static at::Tensor twice(const at::Tensor& x) { return x; }
static at::Tensor twice(const at::Tensor& x, int64_t a) { return x[a]; }
}  // namespace deep

TORCH_LIBRARY(my_ops, m) {
  m.def("only_a_schema(Tensor x) -> Tensor");
  m.def("in_library(Tensor x, int a=1) -> Tensor", [](const at::Tensor& x, int64_t a) { return x[a]; });
}
TORCH_LIBRARY_IMPL(my_ops, CUDA, m) {
  m.impl("for_cuda", &paired);
  m.impl("for_cpu", torch::dispatch(c10::DispatchKey::CPU, &paired));
}
TORCH_LIBRARY_IMPL(my_ops, CPU, m) { m.impl("for_cpu", TORCH_FN(paired)); }

using namespace pybind11::literals;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "wrappers for tests";
  m.attr("VERSION") = 3;
  m.def("sized", sized, R"(lists of "numbers")", "which"_a, py::arg("x"), py::arg("a") = std::vector<int64_t>{2, 3},
        py::arg("b") = std::vector<int>{5}, py::arg("c") = std::vector<float>{0.5f}, py::arg("d") = 7,
        py::arg("e") = std::vector<bool>{false, true});
  m.def("last_of", &last_of, py::arg("xs"), py::kw_only(), py::arg("first").noconvert() = false);
  m.def("typed", &typed, py::arg("x"), py::arg("type") = torch::kFloat32, py::arg("a") = at::Scalar(3),
        py::arg("b") = 0.5f, py::arg("c") = c10::optional<double>(), py::arg("where") = std::string("cuda:0"),
        py::arg("d") = 255);
  m.def("nested", torch::wrap_pybind_function(nested), py::return_value_policy::move);
  m.def("paired", &paired, py::call_guard<py::gil_scoped_release>());
  m.def("version", &version).def("knows", &knows);
  m.def("twice", py::overload_cast<const at::Tensor&, int64_t>(&deep::twice));
  m.def("once", static_cast<at::Tensor (*)(const at::Tensor&)>(&deep::twice));
  m.def("forward", &double_it, "doubles", py::arg("x"));
  m.def("two_outputs", &two_outputs);
  m.def("halves", &halves);
  m.def("with_optional", &with_optional, py::arg("x"), py::arg("bias") = py::none(), py::arg("eps") = 1e-5,
        py::arg("flag") = true);
  m.def("add_row_sums", &add_row_sums);
  m.def("reshaped", &reshaped);
  m.def("host_checks", &host_checks);
  m.def("lambda", [](torch::Tensor x, size_t) { return x; });
  m.def("on_host", [](torch::Tensor) { return torch::zeros({1}); });
  m.def("converts", [](torch::Tensor x) { return x.to(torch::kDouble); });
}
