// Device memory: buffers, and what is known of each of their bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine.h"

// Large pages spare the host's address translation; of buffers that are larger still, kernels touch only parts.
constexpr u64 LARGE_PAGE = 2 << 20, LARGEST_WHOLE = 512 << 20;

void* lazy_pages(u64 bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (bytes >= 2 * LARGE_PAGE && bytes <= LARGEST_WHOLE) madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

// Pages for buffers and for what is known of them. Small buffers share one: a process has a limited number of mappings,
// and kernels that call malloc would use them up.
struct Arena {
    u64 bytes = 0, used = 0;
    u8 *data = nullptr, *states = nullptr, *readers = nullptr;
    u32 *state_launches = nullptr, *reader_launches = nullptr;

    explicit Arena(u64 size) {
        u8* parts = (u8*)lazy_pages(3 * size);
        u32* launches = (u32*)lazy_pages(2 * (size / PAGE) * sizeof(u32));
        if (!parts || !launches) return;
        bytes = size, data = parts, states = parts + size, readers = parts + 2 * size;
        state_launches = launches, reader_launches = launches + size / PAGE;
    }
};
constexpr u64 SMALL = 1 << 20, SHARED_ARENA = 256 << 20, MOST = 1ull << 44;

u64 allocate(u64 bytes, const char* name) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    if (bytes > MOST) return 0;
    // one unmapped-to-kernels page behind each buffer keeps neighbours apart
    u64 size = ((bytes ? bytes : 1) + PAGE - 1) / PAGE * PAGE + PAGE;
    static Arena small(0);
    if (size <= SMALL && small.used + size > small.bytes) small = Arena(SHARED_ARENA);
    // buffers that all start at the same place of a cache's ways would drive each other out of the host's caches
    constexpr u64 COLOURS = 16;
    Arena own(size <= SMALL ? 0 : size + COLOURS * PAGE);
    own.used = e.by_index.size() * 5 % COLOURS * PAGE;
    Arena& arena = size <= SMALL ? small : own;
    if (arena.used + size > arena.bytes) return 0;
    u64 at = arena.used;
    arena.used += size;
    auto* a = new Allocation;
    a->base = (u64)(arena.data + at), a->bytes = bytes, a->name = name ? name : "";
    a->state = arena.states + at, a->readers = arena.readers + at;
    a->state_launch = arena.state_launches + at / PAGE, a->reader_launch = arena.reader_launches + at / PAGE;
    a->index = (u32)e.by_index.size();
    e.by_index.push_back(a);
    e.allocations.insert(
        std::upper_bound(e.allocations.begin(), e.allocations.end(), a,
                         [](Allocation* x, Allocation* y) { return x->base < y->base; }),
        a);
    return a->base;
}

static u64 stamp_bytes(u64 bytes) { return 2 * (bytes / 32 + 8) * sizeof(u32); }

u32* new_stamps(u64 bytes) { return (u32*)(bytes <= SMALL ? calloc(1, stamp_bytes(bytes)) : lazy_pages(stamp_bytes(bytes))); }

static void free_stamps(u32* stamps, u64 bytes) {
    if (bytes <= SMALL)
        free(stamps);
    else
        munmap(stamps, stamp_bytes(bytes));
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
            free_stamps(stamps[a->index], a->bytes);
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
