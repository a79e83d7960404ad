// PYBIND11_MODULE and m.def: they register entries of the C interface; no Python is involved.
//
// Argument names and documentation are accepted and ignored; scalar and None defaults are kept.
#pragma once

#include <cupilot/abi.h>

namespace pybind11 {

struct none {};

struct arg_v {
  cupilot_value value;
};

struct arg {
  explicit arg(const char*) {}
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }

  template <class T>
  arg_v operator=(const T& fallback) const {
    cupilot_value value = {};
    if constexpr (std::is_same_v<T, bool>) {
      value.kind = CUPILOT_BOOL;
      value.i = fallback;
    } else if constexpr (std::is_integral_v<T>) {
      value.kind = CUPILOT_INT;
      value.i = int64_t(fallback);
    } else if constexpr (std::is_floating_point_v<T>) {
      value.kind = CUPILOT_DOUBLE;
      value.d = double(fallback);
    } else if constexpr (std::is_convertible_v<T, const char*>) {
      value.kind = CUPILOT_STRING;
      value.s = fallback;
    } else {
      static_assert(std::is_same_v<T, pybind11::none> || std::is_same_v<T, std::nullopt_t>,
                    "the default of a wrapper's argument is a number, a string literal or None");
    }
    return arg_v{value};
  }
};

template <class...>
struct call_guard {};
struct gil_scoped_release {
  ~gil_scoped_release() {}
};

class module_ {
 public:
  template <class F, class... Extra>
  module_& def(const char* name, F function, const Extra&... extra) {
    cupilot::Entry& entry = cupilot::add_entry(name, function);
    (note(entry, extra), ...);
    return *this;
  }
  const char*& doc() { return doc_; }

 private:
  static void note(cupilot::Entry& entry, const arg&) { ++entry.named; }
  static void note(cupilot::Entry& entry, const arg_v& fallback) {
    entry.has_default[entry.named] = true;
    entry.defaults[entry.named++] = fallback.value;
  }
  template <class T>
  static void note(cupilot::Entry&, const T&) {}

  const char* doc_ = "";
};
using module = module_;

}  // namespace pybind11

namespace py = pybind11;

#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME cupilot_kernel
#endif

#define PYBIND11_MODULE(name, variable, ...)                               \
  static void cupilot_define_module(::pybind11::module_& variable);        \
  [[maybe_unused]] static const bool cupilot_module_defined = [] {         \
    ::pybind11::module_ module;                                            \
    cupilot_define_module(module);                                         \
    return true;                                                           \
  }();                                                                     \
  static void cupilot_define_module([[maybe_unused]] ::pybind11::module_& variable)
