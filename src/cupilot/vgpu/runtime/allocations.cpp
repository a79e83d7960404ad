// Device memory: buffers, and what is known of each of their bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "host_memory.h"
#include "marks.h"
#include "wire.h"

// Large pages spare the host's address translation; of buffers that are larger still, kernels touch only parts.
constexpr u64 LARGE_PAGE = 2 << 20, LARGEST_WHOLE = 512 << 20;

// Where nothing else is put, so that no address of host code in another process can be that of a buffer.
void* lazy_pages(u64 bytes) {
    static std::atomic<u64> next{wire::DEVICE_MEMORY};
    u64 wish = next.fetch_add((bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
    void* where = wish < wire::DEVICE_END && bytes < wire::DEVICE_END - wish ? (void*)wish : nullptr;
    void* p = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (bytes >= 2 * LARGE_PAGE && bytes <= LARGEST_WHOLE) madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

// Memory that host code in another process has as well, at the same address.
struct SharedMemory { bool open = false; u64 used = 0; };
static SharedMemory shared_memory;

bool share_host_memory(int memory) {
    void* p = mmap((void*)wire::SHARED_MEMORY, wire::SHARED_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory, 0);
    shared_memory.open = p == (void*)wire::SHARED_MEMORY;
    return shared_memory.open;
}

static u8* take_shared(u64 bytes) {
    SharedMemory& s = shared_memory;
    if (bytes > wire::SHARED_BYTES - s.used) return nullptr;
    u8* start = (u8*)wire::SHARED_MEMORY + s.used;
    s.used += (bytes + PAGE - 1) / PAGE * PAGE;
    return start;
}

// Pages for buffers and for what is known of them. Small buffers share one: a process has a limited number of mappings,
// and kernels that call malloc would use them up.
struct Arena {
    u64 bytes = 0, used = 0;
    u8* data = nullptr;
    Marks writers, readers;

    Arena(u64 size, bool host) {
        u8* parts = (u8*)lazy_pages(3 * size + 2 * (size / SECTOR));
        u32* launches = (u32*)lazy_pages(2 * (size / PAGE) * sizeof(u32));
        u8* pages = host && shared_memory.open ? take_shared(size) : parts;
        if (!parts || !launches || !pages) return;
        bytes = size, data = pages;
        writers = {parts + 3 * size, parts + size, launches};
        readers = {parts + 3 * size + size / SECTOR, parts + 2 * size, launches + size / PAGE};
        if (size && !host) add_device_region((u64)data, size);
    }
};

static Marks from(const Marks& m, u64 offset) {
    return {m.sectors + offset / SECTOR, m.bytes + offset, m.launches + offset / PAGE};
}

constexpr u64 SMALL = 1 << 20, SHARED_ARENA = 256 << 20, MOST = 1ull << 44;

u64 allocate(u64 bytes, const char* name, bool host) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    if (bytes > MOST) return 0;
    // one unmapped-to-kernels page behind each buffer keeps neighbours apart
    u64 size = ((bytes ? bytes : 1) + PAGE - 1) / PAGE * PAGE + PAGE;
    static Arena shared[2] = {{0, false}, {0, true}};  // what host code may touch lies apart
    Arena& small = shared[host];
    if (size <= SMALL && small.used + size > small.bytes) small = Arena(SHARED_ARENA, host);
    // buffers that all start at the same place of a cache's ways would drive each other out of the host's caches
    constexpr u64 COLOURS = 16;
    Arena own(size <= SMALL ? 0 : size + COLOURS * PAGE, host);
    own.used = e.by_index.size() * 5 % COLOURS * PAGE;
    Arena& arena = size <= SMALL ? small : own;
    if (arena.used + size > arena.bytes) return 0;
    u64 at = arena.used;
    arena.used += size;
    auto* a = new Allocation;
    a->base = (u64)(arena.data + at), a->bytes = bytes, a->name = name ? name : "", a->host = host;
    if (host) a->sides.assign(bytes / SECTOR + 1, 0), e.shares_memory = true;
    a->writers = from(arena.writers, at), a->readers = from(arena.readers, at);
    a->index = (u32)e.by_index.size();
    a->first_line = e.line_count, e.line_count += (u32)(a->bytes / 128) + 1;
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
    if (size + PAGE > SMALL) drop_device_region(a->base);
    if (size) {
        if (a->mapped)  // a file that is repeated is many mappings, of which a process has a limited number
            mmap((void*)a->base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        else
            madvise((void*)a->base, size, a->host && shared_memory.open ? MADV_REMOVE : MADV_DONTNEED);
        madvise(a->writers.bytes, size, MADV_DONTNEED);
        madvise(a->readers.bytes, size, MADV_DONTNEED);
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
        a->all_written = a->filled = true;
    else if (bytes) {
        bytes = std::min(bytes, a->bytes - offset);
        fill(a->writers, offset, bytes, WRITTEN);
        for (u64 page = offset / PAGE; page <= (offset + bytes - 1) / PAGE; page++) a->writers.launches[page] = BY_HOST;
    }
}

bool is_left_over(u64 address, u64 bytes) {
    Allocation* a = find_allocation(address);
    return a && a->left_over && !a->all_written && !every(a->writers, address - a->base, bytes, marked_written);
}

u64 allocate_given(u64 bytes, const char* name) {
    u64 address = allocate(bytes, name);
    mark_written(address, bytes);
    if (Allocation* a = find_allocation(address)) a->given = true;
    return address;
}

// Whether a variable has its initial content, as counters have that every call sets back.
static bool is_as_at_first(const Allocation* a) {
    Opened opened;
    const u8* now = (const u8*)a->base;
    u64 kept = a->first.size();
    return !memcmp(now, a->first.data(), kept) && std::all_of(now + kept, now + a->bytes, [](u8 b) { return !b; });
}

// What earlier calls stored gets a clean slate, so that this call's stores show. Only buffers that outlive a call are
// looked at, and only where they were written. Of a buffer that was written in part, it is forgotten which part that
// was: reading the rest is no finding any more.
void begin_call() {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    for (Allocation* a : e.allocations) {
        a->filled = a->partial = false, a->store_launches = 0;
        if (a->host) forget_sides(a);
        if (a->freed || !a->stored) continue;
        a->stored = false;
        bool whole = true;
        const u64 pages = (a->bytes + PAGE - 1) / PAGE;
        for (u64 page = 0; page < pages; page++) {
            u64 at = page * PAGE, bytes = std::min(PAGE, a->bytes - at);
            whole = whole && a->writers.launches[page] && every(a->writers, at, bytes, marked_written);
            if (!a->writers.launches[page]) continue;
            fill(a->writers, at, PAGE, NEVER);
            a->writers.launches[page] = 0;
        }
        // what host code may write by itself is not known to be old
        if (a->given || a->host || (a->variable && is_as_at_first(a)))
            a->all_written |= whole, a->sampled |= !a->all_written;
        else
            a->left_over = true, a->all_written = a->sampled = false;
    }
}

// Stretches of elements that were completely stored to in this call, as pairs of the first one's number and how many they
// are. Gives how many stretches there are; the first `capacity` are put down.
struct Stretches {
    u64 capacity, *out, count = 0, first = 0, end = 0;

    void add(u64 at, u64 more) {
        if (at != end || first == end) close(), first = at;
        end = at + more;
    }
    void close() {
        if (first == end) return;
        if (count < capacity) out[2 * count] = first, out[2 * count + 1] = end - first;
        count++, first = end;
    }
};

extern "C" u64 vgc_stored_runs(u64 address, u64 elements, u64 item, u64 capacity, u64* out) {
    Allocation* a = find_allocation(address);
    if (!a || a->freed) return 0;
    const u64 start = address - a->base;
    elements = std::min(elements, (a->bytes - start) / item);
    Stretches found{capacity, out};
    if (a->filled && !a->sampled) {  // of a sampled launch only what it stored has its final value
        found.add(0, elements), found.close();
        return found.count;
    }
    const u64 in_sector = start % SECTOR == 0 && SECTOR % item == 0 ? SECTOR / item : 0;
    for (u64 i = 0; i < elements;) {
        u64 offset = start + i * item, page = offset / PAGE;
        if (!a->writers.launches[page]) {  // nobody wrote to this page
            i = ((page + 1) * PAGE - start + item - 1) / item;
            continue;
        }
        u8 state = in_sector && i % in_sector == 0 && i + in_sector <= elements ? sector_state(a->writers, offset / SECTOR) : MIXED;
        u64 together = state == MIXED ? 1 : in_sector;
        if (together > 1 ? marked_written(&state, 1) : every(a->writers, offset, item, marked_written)) found.add(i, together);
        i += together;
    }
    found.close();
    return found.count;
}

// Whether anything was stored to a buffer in this call.
extern "C" int vgc_stored(u64 address) {
    Allocation* a = find_allocation(address);
    return a && a->stored;
}

// How many launches of this call stored to a buffer: what a single one stored is final.
extern "C" u32 vgc_store_launches(u64 address) {
    Allocation* a = find_allocation(address);
    return a ? a->store_launches : 0;
}

constexpr u64 PIECES = 16;  // a piece is a so many-th of a file

// Where in a file of so many pages a piece of it begins that memory shows (cupilot/arrays.py).
static u64 place_of_piece(u64 key, u64 number, u64 pages, u64 piece) {
    u64 z = key + (number + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % (pages - piece + 1) * PAGE;
}

// A buffer backed by a file: pages are read when they are touched, and changes stay private. Of a file that is shorter
// than the buffer, pieces are shown in an order that its last page tells; its length must then be one of whole pages.
extern "C" u64 vgc_map_file(const char* path, u64 bytes) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    struct stat known{};
    u64 length = fstat(file, &known) ? 0 : (u64)known.st_size;
    bool fits = length >= bytes || (length >= 2 * PAGE && length % PAGE == 0), whole = length >= bytes;
    u64 pages = whole ? 0 : length / PAGE - 1, step = whole ? bytes : std::max<u64>(1, pages / PIECES) * PAGE, key = 0;
    if (fits && !whole && pread(file, &key, sizeof key, (off_t)(length - PAGE)) != sizeof key) fits = false;
    u64 address = fits ? allocate(bytes, "argument") : 0;
    Opened opened;
    for (u64 at = 0, number = 0; address && at < bytes; at += step, number++) {
        u64 place = whole ? 0 : place_of_piece(key, number, pages, step / PAGE);
        void* p = mmap((void*)(address + at), std::min(step, bytes - at), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, (off_t)place);
        if (p == MAP_FAILED) release(address), address = 0;
    }
    close(file);
    Allocation* a = address ? find_allocation(address) : nullptr;
    if (a) a->all_written = a->filled = a->mapped = a->given = true;
    return address;
}
