// A CUDA runtime without a device: memory is the host's, launches are only counted.  For tests of host code.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {
int live_blocks = 0;
int launches = 0;
dim3 last_grid, last_block;
size_t last_shared = 0;
}  // namespace

extern "C" {

int standin_live_blocks() { return live_blocks; }
int standin_launches() { return launches; }
int standin_last_grid() { return int(last_grid.x); }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xAB, bytes);  // so that memory that nobody cleared shows
  ++live_blocks;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  --live_blocks;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t) {
  if (to_pitch < width || from_pitch < width) return cudaErrorInvalidPitchValue;
  for (size_t row = 0; row < height; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  properties->multiProcessorCount = 108;
  return cudaSuccess;
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t) {
  last_grid = grid;
  last_block = block;
  last_shared = shared;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void*) {
  *grid = last_grid;
  *block = last_block;
  *shared = last_shared;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  ++launches;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  ++launches;
  return cudaSuccess;
}
}
