// The C interface by which a program calls the wrappers of this library.
//
// Parameters may be Tensor, integers, bool, float, double, std::string, c10::Scalar, c10::ScalarType, c10::Device,
// lists (std::vector, std::array, ArrayRef, c10::List) and std::optional of those.  Results may be Tensor, an
// optional, list, pair or tuple of those, or void.  A function with other types can be registered but not called.
// Tensor arguments are views of the caller's device memory; results live until cupilot_release().
#pragma once

#include <cupilot/factories.h>

#include <array>
#include <limits>
#include <tuple>

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
    return v.kind == CUPILOT_DOUBLE ? c10::Scalar(v.d) : v.kind == CUPILOT_BOOL ? c10::Scalar(v.i != 0) : c10::Scalar(v.i);
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
struct Parameter<std::optional<T>> {
  using Held = std::optional<T>;
  static constexpr const char* name = Parameter<T>::name;
  static bool fits(const cupilot_value& v) { return v.kind == CUPILOT_NONE || Parameter<T>::fits(v); }
  static std::optional<T> read(const cupilot_value& v) {
    static_assert(std::is_same_v<typename Parameter<T>::Held, T>, "an optional view is not covered");
    return v.kind == CUPILOT_NONE ? std::nullopt : std::optional<T>(Parameter<T>::read(v));
  }
};

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
struct Suffix<std::optional<T>> {
  static constexpr const char* text = "?";
};

inline const char* kind_name(const cupilot_value& v) {
  static const char* const names[] = {"None", "Tensor", "int", "float", "bool", "str", "list"};
  return v.kind >= CUPILOT_NONE && v.kind <= CUPILOT_LIST ? names[v.kind] : "unknown";
}

// Where a call leaves its results.
struct Results {
  cupilot_value* values;
  int capacity;
  int count;
  std::vector<at::Tensor>& kept;

  void add(const at::Tensor& tensor) {
    const int place = count + 1;
    TORCH_CHECK(tensor.defined(), "result ", place, " is an undefined tensor");
    TORCH_CHECK(tensor.is_cuda(), "result ", place, " is on the host: give its options .device(torch::kCUDA)");
    TORCH_CHECK(count < capacity, "more than ", capacity, " results");
    cupilot_value& v = values[count++];
    v = cupilot_value();
    v.kind = CUPILOT_TENSOR;
    v.dtype = static_cast<int32_t>(tensor.scalar_type());
    v.ndim = tensor.dim();
    for (int64_t i = 0; i < v.ndim; ++i) {
      v.sizes[i] = tensor.size(i);
      v.strides[i] = tensor.stride(i);
    }
    v.data = tensor.data_ptr();
    kept.push_back(tensor);
  }
  template <class T>
  void add(const std::optional<T>& result) {
    if (result) add(*result);
  }
  template <class T>
  void add(const T& result) {
    if constexpr (is_sequence<T>(0)) {
      for (const auto& item : result) add(item);
    } else if constexpr (is_tuple<T>(0)) {
      std::apply([this](const auto&... item) { (add(item), ...); }, result);
    } else {
      fail("the wrapper returns something that is not a tensor");
    }
  }

  template <class T>
  static constexpr auto is_sequence(int) -> decltype(std::declval<const T&>().begin(), true) {
    return std::is_convertible_v<decltype(*std::declval<const T&>().begin()), at::Tensor>;
  }
  template <class T>
  static constexpr bool is_sequence(long) {
    return false;
  }
  template <class T>
  static constexpr auto is_tuple(int) -> decltype(std::tuple_size<T>::value, true) {
    return true;
  }
  template <class T>
  static constexpr bool is_tuple(long) {
    return false;
  }
};

template <class R>
struct ResultName {
  static void write(Text& text) {
    if constexpr (std::is_void_v<R>) text << "None";
    else if constexpr (std::is_same_v<R, at::Tensor>) text << "Tensor";
    else if constexpr (std::is_same_v<R, std::optional<at::Tensor>>) text << "Tensor?";
    else if constexpr (Results::is_sequence<R>(0)) text << "Tensor[]";
    else if constexpr (Results::is_tuple<R>(0)) {
      text << "(";
      for (size_t i = 0; i < std::tuple_size<R>::value; ++i) text << (i ? ", Tensor" : "Tensor");
      text << ")";
    } else text << "unsupported type";
  }
};

// A wrapper with its type erased.
struct Callable {
  virtual ~Callable() = default;
  virtual void signature(Text& text) const = 0;
  virtual int parameters() const = 0;
  virtual bool fits(int parameter, const cupilot_value& value) const = 0;
  virtual void call(const cupilot_value* arguments, Results& results) = 0;
};

template <class F, class R, class... A>
struct Wrapper final : Callable {
  static_assert(sizeof...(A) <= 64, "a wrapper has at most 64 parameters");
  F function;
  explicit Wrapper(F f) : function(f) {}

