// Values that cross the C interface, and the types of parameters that take them.
//
// Parameters may be Tensor, integers, bool, float, double, std::string, c10::Scalar, c10::ScalarType, c10::Device,
// lists (std::vector, std::array, ArrayRef, c10::List; std::tuple and std::pair of one type) and std::optional of
// those.  A function with other types can be registered but not called.
//
// Calls are the host's alone: the compiler's pass over device code sees the values only.
#pragma once

#include <cupilot/factories.h>

#ifndef CUPILOT_WITHOUT_TUPLE
#include <array>
#include <tuple>
#endif

extern "C" {

enum cupilot_kind : int32_t {
  CUPILOT_NONE = 0,
  CUPILOT_TENSOR = 1,
  CUPILOT_INT = 2,
  CUPILOT_DOUBLE = 3,
  CUPILOT_BOOL = 4,
  CUPILOT_STRING = 5,
  CUPILOT_LIST = 6,
};

struct cupilot_value {
  int32_t kind;
  int32_t dtype;  // a c10::ScalarType
  int64_t ndim;
  int64_t sizes[8];
  int64_t strides[8];  // in elements
  void* data;  // of a list: its values
  int64_t i;   // of a list: how many
  double d;
  const char* s;
};
}

#ifndef __CUDA_ARCH__
namespace cupilot {

// A type that a wrapper's parameter may have: its name, which values it takes, how it reads them, and what holds
// the value during the call.  This one is for types that nothing can be passed to.
template <class T, class = void>
struct Parameter {
  using Held = T;
  static constexpr const char* name = "unsupported type";
  static bool fits(const cupilot_value&) { return false; }
  [[noreturn]] static T read(const cupilot_value&) { fail("a parameter of a type that is not supported"); }
};

template <>
struct Parameter<at::Tensor> {
  using Held = at::Tensor;
  static constexpr const char* name = "Tensor";
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_TENSOR || v.kind == CUPILOT_NONE; }
  static at::Tensor read(const cupilot_value& v) {
    if (v.kind == CUPILOT_NONE) return at::Tensor();
    const auto options = at::TensorOptions(static_cast<at::ScalarType>(v.dtype)).device(at::kCUDA);
    const size_t rank = size_t(v.ndim);
    return at::from_blob(v.data, at::IntArrayRef(v.sizes, rank), at::IntArrayRef(v.strides, rank), options);
  }
};

template <>
struct Parameter<bool> {
  using Held = bool;
  static constexpr const char* name = "bool";
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_BOOL || v.kind == CUPILOT_INT; }
  static bool read(const cupilot_value& v) { return v.i != 0; }
};

template <class T>
struct Parameter<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  using Held = T;
  static constexpr const char* name = "int";
  static bool fits(const cupilot_value& v) {
    if (v.kind != CUPILOT_INT && v.kind != CUPILOT_BOOL) return false;
    return static_cast<int64_t>(static_cast<T>(v.i)) == v.i && (v.i >= 0 || std::is_signed_v<T>);
  }
  static T read(const cupilot_value& v) { return static_cast<T>(v.i); }
};

inline bool is_number(const cupilot_value& v) {
  return v.kind == CUPILOT_DOUBLE || v.kind == CUPILOT_INT || v.kind == CUPILOT_BOOL;
}

template <class T>
struct Parameter<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using Held = T;
  static constexpr const char* name = "float";
  static bool fits(const cupilot_value& v) { return is_number(v); }
  static T read(const cupilot_value& v) { return static_cast<T>(v.kind == CUPILOT_DOUBLE ? v.d : double(v.i)); }
};

template <>
struct Parameter<c10::Scalar> {
  using Held = c10::Scalar;
  static constexpr const char* name = "float";
  static bool fits(const cupilot_value& v) { return is_number(v); }
  static c10::Scalar read(const cupilot_value& v) {
    if (v.kind == CUPILOT_DOUBLE) return v.d;
    return v.kind == CUPILOT_BOOL ? c10::Scalar(v.i != 0) : c10::Scalar(v.i);
  }
};

#ifndef CUPILOT_WITHOUT_STRING
template <>
struct Parameter<std::string> {
  using Held = std::string;
  static constexpr const char* name = "str";
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_STRING; }
  static std::string read(const cupilot_value& v) { return v.s; }
};
#endif

template <>
struct Parameter<const char*> {
  using Held = const char*;
  static constexpr const char* name = "str";
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_STRING; }
  static const char* read(const cupilot_value& v) { return v.s; }
};

template <>
struct Parameter<c10::Device> {
  using Held = c10::Device;
  static constexpr const char* name = "Device";
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_STRING; }
  static c10::Device read(const cupilot_value& v) { return c10::Device(v.s); }
};

