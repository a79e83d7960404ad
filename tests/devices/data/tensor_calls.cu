// What wrappers do with tensors between their launches; each operation is compared with PyTorch's.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include <torch/types.h>
#include <iostream>
using torch::Tensor;

__global__ void sum5(const torch::PackedTensorAccessor32<float, 5, torch::RestrictPtrTraits> x, float* out) {
  float s = 0;
  for (int a = 0; a < x.size(0); ++a) for (int b = 0; b < x.size(1); ++b) for (int c = 0; c < x.size(2); ++c)
    for (int d = 0; d < x.size(3); ++d) for (int e = 0; e < x.size(4);
        ++e) s += x[a][b][c][d][e] * (a + 2 * b + 3 * c + 4 * d + 5 * e);
  *out = s;
}
template <typename T>
__global__ void gather(const at::GenericPackedTensorAccessor<T, 2> x, torch::PackedTensorAccessor64<int64_t, 1> idx,
    at::PackedTensorAccessor<T, 2, at::DefaultPtrTraits, size_t> y) {
  y[blockIdx.x][threadIdx.x] = x[idx[blockIdx.x]][threadIdx.x];
}
__global__ void greater(const float* x, bool* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.5f; }

std::vector<Tensor> forward(const std::string& op, Tensor x) {
  if (op == "t_contig") return {x.t().contiguous()};
  if (op == "permute_contig") return {x.permute({2, 0, 1}).contiguous()};
  if (op == "step") return {x.slice(1, 0, x.size(1), 2).contiguous()};
  if (op == "expand") return {x.unsqueeze(0).expand({3, -1, -1}).contiguous()};
  if (op == "reshape_copy") return {x.transpose(0, 1).reshape({-1})};
  if (op == "flatten") return {x.transpose(0, 1).flatten()};
  if (op == "view_t") return {x.t()};
  if (op == "to_half") return {x.to(torch::kHalf), x.to(at::kBFloat16).to(torch::kFloat32), x.to(torch::kFloat64),
      x.to(torch::kInt64), x.toType(at::kInt), x.to(torch::kBool), x.to(torch::kUInt8)};
  if (op == "to_half_t") return {x.t().to(torch::kFloat16), x.t().to(torch::kFloat16).contiguous()};
  if (op == "to_bfloat16") return {x.to(at::kBFloat16).to(torch::kFloat32)};
  if (op == "to_opts") return {x.to(x.options().dtype(torch::kInt32)), x.to(torch::dtype(torch::kDouble)),
      x.to(torch::kCUDA), x.to(x.device(), torch::kHalf), x.to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true)};
  if (op == "int_to") return {x.to(torch::kFloat), x.to(torch::kHalf), x.to(torch::kInt16), x.to(torch::kBool),
      x.to(torch::kDouble)};
  if (op == "factories") {
    auto o = torch::TensorOptions().dtype(torch::kFloat32).layout(torch::kStrided).device(torch::kCUDA,
        0).requires_grad(false);
    return {torch::zeros({2, 3}, o), torch::ones({4}, o), torch::full({2, 2}, 1.5, o), torch::full({2}, -3,
        o.dtype(torch::kLong)), torch::ones_like(x), torch::full_like(x, 7.25), torch::zeros_like(x, torch::kInt32),
            torch::ones({3}, torch::dtype(torch::kBool).device(x.device())), torch::full({}, 2.5f, x.options()),
                torch::arange(5, x.options().dtype(torch::kInt64)), torch::arange(1, 2, 0.25, x.options()),
            torch::tensor({1.5f, 2.5f}, x.options()), torch::tensor({1, 2, 3}, torch::kCUDA),
                torch::scalar_tensor(3.0, x.options()), x.new_zeros({2}), x.new_full({2}, 3.0), x.new_empty({0}),
                    torch::empty({0, 3}, x.options()),
            torch::tensor(std::vector<int>{4, 5}, torch::device(torch::kCUDA).dtype(torch::kInt)), torch::zeros(4,
                o), torch::empty_strided({2, 2}, {1, 2}, o).fill_(1.0), torch::ones({2}, o.dtype(torch::kHalf)),
                    torch::full({2}, 0.1, o.dtype(torch::kBFloat16)).to(torch::kFloat)};
  }
  if (op == "inplace") {
    auto y = torch::empty_like(x); y.fill_(2); y.select(0, 1).zero_(); y.slice(1, 0, 2).fill_(5.5); y[0][0].fill_(-1);
    auto z = x.clone(); z.narrow(1, 0, 2).copy_(y.narrow(1, 2, 2)); z.t()[3].copy_(x.t()[0]);
    auto h = torch::empty(x.sizes(), x.options().dtype(at::kHalf)); h.copy_(x);
    return {y, z, h, torch::empty_like(x).copy_(x[0])};
  }
  if (op == "views") return {x.unsqueeze(-1), x.unsqueeze(1).squeeze(1), x.view({-1}), x.view({2, -1}), x.view(-1),
      x.reshape({x.size(1), x.size(0)}), x.select(1, 2).contiguous(), x[1], x.narrow(0, 1, 2),
       x.split(2, 1)[1].contiguous(), x.chunk(2, 0)[0], x.unbind(1)[0].contiguous(), x.expand_as(x), x.view_as(x),
           x.movedim(0, 1).contiguous(), x.unflatten(1, {2, -1}), x.as_strided({2, 2}, {1, 4}).contiguous(),
               x.swapaxes(0, 1).contiguous(), torch::transpose(x, 0, 1).contiguous(), torch::flatten(x),
                   x.mT().contiguous(), x.view(torch::kInt32), x.detach(), x.data()};
  if (op == "channels_last") {
    auto c = x.contiguous(at::MemoryFormat::ChannelsLast);
    TORCH_CHECK(c.is_contiguous(torch::MemoryFormat::ChannelsLast) && !c.is_contiguous() &&
        c.suggest_memory_format() == at::MemoryFormat::ChannelsLast);
    auto e = torch::empty_like(c), f = torch::empty(x.sizes(),
        x.options().memory_format(torch::MemoryFormat::ChannelsLast));
    TORCH_CHECK(e.strides() == c.strides() && f.strides() == c.strides() && c.stride(1) == 1);
    TORCH_CHECK(at::empty_like(c, c.options(), at::MemoryFormat::Contiguous).is_contiguous() && at::empty_like(c,
        LEGACY_CONTIGUOUS_MEMORY_FORMAT).is_contiguous());
    return {c, c.contiguous(), c.clone(at::MemoryFormat::Contiguous)};
  }
  if (op == "queries") {
    TORCH_CHECK(x.dim() == 2 && x.ndimension() == 2 && x.numel() == 12 && x.size(-1) == 4 &&
        x.sizes() == at::IntArrayRef({3, 4}) && x.sizes().size() == 2 && x.sizes()[0] == 3 && x.strides()[0] == 4 &&
            x.stride(1) == 1);
    TORCH_CHECK(x.element_size() == 4 && x.itemsize() == 4 && x.nbytes() == 48 && x.is_cuda() &&
        x.get_device() == 0 && x.device().index() == 0 && x.device().type() == torch::kCUDA &&
            x.device() == torch::Device(torch::kCUDA, 0) && x.device().type() == at::DeviceType::CUDA &&
                x.defined() && !x.requires_grad() && x.is_floating_point());
    TORCH_CHECK(x.dtype() == torch::kFloat32 && x.dtype() == at::kFloat &&
        x.scalar_type() == torch::ScalarType::Float && x.type().scalarType() == at::ScalarType::Float &&
            x.options().dtype() == x.dtype() && x.dtype() == torch::dtype<float>().dtype() &&
                x.dtype().name()[0] == 'F');
    TORCH_CHECK(x.data_ptr<float>() == x.data<float>() && (void*)x.const_data_ptr<float>() == x.data_ptr() &&
        x.mutable_data_ptr<float>() == static_cast<float*>(x.data_ptr()) && x.data_ptr<const float>());
    TORCH_CHECK(x.device() == torch::Device("cuda:0") && torch::Device("cpu").is_cpu() &&
        x.device().str() == "cuda:0");
    TORCH_INTERNAL_ASSERT(torch::IntArrayRef(x.sizes()).vec() == (std::vector<int64_t>{3, 4}));
    std::cout << x.sizes() << " " << x.device() << " " << x.dtype() << " " << x.scalar_type() << std::endl;
    std::string s = std::string("shape ") + std::to_string(x.size(0)) + toString(x.scalar_type())
        + c10::toString(x.scalar_type());
    float f = x[1][2].item<float>(); double d = x[1][2].item().toDouble(); TORCH_CHECK(f == 6.0f && d == 6.0 &&
        x.select(0, 0)[1].item().to<int>() == 1);
    auto c = x.cpu(); auto a = c.accessor<float, 2>(); TORCH_CHECK(a[2][3] == 11.f && a.size(1) == 4);
        auto at_ = x.t().cpu(); TORCH_CHECK((at_.accessor<float, 2>()[3][2] == 11.f));
    for (auto i : c10::irange(x.dim())) TORCH_CHECK(x.size(i) > 0);
    Tensor undefined; TORCH_CHECK(!undefined.defined());
    switch (x.scalar_type()) { case torch::kFloat: break; case at::ScalarType::Half: TORCH_CHECK(false);
        default: AT_ERROR("no"); }
    return {c.cuda(), c.to(x.device()), c.t().to(torch::kCUDA), c.to(x.options().dtype(torch::kHalf))};
  }
  if (op == "acc5") {
    auto y = torch::empty({}, x.options());
    sum5<<<1, 1>>>(x.packed_accessor32<float, 5, torch::RestrictPtrTraits>(), y.data_ptr<float>());
    return {y};
  }
  if (op == "gather") {
    auto idx = torch::arange(x.size(0) - 1, -1, -1, torch::dtype(torch::kInt64).device(x.device()));
    auto y = torch::empty_like(x);
    gather<float><<<x.size(0), x.size(1)>>>(x.generic_packed_accessor<float, 2>(), idx.packed_accessor64<int64_t,
        1>(), y.packed_accessor<float, 2, at::DefaultPtrTraits, size_t>());
    return {y};
  }
  if (op == "bool") { auto y = torch::empty(x.sizes(), x.options().dtype(torch::kBool)); greater<<<1,
      x.numel()>>>(x.data_ptr<float>(), y.data_ptr<bool>(), x.numel()); return {y}; }
  throw std::runtime_error("no op " + op);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "ops"); }
