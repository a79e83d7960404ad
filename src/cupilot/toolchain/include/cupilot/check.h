// Failing with a message: the exception that wrappers throw, TORCH_CHECK and its relatives, CUDA error checks.
//
// Messages are built with snprintf into a fixed buffer, because <sstream> and <string> would double the time
// that a small kernel takes to compile.  A piece that is neither text nor a number is shown as "?".
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>
#ifndef CUPILOT_WITHOUT_STRING
#include <string>
#endif

namespace cupilot {

// Text of bounded length; what does not fit is cut off.
class Text {
 public:
  const char* c_str() const { return text_; }

  Text& operator<<(const char* piece) { return append("%s", piece ? piece : "(null)"); }
  Text& operator<<(bool piece) { return append("%d", int(piece)); }
  Text& operator<<(char piece) { return append("%c", piece); }
#ifndef CUPILOT_WITHOUT_STRING
  Text& operator<<(const std::string& piece) { return *this << piece.c_str(); }
#endif

  template <class T>
  Text& operator<<(const T& piece) {
    if constexpr (std::is_floating_point_v<T>) return append("%g", double(piece));
    else if constexpr (std::is_unsigned_v<T>) return append("%llu", static_cast<unsigned long long>(piece));
    else if constexpr (std::is_integral_v<T>) return append("%lld", static_cast<long long>(piece));
    else if constexpr (std::is_enum_v<T>) return name(piece, 0);
    else return print(piece, 0);
  }

 private:
  template <class T>
  auto print(const T& piece, int) -> decltype(piece.print(*this), *this) {
    piece.print(*this);
    return *this;
  }
  template <class T>
  Text& print(const T&, long) {
    return *this << "?";
  }
  template <class T>
  auto name(T piece, int) -> decltype(toString(piece), *this) {
    return *this << toString(piece);
  }
  template <class T>
  Text& name(T piece, long) {
    return append("%lld", static_cast<long long>(piece));
  }
  __attribute__((format(printf, 2, 3))) Text& append(const char* format, ...) {
    va_list pieces;
    va_start(pieces, format);
    const int length = vsnprintf(text_ + size_, sizeof(text_) - size_, format, pieces);
    va_end(pieces);
    if (length > 0) size_ = size_ + length < sizeof(text_) ? size_ + length : sizeof(text_) - 1;
    return *this;
  }

  char text_[2048] = {0};
  size_t size_ = 0;
};

// std::cout << x.sizes() and the like, without the header of streams
template <class Stream, class T>
auto operator<<(Stream& stream, const T& piece)
    -> decltype(piece.print(std::declval<Text&>()), stream.rdbuf(), stream) {
  Text text;
  text << piece;
  stream << text.c_str();
  return stream;
}

}  // namespace cupilot

namespace c10 {

using cupilot::operator<<;

class Error : public std::exception {
 public:
  explicit Error(const cupilot::Text& text) : text_(text) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const char* what_without_backtrace() const noexcept { return text_.c_str(); }
  const char* msg() const noexcept { return text_.c_str(); }

 private:
  cupilot::Text text_;
};

}  // namespace c10

namespace cupilot {

template <class... Pieces>
[[noreturn]] void fail(const Pieces&... pieces) {
  Text text;
  (void)(text << ... << pieces);
  throw c10::Error(text);
}

// A call that exists in PyTorch but would need a kernel of its own here.
[[noreturn]] inline void unsupported(const char* call) {
  fail("unsupported host call: ", call, ": a candidate must compute with its own kernels");
}

struct FailedCondition {
  const char* text;

  [[noreturn]] void raise() const { fail("the check (", text, ") does not hold"); }
  template <class... Pieces>
  [[noreturn]] void raise(const Pieces&... pieces) const {
    fail(pieces...);
  }
};

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail("CUDA error: ", cudaGetErrorString(error), " in ", call);
}

}  // namespace cupilot

#define TORCH_CHECK(condition, ...)                                              \
  do {                                                                           \
    if (!(condition)) ::cupilot::FailedCondition{#condition}.raise(__VA_ARGS__); \
  } while (0)
#define TORCH_CHECK_ARG(condition, position, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b))
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b))
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b))
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b))
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b))
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b))
#define TORCH_CHECK_TYPE TORCH_CHECK
#define TORCH_CHECK_VALUE TORCH_CHECK
#define TORCH_CHECK_INDEX TORCH_CHECK
#define TORCH_CHECK_NOT_IMPLEMENTED TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_CHECK TORCH_CHECK
#define TORCH_CHECK_WITH(error, condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_CHECK_NOTNULL(pointer) TORCH_CHECK((pointer) != nullptr)
#define AT_ERROR(...) ::cupilot::FailedCondition{"AT_ERROR"}.raise(__VA_ARGS__)
#define TORCH_WARN(...) ((void)0)
#define TORCH_WARN_ONCE(...) ((void)0)

#define C10_CUDA_CHECK(expression) ::cupilot::check_cuda((expression), #expression)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define TORCH_CUDA_CHECK C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ::cupilot::check_cuda(cudaGetLastError(), "a kernel launch")
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK C10_CUDA_KERNEL_LAUNCH_CHECK

#define C10_CUDA_CHECK_WARN(expression) ((void)(expression))
#define C10_CUDA_IGNORE_ERROR(expression) ((void)(expression))
#define CUDA_KERNEL_ASSERT(condition) \
  do {                                \
    if (!(condition)) __trap();       \
  } while (0)

#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_LIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 1))
#define C10_UNLIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 0))
#define C10_RESTRICT __restrict__
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_WARP_SIZE 32
#define C10_ALWAYS_INLINE __attribute__((always_inline)) inline
#define C10_NOINLINE __attribute__((noinline))
#define C10_UNUSED [[maybe_unused]]
#define C10_EXPORT
#define C10_API
#define TORCH_API
#define TORCH_CUDA_CU_API
#define AT_HOST_DEVICE C10_HOST_DEVICE
#define AT_DEVICE C10_DEVICE
#define AT_HOST C10_HOST
