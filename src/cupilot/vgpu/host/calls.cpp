// Calls of the CUDA runtime whose arguments go to the worker as they are, made from the types in CUDA's header.
#include "arguments.h"

namespace {

template <class A>
void put(Writer& out, A value, u64 count) {
    if constexpr (std::is_same_v<A, Nodes>) {
        // none of them is an error when the count says otherwise
        bool given = value && count <= MOST_NODES;
        out.put((u64)(given ? count : 0));
        if (given) out.bytes(value, count * sizeof *value);
    } else if constexpr (std::is_same_v<A, Edges>) {
        // nobody looks at them
    } else if constexpr (std::is_same_v<A, KernelNode>) {
        out.put((u8)(value != nullptr));
        if (!value) return;
        out.put(*value);
        put_arguments(out, value->func, value->kernelParams);
    } else if constexpr (is_reference<A>) {
        out.put((u8)(value != nullptr));
        if (value) out.put(*value);
    } else {
        out.put(value);
    }
}

template <class A>
void take(Reader& in, A value) {
    if constexpr (is_reference<A>)
        if constexpr (!std::is_const_v<std::remove_pointer_t<A>>)
            if (value) *value = in.take<std::remove_pointer_t<A>>();
}

template <u32 NUMBER, class F>
struct Call;
template <u32 NUMBER, class... A>
struct Call<NUMBER, cudaError_t(A...)> {
    static cudaError_t make(A... arguments) {
        Writer out;
        size_t place = 0;
        (put(out, arguments, count_after(place++, arguments...)), ...);
        std::string answer = channel::request(NUMBER, out);
        Reader in(answer.data(), answer.size());
        auto error = in.take<cudaError_t>();
        // on an error that is noticed before the call there are no values
        if (in.left) (take(in, arguments), ...);
        return error;
    }
};

enum Number : u32 {
#define CALL(name) NUMBER_##name,
#define OPTIONAL CALL
#include "../runtime/wire_calls.h"
#undef CALL
#undef OPTIONAL
};

}  // namespace

// The functions of the header get their code here; it is chosen by number, so that none of it is written by hand.
#define CALL(name)                                                                                                 \
    extern "C" __attribute__((used)) void* const host_##name = (void*)&Call<NUMBER_##name, decltype(name)>::make; \
    asm(".globl " #name "\n.type " #name ", @function\n" #name ": jmp *host_" #name "(%rip)\n");
#define OPTIONAL CALL
#include "../runtime/wire_calls.h"
