// Memory and functions of host code, wherever it runs.
#include "host_side.h"

#include <algorithm>
#include <cstring>

void move_bytes(void* to, const void* from, u64 bytes) {
    HostSide* apart = host_apart();
    bool here = !apart || find_allocation((u64)to), there = !apart || find_allocation((u64)from);
    if (here && there) {
        memmove(to, from, bytes);
    } else if (here) {
        apart->read(to, (u64)from, bytes);
    } else if (there) {
        apart->write((u64)to, from, bytes);
    } else {
        constexpr u64 PIECE = 1 << 20;
        std::string between(std::min(bytes, PIECE), '\0');
        for (u64 at = 0; at < bytes; at += PIECE) {
            u64 count = std::min(PIECE, bytes - at);
            apart->read(&between[0], (u64)from + at, count);
            apart->write((u64)to + at, between.data(), count);
        }
    }
}

void run_on_host(cudaHostFn_t function, void* data) {
    if (HostSide* apart = host_apart())
        apart->run(function, data);
    else
        function(data);
}
