// AT_DISPATCH_*: one instance of a lambda per element type, chosen at run time; and the types to accumulate in.
#pragma once

#include <cupilot/options.h>

namespace cupilot {

[[noreturn]] inline void no_instance(const char* name, c10::ScalarType type) {
  fail("\"", name, "\" not implemented for '", c10::toString(type), "'");
}

}  // namespace cupilot

#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                  \
  [&] {                                                      \
    const ::c10::ScalarType cupilot_type = (TYPE);           \
    const char* const cupilot_name = (NAME);                 \
    switch (cupilot_type) {                                  \
      __VA_ARGS__                                            \
      default:                                               \
        ::cupilot::no_instance(cupilot_name, cupilot_type);  \
    }                                                        \
  }()

#define AT_PRIVATE_CASE_TYPE(NAME, ENUM, TYPE, ...) \
  case ENUM: {                                      \
    using scalar_t [[maybe_unused]] = TYPE;         \
    return __VA_ARGS__();                           \
  }
#define AT_DISPATCH_CASE(ENUM, ...)                                                         \
  case ENUM: {                                                                              \
    using scalar_t [[maybe_unused]] = typename ::c10::ScalarTypeToCPPType<ENUM>::type;      \
    return __VA_ARGS__();                                                                   \
  }

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)               \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(...)     \
  AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::BFloat16, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)              \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__) \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)   \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)        \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)

// The families of types, each alone and with one to four types more.
#define CUPILOT_CASES_1(A, ...) AT_DISPATCH_CASE(A, __VA_ARGS__)
#define CUPILOT_CASES_2(A, B, ...) AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__)
#define CUPILOT_CASES_3(A, B, C, ...) CUPILOT_CASES_2(A, B, __VA_ARGS__) AT_DISPATCH_CASE(C, __VA_ARGS__)
#define CUPILOT_CASES_4(A, B, C, D, ...) CUPILOT_CASES_2(A, B, __VA_ARGS__) CUPILOT_CASES_2(C, D, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) CUPILOT_CASES_1(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) CUPILOT_CASES_2(A, B, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND3(A, B, C, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) CUPILOT_CASES_3(A, B, C, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND4(A, B, C, D, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) CUPILOT_CASES_4(A, B, C, D, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) CUPILOT_CASES_1(A, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) CUPILOT_CASES_2(A, B, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND3(A, B, C, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) CUPILOT_CASES_3(A, B, C, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES_AND4(A, B, C, D, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) CUPILOT_CASES_4(A, B, C, D, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) CUPILOT_CASES_1(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) CUPILOT_CASES_2(A, B, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(A, B, C, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) CUPILOT_CASES_3(A, B, C, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND4(A, B, C, D, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) CUPILOT_CASES_4(A, B, C, D, __VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::c10::ScalarType::Half, TYPE, NAME, __VA_ARGS__)
// in index_t
#define AT_DISPATCH_INDEX_CASE(ENUM, ...)                                                  \
  case ENUM: {                                                                             \
    using index_t [[maybe_unused]] = typename ::c10::ScalarTypeToCPPType<ENUM>::type;      \
    return __VA_ARGS__();                                                                  \
  }
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                           \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_INDEX_CASE(::c10::ScalarType::Int, __VA_ARGS__) \
                                     AT_DISPATCH_INDEX_CASE(::c10::ScalarType::Long, __VA_ARGS__))
// there are no complex tensors here
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND1 AT_DISPATCH_FLOATING_TYPES_AND
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND2 AT_DISPATCH_FLOATING_TYPES_AND2
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX AT_DISPATCH_ALL_TYPES
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND AT_DISPATCH_ALL_TYPES_AND
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2 AT_DISPATCH_ALL_TYPES_AND2
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3 AT_DISPATCH_ALL_TYPES_AND3

namespace at {

// The type to compute in: float for the 16-bit types, else the type itself.
template <class T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<c10::Half> {
  using type = float;
};
template <>
struct OpMathType<c10::BFloat16> {
  using type = float;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;

// The type to sum in: integers widen; on the device float sums in float.
template <class T, bool is_cuda>
using acc_type =
    std::conditional_t<std::is_integral_v<T>, int64_t,
                       std::conditional_t<std::is_same_v<T, float> && !is_cuda, double, opmath_type<T>>>;

}  // namespace at
