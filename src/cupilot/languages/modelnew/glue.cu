// What PyTorch itself does on the device between the kernels of a ModelNew file: fills, copies and conversions, counted
// and timed like those of an extension.
#include <torch/extension.h>

void copy(torch::Tensor to, torch::Tensor from) { to.copy_(from); }
void fill(torch::Tensor to, double value) { to.fill_(value); }
void fill_integer(torch::Tensor to, int64_t value) { to.fill_(value); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("copy", &copy);
  m.def("fill", &fill);
  m.def("fill_integer", &fill_integer);
}
