// PYBIND11_MODULE with m.def, and TORCH_LIBRARY with m.def and m.impl: they register entries of the C interface; no
// Python is involved.
//
// Argument names, documentation, attributes and policies are accepted and ignored; defaults are kept.  Classes and
// objects of Python are not covered.
#pragma once

#include <cupilot/abi.h>

namespace pybind11 {

struct none {};

// A default, with the memory that its value refers to.
struct arg_v {
  cupilot_value value;
};

struct arg {
  explicit arg(const char*) {}
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }

  template <class T>
  arg_v operator=(const T& fallback) const {
    return arg_v{encode(fallback)};
  }

 private:
#ifndef CUPILOT_WITHOUT_VECTOR
  template <class T>
  static auto encode(const std::vector<T>& list) {
    // lives as long as the module, like the module's other defaults
    cupilot_value* const items = new cupilot_value[list.size() + 1]();
    for (size_t i = 0; i < list.size(); ++i) items[i] = encode(T(list[i]));
    cupilot_value value = {};
    value.kind = CUPILOT_LIST;
    value.data = items;
    value.i = int64_t(list.size());
    return value;
  }
#endif
  template <class T>
  static cupilot_value encode(const c10::optional<T>& fallback) {
    return fallback ? encode(*fallback) : cupilot_value();
  }
#ifndef CUPILOT_WITHOUT_STRING
  static cupilot_value encode(const std::string& text) { return encode(strdup(text.c_str())); }
#endif
  template <class T>
  static cupilot_value encode(const T& fallback) {
    cupilot_value value = {};
    if constexpr (std::is_same_v<T, bool>) {
      value.kind = CUPILOT_BOOL;
      value.i = fallback;
    } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, c10::ScalarType>) {
      value.kind = CUPILOT_INT;
      value.i = int64_t(fallback);
    } else if constexpr (std::is_floating_point_v<T>) {
      value.kind = CUPILOT_DOUBLE;
      value.d = double(fallback);
    } else if constexpr (std::is_same_v<T, c10::Scalar>) {
      return fallback.isFloatingPoint() ? encode(fallback.toDouble()) : encode(fallback.toLong());
    } else if constexpr (std::is_convertible_v<T, const char*>) {
      value.kind = CUPILOT_STRING;
      value.s = fallback;
    } else {
      static_assert(std::is_same_v<T, pybind11::none> || std::is_same_v<T, c10::nullopt_t> ||
                        std::is_same_v<T, at::Tensor>,
                    "the default of a wrapper's argument is a number, a string, a list of those or None");
    }
    return value;
  }
};

inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

template <class...>
struct call_guard {};
struct gil_scoped_release {
  ~gil_scoped_release() {}
};
struct gil_scoped_acquire {
  ~gil_scoped_acquire() {}
};
struct kw_only {};
struct pos_only {};
enum class return_value_policy { automatic, copy, move, reference, take_ownership };
struct doc {
  explicit doc(const char*) {}
};

template <class... A, class R>
auto overload_cast(R (*function)(A...)) {
  return function;
}

// Takes anything and keeps nothing.
struct attribute {
  template <class T>
  const attribute& operator=(const T&) const {
    return *this;
  }
};

class module_ {
 public:
  template <class F, class... Extra>
  module_& def(const char* name, F function, const Extra&... extra) {
    cupilot::Entry& entry = cupilot::add_entry(name, function);
    (note(entry, extra), ...);
    return *this;
  }
  attribute doc() const { return {}; }
  attribute attr(const char*) const { return {}; }
  module_& def_submodule(const char*, const char* = "") { return *this; }

 private:
  static void note(cupilot::Entry& entry, const arg&) { ++entry.named; }
  static void note(cupilot::Entry& entry, const arg_v& fallback) {
    entry.has_default[entry.named] = true;
    entry.defaults[entry.named++] = fallback.value;
  }
  template <class T>
  static void note(cupilot::Entry&, const T&) {}
};
using module = module_;

}  // namespace pybind11

namespace py = pybind11;

namespace c10 {
enum class DispatchKey {
  CPU, CUDA, Meta, Autograd, AutogradCUDA, CompositeImplicitAutograd, CompositeExplicitAutograd
};
}

namespace torch {

template <class F>
F wrap_pybind_function(F function) {
  return function;
}

template <class F>
struct Dispatched {
  bool here;
  F function;
};
template <class F>
Dispatched<F> dispatch(c10::DispatchKey key, F function) {
  return {key != c10::DispatchKey::CPU && key != c10::DispatchKey::Meta, function};
}
template <class F>
Dispatched<F> dispatch(c10::DeviceType type, F function) {
  return {type == c10::kCUDA, function};
}

// What TORCH_LIBRARY gives: functions under the name that begins a schema; only those for CUDA are registered.
class Library {
 public:
  explicit Library(bool here = true) : here_(here) {}

  Library& def(const char*) { return *this; }
  template <class F>
  Library& def(const char* schema, F function) {
    return impl(schema, function);
  }
  template <class F>
  Library& impl(const char* schema, F function) {
    if (!here_) return *this;
    const size_t length = std::strcspn(schema, "( ");
    char* const name = new char[length + 1]();
    std::memcpy(name, schema, length);
    cupilot::add_entry(name, function);
    return *this;
  }
  template <class F>
  Library& impl(const char* schema, Dispatched<F> dispatched) {
    return dispatched.here ? impl(schema, dispatched.function) : *this;
  }
  template <class F>
  Library& impl(const char* schema, c10::DeviceType type, F function) {
    return impl(schema, dispatch(type, function));
  }
  template <class T>
  Library& set_python_module(const T&) {
    return *this;
  }

 private:
  bool here_;
};

}  // namespace torch

#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME cupilot_kernel
#endif

#define CUPILOT_MODULE(type, object, variable, unique)                              \
  static void CUPILOT_JOIN(cupilot_define_, unique)(type & variable);               \
  [[maybe_unused]] static const bool CUPILOT_JOIN(cupilot_defined_, unique) = [] {  \
    type module = object;                                                           \
    CUPILOT_JOIN(cupilot_define_, unique)(module);                                  \
    return true;                                                                    \
  }();                                                                              \
  static void CUPILOT_JOIN(cupilot_define_, unique)([[maybe_unused]] type & variable)

#define PYBIND11_MODULE(name, variable, ...) \
  CUPILOT_MODULE(::pybind11::module_, ::pybind11::module_(), variable, __COUNTER__)
#define TORCH_LIBRARY(name, variable) CUPILOT_MODULE(::torch::Library, ::torch::Library(), variable, __COUNTER__)
#define TORCH_LIBRARY_FRAGMENT(name, variable) TORCH_LIBRARY(name, variable)
#define TORCH_LIBRARY_EXPAND(name, variable) TORCH_LIBRARY(name, variable)
#define TORCH_LIBRARY_IMPL(name, key, variable)                                                        \
  CUPILOT_MODULE(::torch::Library, ::torch::Library(#key[0] != 'M' && ::std::strcmp(#key, "CPU") != 0), \
                 variable, __COUNTER__)
#define TORCH_FN(function) (&function)
#define REGISTER_EXTENSION(name)
