// Element types: c10::ScalarType, their C++ types, c10::Scalar.  Complex and quantised types are not covered.
#pragma once

#include <cupilot/check.h>
#include <cupilot/small_float.h>

// C++ type, name, number; the numbers are PyTorch's and cross the C ABI.
#define CUPILOT_FOR_EACH_TYPE(_) \
  _(uint8_t, Byte, 0)            \
  _(int8_t, Char, 1)             \
  _(int16_t, Short, 2)           \
  _(int, Int, 3)                 \
  _(int64_t, Long, 4)            \
  _(c10::Half, Half, 5)          \
  _(float, Float, 6)             \
  _(double, Double, 7)           \
  _(bool, Bool, 11)              \
  _(c10::BFloat16, BFloat16, 15)

namespace c10 {

enum class ScalarType : int8_t {
#define CUPILOT_ENUMERATOR(type, name, number) name = number,
  CUPILOT_FOR_EACH_TYPE(CUPILOT_ENUMERATOR)
#undef CUPILOT_ENUMERATOR
      Undefined = 100
};

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = kByte, kChar = ScalarType::Char, kInt8 = kChar;
constexpr ScalarType kShort = ScalarType::Short, kInt16 = kShort, kInt = ScalarType::Int, kInt32 = kInt;
constexpr ScalarType kLong = ScalarType::Long, kInt64 = kLong, kHalf = ScalarType::Half, kFloat16 = kHalf;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = kFloat, kF32 = kFloat;
constexpr ScalarType kDouble = ScalarType::Double, kFloat64 = kDouble;
constexpr ScalarType kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16;
constexpr ScalarType kU8 = kByte, kI8 = kChar, kI16 = kShort, kI32 = kInt, kI64 = kLong, kF16 = kHalf, kF64 = kDouble;
using Dtype = ScalarType;

template <class T>
struct CppTypeToScalarType {
  static_assert(sizeof(T) == 0,
                "not an element type of tensors: for __half and __nv_bfloat16 ask for at::Half and at::BFloat16 "
                "and reinterpret_cast the pointer");
};
template <ScalarType type>
struct ScalarTypeToCPPType;

#define CUPILOT_TYPE_MAPS(type_, name, number)                        \
  template <>                                                         \
  struct CppTypeToScalarType<type_> : std::integral_constant<ScalarType, ScalarType::name> {}; \
  template <>                                                         \
  struct ScalarTypeToCPPType<ScalarType::name> {                      \
    using type = type_;                                               \
  };
CUPILOT_FOR_EACH_TYPE(CUPILOT_TYPE_MAPS)
#undef CUPILOT_TYPE_MAPS

inline size_t elementSize(ScalarType type) {
  switch (type) {
#define CUPILOT_CASE(type, name, number) \
  case ScalarType::name:                 \
    return sizeof(type);
    CUPILOT_FOR_EACH_TYPE(CUPILOT_CASE)
#undef CUPILOT_CASE
    default:
      return 0;
  }
}

inline const char* toString(ScalarType type) {
  switch (type) {
#define CUPILOT_CASE(type, name, number) \
  case ScalarType::name:                 \
    return #name;
    CUPILOT_FOR_EACH_TYPE(CUPILOT_CASE)
#undef CUPILOT_CASE
    default:
      return "Undefined";
  }
}

template <class Stream>
auto operator<<(Stream& stream, ScalarType type) -> decltype(stream.rdbuf(), stream) {
  stream << toString(type);
  return stream;
}

inline bool isFloatingType(ScalarType type) {
  return type == kHalf || type == kFloat || type == kDouble || type == kBFloat16;
}
inline bool isReducedFloatingType(ScalarType type) { return type == kHalf || type == kBFloat16; }
inline bool isComplexType(ScalarType) { return false; }
inline bool isIntegralType(ScalarType type, bool with_bool = false) {
  return type == kBool ? with_bool : type != ScalarType::Undefined && !isFloatingType(type);
}

// What Tensor::dtype() returns; behaves as the ScalarType it holds.
class TypeMeta {
 public:
  TypeMeta(ScalarType type = ScalarType::Undefined) : type_(type) {}
  operator ScalarType() const { return type_; }
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return elementSize(type_); }
  const char* name() const { return toString(type_); }
  bool isScalarType() const { return type_ != ScalarType::Undefined; }
  bool isScalarType(ScalarType type) const { return type_ == type; }
  template <class T>
  bool Match() const {
    return type_ == CppTypeToScalarType<T>::value;
  }
  template <class T>
  static TypeMeta Make() {
    return CppTypeToScalarType<T>::value;
  }
  void print(cupilot::Text& text) const { text << toString(type_); }

  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
  friend bool operator==(TypeMeta a, ScalarType b) { return a.type_ == b; }
  friend bool operator!=(TypeMeta a, ScalarType b) { return a.type_ != b; }
  friend bool operator==(ScalarType a, TypeMeta b) { return a == b.type_; }
  friend bool operator!=(ScalarType a, TypeMeta b) { return a != b.type_; }

