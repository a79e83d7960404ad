// Text that kernels print.
#pragma once

#include <string>

#include "engine.h"

// One call of printf in a kernel: `arguments` is the buffer that vprintf gets; `taken` becomes the number of arguments,
// which is what CUDA's printf returns.
std::string format_print(const char* format, const u8* arguments, u32* taken = nullptr);
// Keeps text until the host synchronises, as CUDA does.
void device_print(const std::string& text);
// Writes what was kept to the program's standard output.
void flush_prints();
