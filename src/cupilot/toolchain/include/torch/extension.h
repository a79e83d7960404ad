// The part of PyTorch's C++ interface that kernel wrappers use, without PyTorch: see the headers in cupilot/.
#pragma once

#include <cupilot/cuda_context.h>
#include <cupilot/dispatch.h>
#include <cupilot/factories.h>
#include <cupilot/module.h>

#include <cmath>

namespace torch {

using namespace at;
using at::device;
using at::dtype;
using at::IntArrayRef;
using at::Tensor;

namespace cuda {
using c10::cuda::device_count;
inline void synchronize(int64_t = -1) { c10::cuda::device_synchronize(); }
}  // namespace cuda

}  // namespace torch