 private:
  ScalarType type_;
};
inline ScalarType typeMetaToScalarType(TypeMeta type) { return type.toScalarType(); }

// One number of any kind.
class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value)
      : boolean_(std::is_same_v<T, bool>),
        floating_(std::is_floating_point_v<T>),
        i_(std::is_floating_point_v<T> ? 0 : int64_t(value)),
        d_(double(value)) {}

  Scalar(Half value);
  Scalar(BFloat16 value);

  template <class T>
  T to() const {
    if constexpr (std::is_arithmetic_v<T>) return floating_ ? static_cast<T>(d_) : static_cast<T>(i_);
    else return T(static_cast<float>(d_));
  }
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to<double>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return floating_; }
  bool isIntegral(bool with_bool) const { return !floating_ && (with_bool || !boolean_); }
  bool isBoolean() const { return boolean_; }
  bool isComplex() const { return false; }
  ScalarType type() const { return floating_ ? kDouble : boolean_ ? kBool : kLong; }
  Scalar operator-() const { return floating_ ? Scalar(-d_) : Scalar(-i_); }
  void print(cupilot::Text& text) const { floating_ ? text << d_ : text << i_; }

 private:
  bool boolean_;
  bool floating_;
  int64_t i_;
  double d_;
};
#ifndef CUPILOT_WITHOUT_HALF
inline Scalar::Scalar(Half value) : Scalar(float(value)) {}
inline Scalar::Scalar(BFloat16 value) : Scalar(float(value)) {}
#endif

}  // namespace c10

namespace caffe2 {
using c10::TypeMeta;
}

namespace cupilot {

template <class T>
c10::Scalar load_as(const void* bytes) {
  if constexpr (std::is_arithmetic_v<T>) return c10::Scalar(*static_cast<const T*>(bytes));
  else if constexpr (std::is_convertible_v<T, float>) return c10::Scalar(float(*static_cast<const T*>(bytes)));
  else unsupported("item() of a 16-bit tensor in a source that names no 16-bit type");
}

template <class T>
void store_as(void* bytes, c10::Scalar value) {
  if constexpr (std::is_same_v<T, bool>) *static_cast<bool*>(bytes) = value.toDouble() != 0;
  else if constexpr (std::is_convertible_v<T, float>) *static_cast<T*>(bytes) = value.to<T>();
  else unsupported("a 16-bit tensor on the host in a source that names no 16-bit type");
}

// Reads one element, of a type known only at run time, from host memory.
inline c10::Scalar load_scalar(c10::ScalarType type, const void* bytes) {
  switch (type) {
#define CUPILOT_CASE(type, name, number) \
  case c10::ScalarType::name:            \
    return load_as<type>(bytes);
    CUPILOT_FOR_EACH_TYPE(CUPILOT_CASE)
#undef CUPILOT_CASE
    default:
      return c10::Scalar();
  }
}

inline void store_scalar(c10::ScalarType type, void* bytes, c10::Scalar value) {
  switch (type) {
#define CUPILOT_CASE(type, name, number) \
  case c10::ScalarType::name:            \
    return store_as<type>(bytes, value);
    CUPILOT_FOR_EACH_TYPE(CUPILOT_CASE)
#undef CUPILOT_CASE
    default:
      return;
  }
}

}  // namespace cupilot
