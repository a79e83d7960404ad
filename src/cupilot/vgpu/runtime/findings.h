// What a kernel did that it must not do, in words.
#pragma once

#include <string>

#include "engine.h"

void access_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, bool store, const char* space,
                    const char* kind, const std::string& near);
// Where a global address lies in relation to the nearest buffer.
std::string near_text(u64 address);
