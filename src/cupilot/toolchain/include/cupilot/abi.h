// The C interface by which a program calls the wrappers of this library.
//
// Results may be Tensor, an optional, list, pair or tuple of those, or void; parameters are in parameters.h.
// Tensor arguments are views of the caller's device memory; results live until cupilot_release().
#pragma once

#include <cupilot/parameters.h>

namespace cupilot {

constexpr int kMaxParameters = 64;
struct Callable;

// A wrapper under its name; entries form a list in the order of registration.
struct Entry {
  const char* name;
  Callable* callable;
  Entry* next = nullptr;
  int named = 0;  // parameters that m.def gave a name to, and with it perhaps a default
  bool has_default[kMaxParameters] = {};
  cupilot_value defaults[kMaxParameters] = {};
};

#ifdef __CUDA_ARCH__

template <class F>
Entry& add_entry(const char* name, F function);

}  // namespace cupilot

#else

// Tensors that outlive the call that made them.
class Kept {
 public:
  void add(const at::Tensor& tensor) { last_ = new Item{tensor, last_}; }
  void clear() {
    while (last_) {
      Item* const before = last_->before;
      delete last_;
      last_ = before;
    }
  }
  ~Kept() { clear(); }

 private:
  struct Item {
    at::Tensor tensor;
    Item* before;
  };
  Item* last_ = nullptr;
};

// What one parameter holds during a call, by its place.
template <size_t I, class T>
struct HeldValue {
  T value;
};
template <class Places, class... T>
struct HeldValues;
template <size_t... I, class... T>
struct HeldValues<std::index_sequence<I...>, T...> : HeldValue<I, T>... {};
template <size_t I, class T>
T& held_value(HeldValue<I, T>& held) {
  return held.value;
}

// Where a call leaves its results.
struct Results {
  cupilot_value* values;
  int capacity;
  int count;
  Kept& kept;

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
    kept.add(tensor);
  }
  template <class T>
  void add(const c10::optional<T>& result) {
    if (result) add(*result);
  }
  template <class T>
  void add(const T& result) {
    if constexpr (is_sequence<T>(0)) {
      for (const auto& item : result) add(item);
#ifndef CUPILOT_WITHOUT_TUPLE
    } else if constexpr (is_tuple<T>(0)) {
      std::apply([this](const auto&... item) { (add(item), ...); }, result);
#endif
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
    else if constexpr (std::is_same_v<R, c10::optional<at::Tensor>>) text << "Tensor?";
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
    [[maybe_unused]] HeldValues<std::index_sequence<I...>, typename Parameter<std::decay_t<A>>::Held...> values{
        {Parameter<std::decay_t<A>>::read(arguments[I])}...};
    if constexpr (std::is_void_v<R>) function(pass<A>(held_value<I>(values))...);
    else results.add(function(pass<A>(held_value<I>(values))...));
  }
  template <class Parameter_, class Held>
  static decltype(auto) pass(Held& held) {
    if constexpr (std::is_same_v<Held, std::decay_t<Parameter_>>) return static_cast<Parameter_&&>(held);
    else return std::decay_t<Parameter_>(held);
  }
};

// What a library offers and what it keeps alive; one per library, as its symbols are hidden.
struct Registry {
  Entry* first = nullptr;
  Entry* last = nullptr;
  Kept kept;
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

// Tensors of later calls live in memory from `take`, which gives null when there is none; `give` gets it back.
CUPILOT_EXPORT inline void cupilot_allocator(void* (*take)(size_t), void (*give)(void*)) {
  cupilot::Allocator::get() = {take, give};
}

// Drops the results that calls have kept alive.
CUPILOT_EXPORT inline void cupilot_release(void) { cupilot::Registry::get().kept.clear(); }

#endif

#define CUPILOT_JOIN_(a, b) a##b
#define CUPILOT_JOIN(a, b) CUPILOT_JOIN_(a, b)
#define CUPILOT_ENTRY(name, function)                                                   \
  [[maybe_unused]] static const bool CUPILOT_JOIN(cupilot_registered_, __COUNTER__) =   \
      (::cupilot::add_entry(#name, &function), true);
