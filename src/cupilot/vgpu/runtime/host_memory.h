// Memory that host code and kernels both see: pinned, registered and managed.
//
// Host code's stores are not seen when they happen, but what the device wrote is compared when it next works: what has
// changed since is the host's. So it is known of every sector that a kernel reads whether it is this call's own work,
// an earlier call's (a finding), or the host's (counted, because work may have been done there).
#pragma once

#include "engine.h"

// The device begins to work, a launch or a copy, or a call has ended; gives the bytes of managed memory that the host has
// written over what the device wrote.
u64 begin_device_work();
// It is done; a launch says which managed buffers it touched first.
void end_device_work(LaunchState* launch = nullptr);
// Sectors of one line that a request reads or writes.
void use_host_memory(Context* c, const Site& s, Allocation* a, u64 first, bool store);
// A copy or a fill wrote bytes of such a buffer.
void device_wrote(Allocation* a, u64 offset, u64 bytes);
// Whether some of the bytes are what the device wrote in an earlier call, and nobody has since.
bool is_of_earlier_call(const Allocation* a, u64 offset, u64 bytes);
// A call begins.
void forget_sides(Allocation* a);
