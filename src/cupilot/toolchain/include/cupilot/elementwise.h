// Copies that the runtime cannot make by itself, as kernels of our own: they are launched, counted and timed like
// those of the candidate.  `copy_elements` moves bits between layouts (transposed, gathered); `convert_elements`
// changes the element type, or fills with a value.
//
// A source that names no call that could need them is compiled with CUPILOT_WITHOUT_REORDERING and
// CUPILOT_WITHOUT_CONVERSION, which saves the time to compile them.
#pragma once

#include <cupilot/layout.h>

namespace cupilot {

// Which elements, in the order of the target's memory.
struct Elements {
  int rank;
  int64_t count, sizes[kMaxDimensions], to_strides[kMaxDimensions], from_strides[kMaxDimensions];

  Elements(const Layout& to, const Layout& from) : rank(to.rank), count(to.count()) {
    for (int i = 0; i < rank; ++i) {
      sizes[i] = to.sizes[i];
      to_strides[i] = to.strides[i];
      from_strides[i] = from.strides[i];
    }
  }
  // One thread per element; those after the last one have no place.
  __device__ bool place(int64_t& to, int64_t& from) const {
    int64_t left = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (left >= count) return false;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t size = sizes[axis], rest = axis ? left / size : 0, index = left - rest * size;
      to += index * to_strides[axis];
      from += index * from_strides[axis];
      left = rest;
    }
    return true;
  }
  static constexpr int threads = 256;
  unsigned blocks() const { return unsigned((count + threads - 1) / threads); }
};

#ifdef CUPILOT_WITHOUT_REORDERING

inline void reorder(const Elements&, void*, const void*, int64_t) {
  fail("unsupported host call: a copy between these layouts");
}

#else

// A template only so that several files may include it.
template <int = 0>
__global__ void copy_elements(Elements elements, char* to, const char* from, int item_bytes) {
  int64_t to_place = 0, from_place = 0;
  if (!elements.place(to_place, from_place)) return;
  to += to_place * item_bytes;
  from += from_place * item_bytes;
  if (item_bytes == 8) *reinterpret_cast<uint64_t*>(to) = *reinterpret_cast<const uint64_t*>(from);
  else if (item_bytes == 4) *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
  else if (item_bytes == 2) *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
  else *to = *from;
}

inline void reorder(const Elements& elements, void* to, const void* from, int64_t item_bytes) {
  copy_elements<><<<elements.blocks(), Elements::threads>>>(elements, static_cast<char*>(to),
                                                            static_cast<const char*>(from), int(item_bytes));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

#endif

#ifdef CUPILOT_WITHOUT_CONVERSION

inline void convert(const Elements&, void*, c10::ScalarType, const void*, c10::ScalarType, c10::Scalar) {
  fail("unsupported host call: a copy to another element type");
}

#else

// The 16-bit formats without CUDA's headers for them, which cost a third of a small kernel's compile time.
__device__ inline float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline uint16_t float_to_half(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Wide>
__device__ Wide load_wide(const char* from, c10::ScalarType type) {
  switch (type) {
    case c10::kByte: return Wide(*reinterpret_cast<const uint8_t*>(from));
    case c10::kChar: return Wide(*reinterpret_cast<const int8_t*>(from));
    case c10::kShort: return Wide(*reinterpret_cast<const int16_t*>(from));
    case c10::kInt: return Wide(*reinterpret_cast<const int*>(from));
    case c10::kLong: return Wide(*reinterpret_cast<const int64_t*>(from));
    case c10::kHalf: return Wide(half_to_float(*reinterpret_cast<const uint16_t*>(from)));
    case c10::kBFloat16: return Wide(__uint_as_float(uint32_t(*reinterpret_cast<const uint16_t*>(from)) << 16));
    case c10::kFloat: return Wide(*reinterpret_cast<const float*>(from));
    case c10::kDouble: return Wide(*reinterpret_cast<const double*>(from));
    default: return Wide(*from != 0);
  }
}

template <class Wide>
__device__ void store_wide(char* to, c10::ScalarType type, Wide value) {
  switch (type) {
    case c10::kByte:
    case c10::kChar: *to = char(int64_t(value)); break;
    case c10::kShort: *reinterpret_cast<int16_t*>(to) = int16_t(int64_t(value)); break;
    case c10::kInt: *reinterpret_cast<int*>(to) = int(value); break;
    case c10::kLong: *reinterpret_cast<int64_t*>(to) = int64_t(value); break;
    case c10::kHalf: *reinterpret_cast<uint16_t*>(to) = float_to_half(float(value)); break;
    case c10::kBFloat16: *reinterpret_cast<uint16_t*>(to) = float_to_bfloat16(float(value)); break;
    case c10::kFloat: *reinterpret_cast<float*>(to) = float(value); break;
    case c10::kDouble: *reinterpret_cast<double*>(to) = double(value); break;
    default: *to = value != Wide(0);
  }
}

// Integers go through int64_t, floats through float unless one side is double.  Without a source, fills.
template <class Wide>
__global__ void convert_elements(Elements elements, char* to, c10::ScalarType to_type, int to_bytes, const char* from,
                                 c10::ScalarType from_type, int from_bytes, Wide fill) {
  int64_t to_place = 0, from_place = 0;
  if (!elements.place(to_place, from_place)) return;
  const Wide value = from ? load_wide<Wide>(from + from_place * from_bytes, from_type) : fill;
  store_wide<Wide>(to + to_place * to_bytes, to_type, value);
}

template <class Wide>
void convert_as(const Elements& elements, void* to, c10::ScalarType to_type, const void* from,
                c10::ScalarType from_type, Wide fill) {
  convert_elements<Wide><<<elements.blocks(), Elements::threads>>>(
      elements, static_cast<char*>(to), to_type, int(c10::elementSize(to_type)), static_cast<const char*>(from),
      from_type, int(c10::elementSize(from_type)), fill);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

inline void convert(const Elements& elements, void* to, c10::ScalarType to_type, const void* from,
                    c10::ScalarType from_type, c10::Scalar fill) {
  if (to_type == c10::kDouble || from_type == c10::kDouble)
    convert_as<double>(elements, to, to_type, from, from_type, fill.toDouble());
  else if (c10::isFloatingType(to_type) || c10::isFloatingType(from_type))
    convert_as<float>(elements, to, to_type, from, from_type, fill.toFloat());
  else
    convert_as<int64_t>(elements, to, to_type, from, from_type, fill.toLong());
}

#endif

}  // namespace cupilot
