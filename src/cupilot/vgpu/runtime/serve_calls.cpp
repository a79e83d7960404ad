// Requests that are a call of the CUDA runtime with its arguments as they are, made from the types in CUDA's header.
#include <cstring>
#include <tuple>

#include "serve.h"

using namespace wire;

namespace {

// A number, a handle or a structure by value.
template <class A, class = void>
struct Argument {
    A value{};
    bool absent = false;
    cudaError_t take(Reader& in) { return check(value = in.take<A>()); }
    A pass(Connection&) { return value; }
    void put(Writer&) {}
};

template <class A>
struct Argument<A, std::enable_if_t<is_reference<A>>> {
    using Plain = std::remove_const_t<std::remove_pointer_t<A>>;
    Plain value{};
    bool absent = false;
    cudaError_t take(Reader& in) {
        absent = !in.take<u8>();
        if (!absent) value = in.take<Plain>();
        return cudaSuccess;
    }
    A pass(Connection&) { return absent ? nullptr : &value; }
    void put(Writer& out) {
        if constexpr (!std::is_const_v<std::remove_pointer_t<A>>)
            if (!absent) out.put(value);
    }
};

template <>
struct Argument<Nodes> {
    std::vector<cudaGraphNode_t> value;
    bool absent = false;
    cudaError_t take(Reader& in) {
        u64 count = in.take<u64>();
        if (count > in.left / sizeof(cudaGraphNode_t)) return in.good = false, cudaErrorInvalidValue;
        cudaError_t error = cudaSuccess;
        for (u64 i = 0; i < count; i++) {
            value.push_back(in.take<cudaGraphNode_t>());
            error = error ? error : check(value.back());
        }
        return error;
    }
    Nodes pass(Connection&) { return value.data(); }
    void put(Writer&) {}
};

template <>
struct Argument<Edges> {
    bool absent = false;
    cudaError_t take(Reader&) { return cudaSuccess; }
    Edges pass(Connection&) { return nullptr; }
    void put(Writer&) {}
};

template <>
struct Argument<KernelNode> {
    cudaKernelNodeParams value{};
    bool absent = false;
    std::vector<void*> arguments;
    cudaError_t take(Reader& in) {
        absent = !in.take<u8>();
        if (absent) return cudaSuccess;
        value = in.take<cudaKernelNodeParams>();
        arguments = take_arguments(in, value.func);
        // a kernel without parameters is the only one that needs none
        Registered* r = registered(value.func);
        bool fits = r && kernel_of(r)->function && arguments.size() == r->kernel->param_sizes.size();
        return fits ? cudaSuccess : cudaErrorInvalidDeviceFunction;
    }
    KernelNode pass(Connection&) { return &value; }
    void put(Writer&) {}
};

template <class T>
std::vector<void*> arguments_in(const T&) {
    return {};
}
std::vector<void*> arguments_in(const Argument<KernelNode>& a) { return a.arguments; }

// Of the arrays' length there is one argument, which must be that of the arrays that came.
template <class... A>
bool counts_fit(std::tuple<Argument<A>...>& held) {
    bool fit = true;
    std::apply(
        [&](auto&... one) {
            auto look = [&](auto& argument, size_t place) {
                if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, Argument<Nodes>>)
                    fit = fit && argument.value.size() == count_after(place, number_in(one)...);
            };
            size_t place = 0;
            (look(one, place++), ...);
        },
        held);
    return fit;
}
template <class T>
auto number_in(const T& argument) {
    if constexpr (std::is_same_v<T, Argument<size_t>>)
        return argument.value;
    else
        return 0;
}

template <auto FUNCTION, bool OPTIONAL_POINTERS>
struct Call;
template <class... A, cudaError_t (*FUNCTION)(A...), bool OPTIONAL_POINTERS>
struct Call<FUNCTION, OPTIONAL_POINTERS> {
    static void make(Connection& connection, Reader& in, Writer& out) {
        std::tuple<Argument<A>...> held;
        cudaError_t error = cudaSuccess;
        auto note = [&](cudaError_t one) { error = error ? error : one; };
        std::apply([&](auto&... one) { (note(one.take(in)), ...); }, held);
        if (!in.good) return;
        if (in.left) connection.malformed("a request that is too long");
        if (!counts_fit<A...>(held)) note(cudaErrorInvalidValue);
        if (!OPTIONAL_POINTERS)
            std::apply([&](auto&... one) { (note(one.absent ? cudaErrorInvalidValue : cudaSuccess), ...); }, held);
        if (error) return out.put(fail(error));
        std::vector<void*> arguments;
        auto keep = [&](std::vector<void*> found) { if (!found.empty()) arguments = std::move(found); };
        std::apply([&](auto&... one) { (keep(arguments_in(one)), ...); }, held);
        Connection::WithArguments with(connection, std::move(arguments));
        error = std::apply([&](auto&... one) { return FUNCTION(one.pass(connection)...); }, held);
        out.put(error);
        std::apply([&](auto&... one) { (one.put(out), ...); }, held);
    }
};

bool touches(const char* name) {
    return !strncmp(name, "cudaMemcpy", 10) || !strncmp(name, "cudaMemset", 10) || !strcmp(name, "cudaGraphLaunch");
}

const std::vector<Handler>& calls() {
    static auto* all = new std::vector<Handler>{
#define CALL(name) {#name, &Call<&name, false>::make, touches(#name)},
#define OPTIONAL(name) {#name, &Call<&name, true>::make, touches(#name)},
#include "wire_calls.h"
#undef CALL
#undef OPTIONAL
    };
    return *all;
}

}  // namespace

const Handler* handler_of(u32 number) { return number < calls().size() ? &calls()[number] : special_handler(number); }

cudaError_t check(cudaStream_t stream) { return known_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; }
cudaError_t check(cudaEvent_t event) { return known_event(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; }
cudaError_t check(cudaGraph_t graph) { return Known<Graph>::is((Graph*)graph) ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t check(cudaGraphNode_t node) { return Known<Node>::is((Node*)node) ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t check(cudaGraphExec_t executable) {
    return Known<Executable>::is((Executable*)executable) ? cudaSuccess : cudaErrorInvalidValue;
}