  void signature(Text& text) const override {
    const char* separator = "";
    text << "(";
    ((text << separator << Parameter<std::decay_t<A>>::name << Suffix<std::decay_t<A>>::text, separator = ", "), ...);
    text << ") -> ";
    ResultName<std::decay_t<R>>::write(text);
  }
  int parameters() const override { return sizeof...(A); }
  bool fits(int parameter, const cupilot_value& value) const override {
    int i = 0;
    bool result = false;
    ((i++ == parameter ? (void)(result = Parameter<std::decay_t<A>>::fits(value)) : (void)0), ...);
    return result;
  }
  void call(const cupilot_value* arguments, Results& results) override {
    invoke(arguments, results, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... I>
  void invoke(const cupilot_value* arguments, Results& results, std::index_sequence<I...>) {
    // named, because a parameter may be a reference that is not const, or a view
    std::tuple<typename Parameter<std::decay_t<A>>::Held...> values{Parameter<std::decay_t<A>>::read(arguments[I])...};
    if constexpr (std::is_void_v<R>) function(pass<A>(std::get<I>(values))...);
    else results.add(function(pass<A>(std::get<I>(values))...));
  }
  template <class Parameter_, class Held>
  static decltype(auto) pass(Held& held) {
    if constexpr (std::is_same_v<Held, std::decay_t<Parameter_>>) return static_cast<Parameter_&&>(held);
    else return std::decay_t<Parameter_>(held);
  }
};

constexpr int kMaxParameters = 64;

// A wrapper under its name; entries form a list in the order of registration.
struct Entry {
  const char* name;
  Callable* callable;
  Entry* next = nullptr;
  int named = 0;  // parameters that m.def gave a name to, and with it perhaps a default
  bool has_default[kMaxParameters] = {};
  cupilot_value defaults[kMaxParameters] = {};
};

// What a library offers and what it keeps alive; one per library, as its symbols are hidden.
struct Registry {
  Entry* first = nullptr;
  Entry* last = nullptr;
  std::vector<at::Tensor> kept;
  Text listing;

  static Registry& get() {
    static Registry registry;
    return registry;
  }
  void add(Entry* entry) {
    (last ? last->next : first) = entry;
    last = entry;
    listing << entry->name << "\t";
    entry->callable->signature(listing);
    listing << "\n";
  }
  Entry* find(const char* name) {
    Entry* entry = first;
    while (entry && std::strcmp(entry->name, name) != 0) entry = entry->next;
    return entry;
  }
};

template <class R, class... A>
Callable* erase(R (*function)(A...)) {
  return new Wrapper<R (*)(A...), R, A...>(function);
}
template <class F, class R, class C, class... A>
Callable* erase_object(F object, R (C::*)(A...) const) {
  return new Wrapper<F, R, A...>(object);
}
template <class F, class = decltype(&F::operator())>
Callable* erase(F object) {
  return erase_object(object, &F::operator());
}

template <class F>
Entry& add_entry(const char* name, F function) {
  Entry* const entry = new Entry{name, erase(function)};
  Registry::get().add(entry);
  return *entry;
}

// Fills in defaults after the `count` arguments given; fails with the signature when they do not fit.
inline void fit(const Entry& entry, cupilot_value (&values)[kMaxParameters], int count) {
  Text signature;
  signature << entry.name;
  entry.callable->signature(signature);
  const int parameters = entry.callable->parameters();
  int filled = count;
  for (; filled < parameters && entry.has_default[filled]; ++filled) values[filled] = entry.defaults[filled];
  if (filled != parameters) fail(count, " arguments do not fit ", signature.c_str());
  for (int i = 0; i < parameters; ++i)
    if (!entry.callable->fits(i, values[i]))
      fail("argument ", i + 1, " (", kind_name(values[i]), ") does not fit ", signature.c_str());
}

}  // namespace cupilot

#define CUPILOT_EXPORT extern "C" __attribute__((visibility("default"), used))

// Lines "name<TAB>signature".
CUPILOT_EXPORT inline const char* cupilot_entries(void) { return cupilot::Registry::get().listing.c_str(); }

// 0: done; 1: the wrapper threw; 2: no such entry, or the arguments do not fit.
CUPILOT_EXPORT inline int cupilot_call(const char* name, const cupilot_value* arguments, int argument_count,
                                       cupilot_value* results, int capacity, int* result_count, char* error,
                                       size_t error_size) {
  int outcome = 2;
  *result_count = 0;
  try {
    cupilot::Registry& registry = cupilot::Registry::get();
    cupilot::Entry* const entry = registry.find(name);
    if (!entry) cupilot::fail("there is no entry ", name, "; there are:\n", cupilot_entries());
    cupilot_value values[cupilot::kMaxParameters];
    if (argument_count > cupilot::kMaxParameters) cupilot::fail("more than ", cupilot::kMaxParameters, " arguments");
    std::memcpy(values, arguments, size_t(argument_count) * sizeof(cupilot_value));
    cupilot::fit(*entry, values, argument_count);
    outcome = 1;
    cupilot::Results out{results, capacity, 0, registry.kept};
    entry->callable->call(values, out);
    *result_count = out.count;
    return 0;
  } catch (const std::exception& exception) {
    snprintf(error, error_size, "%s", exception.what());
  } catch (...) {
    snprintf(error, error_size, "the wrapper threw something that is not a std::exception");
  }
  return outcome;
}

// Drops the results that calls have kept alive.
CUPILOT_EXPORT inline void cupilot_release(void) { cupilot::Registry::get().kept.clear(); }

#define CUPILOT_JOIN_(a, b) a##b
#define CUPILOT_JOIN(a, b) CUPILOT_JOIN_(a, b)
#define CUPILOT_ENTRY(name, function)                                                   \
  [[maybe_unused]] static const bool CUPILOT_JOIN(cupilot_registered_, __COUNTER__) =   \
      (::cupilot::add_entry(#name, &function), true);
