// What a kernel did that it must not do, in words.
#pragma once

#include <string>

#include "engine.h"

void access_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, bool store, const char* space,
                    const char* kind, const std::string& near);
// A read of bytes that nobody wrote, or nobody in this call.
void unwritten_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, const Allocation* a);
// Where a global address lies in relation to the nearest buffer.
std::string near_text(u64 address);
