// Device memory: buffers, and what is known of each of their bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine.h"

void* lazy_pages(u64 bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

u64 allocate(u64 bytes, const char* name) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    // one unmapped-to-kernels page behind each buffer keeps neighbours apart
    u64 size = ((bytes ? bytes : 1) + PAGE - 1) / PAGE * PAGE + PAGE;
    void* p = lazy_pages(size);
    auto* state = (u8*)lazy_pages(2 * size);
    auto* launches = (u32*)lazy_pages(2 * (size / PAGE) * sizeof(u32));
    if (!p || !state || !launches) return 0;
    auto* a = new Allocation;
    a->base = (u64)p, a->bytes = bytes, a->name = name ? name : "";
    a->state = state, a->readers = state + size;
    a->state_launch = launches, a->reader_launch = launches + size / PAGE;
    a->index = (u32)e.by_index.size();
    e.by_index.push_back(a);
    e.allocations.insert(
        std::upper_bound(e.allocations.begin(), e.allocations.end(), a,
                         [](Allocation* x, Allocation* y) { return x->base < y->base; }),
        a);
    return a->base;
}

bool release(u64 address) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    Allocation* a = find_allocation(address);
    if (!a || a->base != address || a->freed) return false;
    // addresses are never used again, so that a later access is recognised
    a->freed = true;
    u64 size = (a->bytes + PAGE - 1) / PAGE * PAGE;
    if (size) {
        madvise((void*)a->base, size, MADV_DONTNEED);
        madvise(a->state, size, MADV_DONTNEED);
        madvise(a->readers, size, MADV_DONTNEED);
    }
    for (auto& stamps : e.stamps)
        if (stamps.size() > a->index && stamps[a->index]) {
            munmap(stamps[a->index], 2 * (a->bytes / 32 + 8) * sizeof(u32));
            stamps[a->index] = nullptr;
        }
    return true;
}

Allocation* find_allocation(u64 address) {
    auto& all = engine().allocations;
    auto it = std::upper_bound(all.begin(), all.end(), address, [](u64 x, Allocation* a) { return x < a->base; });
    if (it == all.begin()) return nullptr;
    Allocation* a = *--it;
    return address < a->base + std::max<u64>(a->bytes, 1) ? a : nullptr;
}

void mark_written(u64 address, u64 bytes) {
    Allocation* a = find_allocation(address);
    if (!a) return;
    a->stored = true;
    u64 offset = address - a->base;
    if (!offset && bytes >= a->bytes)
        a->all_written = true;
    else if (!a->all_written && bytes) {
        bytes = std::min(bytes, a->bytes - offset);
        memset(a->state + offset, WRITTEN, bytes);
        for (u64 page = offset / PAGE; page <= (offset + bytes - 1) / PAGE; page++) a->state_launch[page] = BY_HOST;
    }
}

// How many elements were completely stored to; the positions of the first `capacity` are put down.
extern "C" u64 vgc_stored_elements(u64 address, u64 elements, u64 item, u64 capacity, u64* out) {
    Allocation* a = find_allocation(address);
    if (!a || a->all_written) return a ? elements : 0;
    const u64 start = address - a->base;
    u64 found = 0;
    for (u64 i = 0; i < elements; i++) {
        u64 offset = start + i * item, page = offset / PAGE;
        if (!a->state_launch[page]) {  // nobody wrote to this page
            i = ((page + 1) * PAGE - start + item - 1) / item - 1;
            continue;
        }
        bool whole = true;
        for (u64 b = 0; b < item; b++) whole &= a->state[offset + b] != NEVER;
        if (!whole) continue;
        if (found < capacity) out[found] = i;
        found++;
    }
    return found;
}

// Whether kernels stored to a buffer at all.
extern "C" int vgc_stored(u64 address) {
    Allocation* a = find_allocation(address);
    return a && a->stored;
}

// A buffer backed by a file: pages are read when they are touched, and changes stay private.
extern "C" u64 vgc_map_file(const char* path, u64 bytes) {
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    u64 address = allocate(bytes, "argument");
    void* p = address && bytes
                  ? mmap((void*)address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0)
                  : nullptr;
    close(file);
    if (p == MAP_FAILED) return 0;
    if (address) find_allocation(address)->all_written = true;
    return address;
}
