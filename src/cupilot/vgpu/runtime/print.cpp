// printf of kernels: the arguments lie in one buffer, each aligned to its own size (4 or 8 bytes), floats as double.
//
// Conversions are those of the CUDA C++ Programming Guide: d i u o x X p f e E g G a A c s %, flags `#0-+ ` and
// space, width and precision (also *), lengths h hh l ll z t j. A conversion that is not known is printed as it is.
#include "print.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Reader {
    const u8* next;
    u64 offset = 0;
    u32 taken = 0;
    template <class T>
    T take() {
        taken++;
        offset = (offset + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        T value;
        memcpy(&value, next + offset, sizeof value);
        offset += sizeof value;
        return value;
    }
};

template <class T>
std::string formatted(const std::string& directive, T value) {
    int length = snprintf(nullptr, 0, directive.c_str(), value);
    if (length < 0) return "";
    std::string text((size_t)length + 1, '\0');
    snprintf(&text[0], text.size(), directive.c_str(), value);
    text.pop_back();
    return text;
}

// A string in device memory; one that has no end stops where its buffer does.
std::string device_string(u64 address) {
    if (!address) return "(null)";
    Allocation* a = find_allocation(address);
    if (!a || a->freed) return "(not a string in device memory)";
    auto* text = (const char*)address;
    return std::string(text, strnlen(text, a->base + a->bytes - address));
}

bool is_wide(const std::string& length) {
    return length == "l" || length == "ll" || length == "z" || length == "t" || length == "j";
}

std::string integer(std::string head, const std::string& length, char conversion, Reader& in) {
    bool is_signed = conversion == 'd' || conversion == 'i';
    i64 value;
    if (is_wide(length))
        value = in.take<i64>();
    else {
        i32 word = in.take<i32>();
        if (length == "hh") word = is_signed ? (i32)(int8_t)word : (i32)(u8)word;
        if (length == "h") word = is_signed ? (i32)(int16_t)word : (i32)(uint16_t)word;
        value = is_signed ? (i64)word : (i64)(u32)word;
    }
    return formatted(head + "ll" + conversion, (long long)value);
}

std::string convert(const std::string& head, const std::string& length, char conversion, Reader& in) {
    if (strchr("diuoxX", conversion)) return integer(head, length, conversion, in);
    if (strchr("fFeEgGaA", conversion)) return formatted(head + conversion, in.take<double>());
    if (conversion == 'c') return formatted(head + 'c', in.take<i32>());
    if (conversion == 'p') return formatted(head + 'p', in.take<void*>());
    return formatted(head + 's', device_string(in.take<u64>()).c_str());
}

// Digits, or a star for which an argument is taken.
void read_number(const char*& p, std::string& head, Reader& in) {
    if (*p == '*') {
        head += std::to_string(in.take<i32>());
        p++;
    }
    while (*p >= '0' && *p <= '9') head += *p++;
}

std::string waiting;

}  // namespace

std::string format_print(const char* format, const u8* arguments, u32* taken) {
    Reader in{arguments};
    std::string out;
    for (const char* p = format; *p;) {
        if (*p != '%') {
            out += *p++;
            continue;
        }
        const char* start = p++;
        if (*p == '%') {
            out += *p++;
            continue;
        }
        std::string head = "%", length;
        while (*p && strchr("#0-+ ", *p)) head += *p++;
        read_number(p, head, in);
        if (*p == '.') {
            head += *p++;
            std::string precision;
            read_number(p, precision, in);
            // a negative precision counts as none
            if (!precision.empty() && precision[0] == '-')
                head.pop_back();
            else
                head += precision;
        }
        while (*p && strchr("hlztj", *p)) length += *p++;
        if (*p && strchr("diuoxXfFeEgGaAcps", *p))
            out += convert(head, length, *p++, in);
        else
            out.append(start, p);
    }
    if (taken) *taken = in.taken;
    return out;
}

void device_print(const std::string& text) {
    std::lock_guard<std::mutex> guard(engine().mutex);
    waiting += text;
}

void flush_prints() {
    std::string text;
    {
        std::lock_guard<std::mutex> guard(engine().mutex);
        text.swap(waiting);
    }
    if (text.empty()) return;
    fwrite(text.data(), 1, text.size(), stdout);
    fflush(stdout);
}

// For tests: formats into a buffer; gives the length that the text has.
extern "C" u64 vgc_format_print(const char* format, const u8* arguments, char* out, u64 capacity) {
    std::string text = format_print(format, arguments);
    snprintf(out, capacity, "%s", text.c_str());
    return text.size();
}