// By PyTorch's number of the type.
template <>
struct Parameter<c10::ScalarType> {
  using Held = c10::ScalarType;
  static constexpr const char* name = "ScalarType";
  static bool fits(const cupilot_value& v) {
    return v.kind == CUPILOT_INT && v.i >= 0 && v.i < 100 && c10::elementSize(c10::ScalarType(v.i)) > 0;
  }
  static c10::ScalarType read(const cupilot_value& v) { return c10::ScalarType(v.i); }
};

template <class T>
struct Parameter<c10::optional<T>> {
  using Held = c10::optional<T>;
  static constexpr const char* name = Parameter<T>::name;
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_NONE || Parameter<T>::fits(v); }
  static c10::optional<T> read(const cupilot_value& v) {
    static_assert(std::is_same_v<typename Parameter<T>::Held, T>, "an optional view is not covered");
    return v.kind == CUPILOT_NONE ? c10::optional<T>() : c10::optional<T>(Parameter<T>::read(v));
  }
};

#ifndef CUPILOT_WITHOUT_VECTOR
// Lists; a single value stands for a list of one.
template <class List, class Item>
struct ListParameter {
  using Held = List;
  static constexpr const char* name = Parameter<Item>::name;
  static constexpr bool is_list = true;
  static const cupilot_value* items(const cupilot_value& v) {
    return v.kind == CUPILOT_LIST ? static_cast<const cupilot_value*>(v.data) : &v;
  }
  static size_t size(const cupilot_value& v) { return v.kind == CUPILOT_LIST ? size_t(v.i) : 1; }
  static bool fits(const cupilot_value& v) {
    for (size_t i = 0; i < size(v); ++i)
      if (items(v)[i].kind == CUPILOT_LIST || !Parameter<Item>::fits(items(v)[i])) return false;
    return v.kind != CUPILOT_NONE;
  }
  static List read(const cupilot_value& v) {
    List list;
    for (size_t i = 0; i < size(v); ++i) list.push_back(Parameter<Item>::read(items(v)[i]));
    return list;
  }
};
template <class T>
struct Parameter<std::vector<T>> : ListParameter<std::vector<T>, T> {};
template <class T>
struct Parameter<c10::ArrayRef<T>> : ListParameter<std::vector<T>, T> {};
template <class T>
struct Parameter<c10::List<T>> : ListParameter<c10::List<T>, T> {};
#endif
#ifndef CUPILOT_WITHOUT_TUPLE
template <class T, size_t N>
struct Parameter<std::array<T, N>> : ListParameter<std::array<T, N>, T> {
  using Base = ListParameter<std::array<T, N>, T>;
  static bool fits(const cupilot_value& v) { return Base::size(v) == N && Base::fits(v); }
  static std::array<T, N> read(const cupilot_value& v) {
    std::array<T, N> list;
    for (size_t i = 0; i < N; ++i) list[i] = Parameter<T>::read(Base::items(v)[i]);
    return list;
  }
};

// Tuples and pairs take lists of just their length.
template <class Tuple, class First, class... Rest>
struct TupleParameter : ListParameter<std::vector<First>, First> {
  using Held = Tuple;
  using Base = ListParameter<std::vector<First>, First>;
  static bool fits(const cupilot_value& v) {
    return Base::fits(v) && Base::size(v) == 1 + sizeof...(Rest) && (std::is_same_v<First, Rest> && ...);
  }
  static Tuple read(const cupilot_value& v) { return read(v, std::index_sequence_for<First, Rest...>()); }
  template <size_t... I>
  static Tuple read(const cupilot_value& v, std::index_sequence<I...>) {
    return Tuple(Parameter<First>::read(Base::items(v)[I])...);
  }
};
template <class... T>
struct Parameter<std::tuple<T...>> : TupleParameter<std::tuple<T...>, T...> {};
template <class A, class B>
struct Parameter<std::pair<A, B>> : TupleParameter<std::pair<A, B>, A, B> {};
#endif

// What follows a parameter's name in a signature.
template <class T, class = void>
struct Suffix {
  static constexpr const char* text = "";
};
template <class T>
struct Suffix<T, std::enable_if_t<Parameter<T>::is_list>> {
  static constexpr const char* text = "[]";
};
template <class T>
struct Suffix<c10::optional<T>> {
  static constexpr const char* text = "?";
};

inline const char* kind_name(const cupilot_value& v) {
  static const char* const names[] = {"None", "Tensor", "int", "float", "bool", "str", "list"};
  return v.kind >= CUPILOT_NONE && v.kind <= CUPILOT_LIST ? names[v.kind] : "unknown";
}

}  // namespace cupilot
#endif
