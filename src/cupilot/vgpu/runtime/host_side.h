// A program's host code and its memory: in this process, or in another one (serve.cpp).
//
// Buffers are memory of this process in both cases. What no buffer covers is the host code's own, and is read and written
// here only.
#pragma once

#include "engine.h"

#include <cuda_runtime_api.h>

class HostSide {
  public:
    virtual ~HostSide() = default;
    virtual void read(void* to, u64 address, u64 bytes) = 0;
    virtual void write(u64 address, const void* from, u64 bytes) = 0;
    virtual void run(cudaHostFn_t function, void* data) = 0;
    virtual void run(cudaStreamCallback_t function, cudaStream_t stream, cudaError_t error, void* data) = 0;
    // Memory of the host code that kernels may touch from now on, at the same address; false when there is no room.
    virtual bool mirror(u64 address, u64 bytes) = 0;
    virtual void forget(u64 address) = 0;
    // The arguments of the kernel that is being launched or put into a graph.
    virtual void** arguments(void** given) = 0;
};

// The one in another process, or null.
HostSide* host_apart();

// From one place to the other, of which at least one may be the host code's own.
void move_bytes(void* to, const void* from, u64 bytes);
void run_on_host(cudaHostFn_t function, void* data);
