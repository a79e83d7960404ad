// c10::Half and c10::BFloat16: two bytes, laid out as __half and __nv_bfloat16, computing in float.
//
// A source that names no 16-bit type is compiled with CUPILOT_WITHOUT_HALF: the types are then bare storage,
// which saves the two CUDA headers (a third of the compile time of a small kernel).
//
// Assigning a c10::Half to an existing __half is ambiguous while CUDA's own conversions from float are switched on;
// a source that does so is compiled again with PyTorch's flags, which switch them off.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef CUPILOT_WITHOUT_HALF

namespace c10 {
struct alignas(2) Half {
  uint16_t x;
};
struct alignas(2) BFloat16 {
  uint16_t x;
};
}  // namespace c10

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

namespace cupilot {

struct HalfFormat {
  using Native = __half;
  static __host__ __device__ float decode(Native value) { return __half2float(value); }
  static __host__ __device__ Native encode(float value) { return __float2half_rn(value); }
};

struct BFloat16Format {
  using Native = __nv_bfloat16;
  static __host__ __device__ float decode(Native value) { return __bfloat162float(value); }
  static __host__ __device__ Native encode(float value) { return __float2bfloat16_rn(value); }
};

// With a floating number the result has that number's type, with an integer it stays small, as in PyTorch.
template <class Small, class Number>
using Mixed = std::enable_if_t<std::is_arithmetic_v<Number>,
                               std::conditional_t<std::is_floating_point_v<Number>, Number, Small>>;

template <class Format>
struct alignas(2) SmallFloat {
  using Native = typename Format::Native;
  struct from_bits_t {};
  static constexpr __host__ __device__ from_bits_t from_bits() { return from_bits_t(); }

  uint16_t x;

  SmallFloat() = default;
  constexpr __host__ __device__ SmallFloat(uint16_t bits, from_bits_t) : x(bits) {}
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  __host__ __device__ SmallFloat(Number value) : SmallFloat(Format::encode(static_cast<float>(value))) {}
  __host__ __device__ SmallFloat(const Native& value) : x(reinterpret_cast<const uint16_t&>(value)) {}
  __host__ __device__ operator float() const { return Format::decode(reinterpret_cast<const Native&>(x)); }
  __host__ __device__ operator Native() const { return reinterpret_cast<const Native&>(x); }

  friend __host__ __device__ SmallFloat operator-(SmallFloat a) { return SmallFloat(-float(a)); }

#define CUPILOT_ARITHMETIC(op)                                                                      \
  friend __host__ __device__ SmallFloat operator op(SmallFloat a, SmallFloat b) {                   \
    return SmallFloat(float(a) op float(b));                                                        \
  }                                                                                                 \
  template <class Number>                                                                           \
  friend __host__ __device__ Mixed<SmallFloat, Number> operator op(SmallFloat a, Number b) {        \
    return Mixed<SmallFloat, Number>(float(a) op b);                                                \
  }                                                                                                 \
  template <class Number>                                                                           \
  friend __host__ __device__ Mixed<SmallFloat, Number> operator op(Number a, SmallFloat b) {        \
    return Mixed<SmallFloat, Number>(a op float(b));                                                \
  }                                                                                                 \
  friend __host__ __device__ SmallFloat& operator op##=(SmallFloat & a, SmallFloat b) {             \
    return a = SmallFloat(float(a) op float(b));                                                    \
  }                                                                                                 \
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>                   \
  friend __host__ __device__ SmallFloat& operator op##=(SmallFloat & a, Number b) {                 \
    return a = SmallFloat(float(a) op b);                                                           \
  }
  CUPILOT_ARITHMETIC(+)
  CUPILOT_ARITHMETIC(-)
  CUPILOT_ARITHMETIC(*)
  CUPILOT_ARITHMETIC(/)
#undef CUPILOT_ARITHMETIC

#define CUPILOT_COMPARISON(op)                                                                                       \
  friend __host__ __device__ bool operator op(SmallFloat a, SmallFloat b) { return float(a) op float(b); }           \
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>                                    \
  friend __host__ __device__ bool operator op(SmallFloat a, Number b) {                                              \
    return float(a) op b;                                                                                            \
  }                                                                                                                  \
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>                                    \
  friend __host__ __device__ bool operator op(Number a, SmallFloat b) {                                              \
    return a op float(b);                                                                                            \
  }
  CUPILOT_COMPARISON(<)
  CUPILOT_COMPARISON(<=)
  CUPILOT_COMPARISON(>)
  CUPILOT_COMPARISON(>=)
  CUPILOT_COMPARISON(==)
  CUPILOT_COMPARISON(!=)
#undef CUPILOT_COMPARISON
};

template <class Small, uint16_t Largest, uint16_t Smallest, uint16_t Infinity, uint16_t Epsilon>
struct SmallLimits {
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool has_infinity = true;
  static constexpr __host__ __device__ Small bits(uint16_t value) { return Small(value, Small::from_bits()); }
  static constexpr __host__ __device__ Small max() { return bits(Largest); }
  static constexpr __host__ __device__ Small lowest() { return bits(Largest | 0x8000); }
  static constexpr __host__ __device__ Small min() { return bits(Smallest); }
  static constexpr __host__ __device__ Small infinity() { return bits(Infinity); }
  static constexpr __host__ __device__ Small epsilon() { return bits(Epsilon); }
};

}  // namespace cupilot

namespace c10 {
using Half = cupilot::SmallFloat<cupilot::HalfFormat>;
using BFloat16 = cupilot::SmallFloat<cupilot::BFloat16Format>;
}  // namespace c10

#ifdef __CUDACC__
template <class Format>
__device__ cupilot::SmallFloat<Format> __ldg(const cupilot::SmallFloat<Format>* address) {
  const unsigned short bits = __ldg(reinterpret_cast<const unsigned short*>(address));
  return cupilot::SmallFloat<Format>(bits, typename cupilot::SmallFloat<Format>::from_bits_t());
}
#endif

template <>
struct std::numeric_limits<c10::Half> : cupilot::SmallLimits<c10::Half, 0x7bff, 0x0400, 0x7c00, 0x1400> {};
template <>
struct std::numeric_limits<c10::BFloat16> : cupilot::SmallLimits<c10::BFloat16, 0x7f7f, 0x0080, 0x7f80, 0x3c00> {};

#endif
