// Arguments of kernels, packed for the worker.
#pragma once

#include "channel.h"

using namespace wire;

// The values of a kernel's parameters, whose sizes the worker knows; none when the kernel cannot be translated.
void put_arguments(Writer& out, const void* function, void** arguments);
