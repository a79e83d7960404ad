// Device memory, and every access that kernels make to it: checked, counted, cached, then moved.
#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine.h"

static void* lazy_pages(u64 bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

u64 allocate(u64 bytes, const char* name) {
    Engine& e = engine();
    std::lock_guard<std::mutex> guard(e.mutex);
    // one unmapped-to-kernels page behind each buffer keeps neighbours apart
    u64 size = ((bytes ? bytes : 1) + 4095) / 4096 * 4096 + 4096;
    void* p = lazy_pages(size);
    void* bits = lazy_pages(size / 8 + 64);
    if (!p || !bits) return 0;
    auto* a = new Allocation;
    a->base = (u64)p, a->bytes = bytes, a->written = (u8*)bits, a->name = name ? name : "";
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
    u64 size = (a->bytes + 4095) / 4096 * 4096;
    if (size) madvise((void*)a->base, size, MADV_DONTNEED);
    return true;
}

Allocation* find_allocation(u64 address) {
    auto& all = engine().allocations;
    auto it = std::upper_bound(all.begin(), all.end(), address, [](u64 x, Allocation* a) { return x < a->base; });
    if (it == all.begin()) return nullptr;
    Allocation* a = *--it;
    return address < a->base + std::max<u64>(a->bytes, 1) ? a : nullptr;
}

// The allocation an address is closest to, for messages.
static Allocation* nearest_allocation(u64 address) {
    Allocation* best = nullptr;
    u64 distance = ~0ull;
    for (Allocation* a : engine().allocations) {
        u64 d = address < a->base ? a->base - address : address - a->base >= a->bytes ? address - a->base - a->bytes + 1 : 0;
        if (d < distance) distance = d, best = a;
    }
    return best;
}

// --- written bits ---------------------------------------------------------------------------

static inline void set_bits(u8* bits, u64 from, u64 count) {
    while (count && (from & 7)) {
        u32 n = (u32)std::min<u64>(count, 8 - (from & 7));
        __atomic_fetch_or(bits + from / 8, (u8)(((1u << n) - 1) << (from & 7)), __ATOMIC_RELAXED);
        from += n, count -= n;
    }
    if (count >= 8) {
        memset(bits + from / 8, 0xff, count / 8);
        from += count & ~7ull, count &= 7;
    }
    if (count) __atomic_fetch_or(bits + from / 8, (u8)((1u << count) - 1), __ATOMIC_RELAXED);
}

static inline bool test_bits(const u8* bits, u64 from, u64 count) {
    for (; count && (from & 7); from++, count--)
        if (!(bits[from / 8] >> (from & 7) & 1)) return false;
    for (; count >= 64; from += 64, count -= 64)
        if (*(const u64*)(bits + from / 8) != ~0ull) return false;
    for (; count >= 8; from += 8, count -= 8)
        if (bits[from / 8] != 0xff) return false;
    for (; count; from++, count--)
        if (!(bits[from / 8] >> (from & 7) & 1)) return false;
    return true;
}

void mark_written(u64 address, u64 bytes) {
    Allocation* a = find_allocation(address);
    if (!a) return;
    a->stored = true;
    if (address == a->base && bytes >= a->bytes)
        a->all_written = true;
    else
        set_bits(a->written, address - a->base, std::min(bytes, a->bytes - (address - a->base)));
}

// How many elements were completely stored to; the positions of the first `capacity` are put down.
extern "C" u64 vgc_stored_elements(u64 address, u64 elements, u64 item, u64 capacity, u64* out) {
    Allocation* a = find_allocation(address);
    if (!a || a->all_written) return a ? elements : 0;
    u64 found = 0, start = address - a->base;
    for (u64 i = 0; i < elements; i++) {
        u64 bit = start + i * item;
        while (bit % 64 == 0 && 64 % item == 0 && i + 64 / item <= elements) {  // 64 bytes at a time
            u64 word = *(const u64*)(a->written + bit / 8);
            if (word && word != ~0ull) break;
            if (word)
                for (u64 n = 0; n < 64 / item; n++, found++)
                    if (found < capacity) out[found] = i + n;
            i += 64 / item, bit += 64;
        }
        if (i < elements && test_bits(a->written, bit, item)) {
            if (found < capacity) out[found] = i;
            found++;
        }
    }
    return found;
}

// Whether kernels stored to a buffer at all.
extern "C" u32 vgc_stored(u64 address) {
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

// --- caches ---------------------------------------------------------------------------------

void Cache::resize(u64 bytes, u32 ways) {
    associativity_ = ways;
    sets_ = (u32)std::max<u64>(1, bytes / 128 / ways);
    ways_.assign((size_t)sets_ * ways, Way{~0ull, 0, 0});
    clock_ = 0;
}

void Cache::clear() {
    std::fill(ways_.begin(), ways_.end(), Way{~0ull, 0, 0});
    clock_ = 0;
}

u32 Cache::touch(u64 line, u32 sectors, bool allocate) {
    // a multiplicative hash spreads power-of-two strides, as the hardware's does
    u32 hash = (u32)((line * 0x9E3779B97F4A7C15ull) >> 32);
    Way* set = &ways_[(size_t)(((u64)hash * sets_) >> 32) * associativity_];
    Way* oldest = set;
    for (Way* way = set; way != set + associativity_; way++) {
        if (way->line == line) {
            u32 missing = sectors & ~way->sectors;
            way->sectors |= allocate ? sectors : 0;
            way->stamp = ++clock_;
            return missing;
        }
        if (way->stamp < oldest->stamp) oldest = way;
    }
    if (allocate) *oldest = Way{line, sectors, ++clock_};
    return sectors;
}

static void count_unique(Context* c, Allocation* a, u64 sector, bool store) {
    if (c->stamps.size() <= a->index) c->stamps.resize(engine().by_index.size(), nullptr);
    u64 sectors = a->bytes / 32 + 2;
    u32*& stamps = c->stamps[a->index];
    if (!stamps) stamps = (u32*)lazy_pages(2 * sectors * sizeof(u32));
    u32& seen = stamps[(store ? sectors : 0) + sector - a->base / 32];
    if (seen == c->stamp) return;
    seen = c->stamp;
    (store ? c->traffic[a->index].unique_write : c->traffic[a->index].unique_read)++;
}

static void pass_caches(Context* c, Site& s, Allocation* a, u64 first_line, bool store) {
    if (c->traffic.size() <= a->index) c->traffic.resize(engine().by_index.size());
    Traffic& t = c->traffic[a->index];
    for (u32 i = 0; i < s.lines; i++) {
        u64 line = first_line + (i64)s.line_delta[i];
        u32 sectors = s.line_sectors[i];
        // L1 is written through and does not allocate on stores
        u32 onward = c->l1.touch(line, sectors, !store);
        if (store) onward = sectors;
        if (!onward) continue;
        (store ? t.l2_write : t.l2_read) += __builtin_popcount(onward);
        u32 missing = c->l2.touch(line, onward, true);
        (store ? t.miss_write : t.miss_read) += __builtin_popcount(missing);
        for (u32 bits = missing; bits; bits &= bits - 1) count_unique(c, a, line * 4 + __builtin_ctz(bits), store);
    }
}

// --- patterns -------------------------------------------------------------------------------

// What stands for the alignment of a pattern in shared memory: a generic access may be to either space.
constexpr u32 IN_SHARED = FULL;

template <class Address>
static inline bool same_pattern(const Site& s, const Address* address, u32 mask, Address first, u32 alignment) {
    if (mask != s.mask || alignment != s.alignment || !s.valid) return false;
    u64 difference = 0;
    for (int i = 0; i < LANES; i++) difference |= ((u64)(i64)(address[i] - first) ^ (u64)s.delta[i]) & s.lane[i];
    return difference == 0;
}

template <>
inline bool same_pattern<u32>(const Site& s, const u32* address, u32 mask, u32 first, u32 alignment) {
    if (mask != s.mask || alignment != s.alignment || !s.valid) return false;
    u64 difference = 0;
    for (int i = 0; i < LANES; i++) difference |= ((u64)(i64)(i32)(address[i] - first) ^ (u64)s.delta[i]) & s.lane[i];
    return difference == 0;
}

template <class Address>
static void learn_lanes(Site& s, const Address* address, u32 mask, u32 bytes) {
    Address first = address[__builtin_ctz(mask)];
    s.mask = mask, s.valid = 1, s.low = s.high = 0, s.misaligned = 0;
    bool contiguous = mask == FULL, broadcast = mask == FULL;
    for (int i = 0; i < LANES; i++) {
        bool in = mask >> i & 1;
        i64 d = sizeof(Address) == 4 ? (i64)(i32)(address[i] - first) : (i64)(address[i] - first);
        s.lane[i] = in ? ~0ull : 0;
        s.delta[i] = in ? d : 0;
        if (!in) continue;
        s.low = std::min(s.low, d), s.high = std::max(s.high, d);
        if (address[i] % bytes) s.misaligned |= 1u << i;
        contiguous &= d == (i64)i * bytes, broadcast &= d == 0;
    }
    s.kind = contiguous ? CONTIGUOUS : broadcast ? BROADCAST : GENERAL;
}

// Passes through the 32 four-byte banks: 8-byte accesses go by half warps, 16-byte ones by quarters.
template <class Address>
static u32 bank_passes(const Address* address, u32 mask, u32 bytes) {
    u32 group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8, passes = 0;
    for (u32 start = 0; start < LANES; start += group) {
        u64 words[LANES][32];
        u32 counts[32] = {}, worst = 0;
        for (u32 i = start; i < start + group; i++) {
            if (!(mask >> i & 1)) continue;
            for (u64 word = address[i] / 4; word <= (address[i] + bytes - 1) / 4; word++) {
                u32 bank = word & 31, n = 0;
                while (n < counts[bank] && words[n][bank] != word) n++;
                if (n == counts[bank] && n < LANES) words[counts[bank]++][bank] = word;
                worst = std::max(worst, counts[bank]);
            }
        }
        passes += worst;
    }
    return passes;
}

static void learn_shared(Site& s, const u32* address, u32 mask, u32 bytes) {
    learn_lanes(s, address, mask, bytes);
    s.alignment = IN_SHARED, s.sectors = s.lines = 0;
    s.wavefronts = bank_passes(address, mask, bytes);
}

// Lines and sectors of a global request (PTX widths; 32-byte sectors in 128-byte lines).
static void learn_global(Site& s, const u64* address, u32 mask, u32 bytes) {
    learn_lanes(s, address, mask, bytes);
    u64 first = address[__builtin_ctz(mask)];
    s.alignment = first & 127, s.lines = 0, s.sectors = 0;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u64 a = address[__builtin_ctz(bits)];
        for (u64 sector = a / 32; sector <= (a + bytes - 1) / 32; sector++) {
            i32 line = (i32)((i64)(sector / 4) - (i64)(first / 128));
            u32 n = 0;
            while (n < s.lines && s.line_delta[n] != line) n++;
            if (n == s.lines) s.line_delta[n] = line, s.line_sectors[n] = 0, s.lines++;
            s.line_sectors[n] |= 1u << (sector & 3);
        }
    }
    for (u32 n = 0; n < s.lines; n++) s.sectors += __builtin_popcount(s.line_sectors[n]);
    // data comes from the same banks as shared memory's; tags are looked up four lines at a time
    s.wavefronts = std::max(bank_passes(address, mask, bytes), (s.lines + 3) / 4);
}

// --- moving data ----------------------------------------------------------------------------

// Lane-wise values of V elements each, to and from one array per element.
template <int W, int V, bool STORE, class Where>
static inline void move_lanes(u32 mask, void* data, Where where) {
    u8* out = (u8*)data;
    if constexpr (W == 4 && V == 4 && !STORE) {
        if (mask == FULL) {
            for (int i = 0; i < LANES; i += 4) {
                __m128 a = _mm_loadu_ps((float*)where(i)), b = _mm_loadu_ps((float*)where(i + 1));
                __m128 c = _mm_loadu_ps((float*)where(i + 2)), d = _mm_loadu_ps((float*)where(i + 3));
                _MM_TRANSPOSE4_PS(a, b, c, d);
                float* o = (float*)data + i;
                _mm_store_ps(o, a), _mm_store_ps(o + 32, b), _mm_store_ps(o + 64, c), _mm_store_ps(o + 96, d);
            }
            return;
        }
    }
    for (u32 bits = mask; bits; bits &= bits - 1) {
        int i = __builtin_ctz(bits);
        u8* p = (u8*)where(i);
        for (int v = 0; v < V; v++) {
            if constexpr (STORE)
                memcpy(p + v * W, out + (v * LANES + i) * W, W);
            else
                memcpy(out + (v * LANES + i) * W, p + v * W, W);
        }
    }
}

template <int W, int V, bool STORE, class Where>
static inline void move_pattern(const Site& s, void* data, Where where) {
    if (V == 1 && s.kind == CONTIGUOUS) {
        if (STORE)
            memcpy((void*)where(0), data, W * LANES);
        else
            memcpy(data, (void*)where(0), W * LANES);
        return;
    }
    if (!STORE && s.kind == BROADCAST) {
        u8* p = (u8*)where(0);
        for (int v = 0; v < V; v++)
            for (int i = 0; i < LANES; i++) memcpy((u8*)data + (v * LANES + i) * W, p + v * W, W);
        return;
    }
    move_lanes<W, V, STORE>(s.mask, data, where);
}

// --- findings -------------------------------------------------------------------------------

static void access_finding(Context* c, Warp* w, u32 site, u32 lane, u64 address, u32 bytes, bool store, const char* space,
                           const char* kind, const std::string& near) {
    char text[512];
    snprintf(text, sizeof text, "%s %s of %u bytes at 0x%llx%s%s", kind, store ? "write" : "read", bytes,
             (unsigned long long)address, space, near.c_str());
    report(c->launch, kind, std::string(text) + place(c, w, c->launch->kernel->sites[site].line, lane));
}

static std::string near_text(u64 address) {
    Allocation* a = nearest_allocation(address);
    if (!a) return "";
    char text[256];
    i64 past = (i64)(address - a->base) - (i64)a->bytes;
    const char* freed = a->freed ? "freed " : "";
    if (past >= 0)
        snprintf(text, sizeof text, ", %lld bytes after the end of a %s%llu-byte buffer", (long long)past, freed,
                 (unsigned long long)a->bytes);
    else if (address >= a->base)
        snprintf(text, sizeof text, ", %lld bytes into a %s%llu-byte buffer", (long long)(address - a->base), freed,
                 (unsigned long long)a->bytes);
    else
        snprintf(text, sizeof text, ", %lld bytes before a %s%llu-byte buffer", (long long)(a->base - address), freed,
                 (unsigned long long)a->bytes);
    return text;
}

static void check_written(Context* c, Warp* w, u32 site, Site& s, Allocation* a, const u64* address, u32 bytes) {
    if (s.kind == CONTIGUOUS && test_bits(a->written, address[0] - a->base, (u64)bytes * LANES)) return;
    for (u32 bits = s.mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        if (test_bits(a->written, address[i] - a->base, bytes)) continue;
        access_finding(c, w, site, i, address[i], bytes, false, "", "uninitialized", near_text(address[i]));
        return;
    }
}

// Lanes that reach different buffers: each buffer's part passes the caches and is checked on its own.
static void pass_parts(Context* c, Warp* w, u32 site, const u64* address, u32 mask, u32 bytes, bool store) {
    while (mask) {
        u64 first = address[__builtin_ctz(mask)];
        Allocation* a = find_allocation(first);
        u32 part = 0;
        for (u32 bits = mask; bits; bits &= bits - 1) {
            u64 distance = address[__builtin_ctz(bits)] - a->base;
            if (distance < a->bytes) part |= bits & -bits;
        }
        Site s;
        learn_global(s, address, part, bytes);
        pass_caches(c, s, a, first / 128, store);
        if (!store && !a->all_written) check_written(c, w, site, s, a, address, bytes);
        mask &= ~part;
    }
}

// Some lane is out of bounds or misaligned, or they reach several buffers: report, then serve the lanes that are fine.
template <int W, int V, bool STORE>
static u32 careful_global(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    u32 fine = 0;
    bool told = false;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        Allocation* a = find_allocation(address[i]);
        bool inside = a && !a->freed && address[i] + W * V <= a->base + a->bytes;
        bool aligned = address[i] % (W * V) == 0;
        if (inside && aligned) {
            fine |= 1u << i;
            if (STORE) a->stored = true, set_bits(a->written, address[i] - a->base, W * V);
        } else if (!told) {
            told = true;
            const char* kind = a && a->freed ? "use-after-free" : inside ? "misaligned" : "out-of-bounds";
            access_finding(c, w, site, i, address[i], W * V, STORE, "", kind, near_text(address[i]));
        }
        if (!STORE && !(inside && aligned))
            for (int v = 0; v < V; v++) memset((u8*)data + (v * LANES + i) * W, 0, W);
    }
    move_lanes<W, V, STORE>(fine, data, [&](int i) { return address[i]; });
    return fine;
}

// --- accesses -------------------------------------------------------------------------------

template <int W, int V, bool STORE>
static inline void global_access(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u64 first = address[__builtin_ctz(mask)];
    if (!same_pattern<u64>(s, address, mask, first, first & 127)) learn_global(s, address, mask, BYTES);
    s.requests++, s.sector_total += s.sectors, s.wavefront_total += s.wavefronts;
    s.lane_bytes += (u64)__builtin_popcount(mask) * BYTES;
    u64 low = first + s.low, high = first + s.high + BYTES;
    Allocation* a = s.allocation;
    if (!a || low < a->base || high > a->base + a->bytes || a->freed) a = s.allocation = find_allocation(low);
    if (!a || a->freed || high > a->base + a->bytes || s.misaligned) {
        u32 fine = careful_global<W, V, STORE>(c, w, site, address, mask, data);
        pass_parts(c, w, site, address, fine, BYTES, STORE);
        return;
    }
    pass_caches(c, s, a, first / 128, STORE);
    if (STORE) {
        a->stored = true;
        if (!a->all_written) {
            if (s.kind == CONTIGUOUS)
                set_bits(a->written, first - a->base, (u64)BYTES * LANES);
            else
                for (u32 bits = mask; bits; bits &= bits - 1)
                    set_bits(a->written, address[__builtin_ctz(bits)] - a->base, BYTES);
        }
    } else if (!a->all_written) {
        check_written(c, w, site, s, a, address, BYTES);
    }
    move_pattern<W, V, STORE>(s, data, [&](int i) { return address[i]; });
}

template <int W, int V, bool STORE>
static inline void shared_access(Context* c, Warp* w, u32 site, const u32* address, u32 mask, void* data) {
    if (!mask) return;
    constexpr u32 BYTES = W * V;
    Site& s = c->sites[site];
    u32 first = address[__builtin_ctz(mask)];
    if (!same_pattern<u32>(s, address, mask, first, IN_SHARED)) learn_shared(s, address, mask, BYTES);
    s.requests++, s.wavefront_total += s.wavefronts, s.lane_bytes += (u64)__builtin_popcount(mask) * BYTES;
    i64 low = (i64)first + s.low, high = (i64)first + s.high + BYTES;
    bool aligned = first % BYTES == 0 && !s.misaligned;
    if (low >= 0 && high <= (i64)c->shared_bytes && aligned) {
        move_pattern<W, V, STORE>(s, data, [&](int i) { return c->shared + address[i]; });
        return;
    }
    u32 fine = 0;
    bool told = false;
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        bool inside = (u64)address[i] + BYTES <= c->shared_bytes;
        if (inside && address[i] % BYTES == 0) {
            fine |= 1u << i;
            continue;
        }
        if (!STORE)
            for (int v = 0; v < V; v++) memset((u8*)data + (v * LANES + i) * W, 0, W);
        if (told) continue;
        told = true;
        char near[96];
        snprintf(near, sizeof near, "; the block has %llu bytes", (unsigned long long)c->shared_bytes);
        access_finding(c, w, site, i, address[i], BYTES, STORE, " of shared memory", inside ? "misaligned" : "out-of-bounds",
                       near);
    }
    move_lanes<W, V, STORE>(fine, data, [&](int i) { return c->shared + address[i]; });
}

// Generic addresses: a window above host addresses is shared memory.
template <int W, int V, bool STORE>
static void generic_access(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    u32 shared = 0;
    u32 inner[LANES] = {};
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 i = __builtin_ctz(bits);
        if (address[i] >> 56 == 1) shared |= 1u << i, inner[i] = (u32)address[i];
    }
    if (shared) shared_access<W, V, STORE>(c, w, site, inner, shared, data);
    if (mask & ~shared) global_access<W, V, STORE>(c, w, site, address, mask & ~shared, data);
}

// Constant memory is cached per SM and broadcast; it is checked but not counted as global traffic.
template <int W, int V>
static void const_access(Context* c, Warp* w, u32 site, const u64* address, u32 mask, void* data) {
    careful_global<W, V, false>(c, w, site, address, mask, data);
}

#define ARGS(T) Context *c, Warp *w, u32 site, const T *address, u32 mask, void *data
#define FORM(W, V)                                                                                                       \
    extern "C" void vg_ld_global_##W##_##V(ARGS(u64)) { global_access<W, V, false>(c, w, site, address, mask, data); }  \
    extern "C" void vg_st_global_##W##_##V(ARGS(u64)) { global_access<W, V, true>(c, w, site, address, mask, data); }   \
    extern "C" void vg_ld_shared_##W##_##V(ARGS(u32)) { shared_access<W, V, false>(c, w, site, address, mask, data); }  \
    extern "C" void vg_st_shared_##W##_##V(ARGS(u32)) { shared_access<W, V, true>(c, w, site, address, mask, data); }   \
    extern "C" void vg_ld_generic_##W##_##V(ARGS(u64)) { generic_access<W, V, false>(c, w, site, address, mask, data); } \
    extern "C" void vg_st_generic_##W##_##V(ARGS(u64)) { generic_access<W, V, true>(c, w, site, address, mask, data); }  \
    extern "C" void vg_ld_const_##W##_##V(ARGS(u64)) { const_access<W, V>(c, w, site, address, mask, data); }

FORM(1, 1) FORM(1, 2) FORM(1, 4) FORM(2, 1) FORM(2, 2) FORM(2, 4)
FORM(4, 1) FORM(4, 2) FORM(4, 4) FORM(8, 1) FORM(8, 2)

// --- other instructions ---------------------------------------------------------------------

static bool in_shared(Space space, u64 address) {
    return space == Space::SHARED || (space == Space::GENERIC && address >> 56 == 1);
}

u8* reach(Context* c, Warp* w, u32 site, u32 lane, Space space, u64 address, u32 bytes, Use use) {
    bool store = use != Use::READ;
    if (in_shared(space, address)) {
        u32 inner = (u32)address;
        bool inside = (u64)inner + bytes <= c->shared_bytes;
        if (inside && inner % bytes == 0) return c->shared + inner;
        char near[96];
        snprintf(near, sizeof near, "; the block has %llu bytes", (unsigned long long)c->shared_bytes);
        access_finding(c, w, site, lane, inner, bytes, store, " of shared memory", inside ? "misaligned" : "out-of-bounds",
                       near);
        return nullptr;
    }
    Allocation* a = find_allocation(address);
    bool inside = a && !a->freed && address + bytes <= a->base + a->bytes;
    if (!inside || address % bytes) {
        const char* kind = a && a->freed ? "use-after-free" : inside ? "misaligned" : "out-of-bounds";
        access_finding(c, w, site, lane, address, bytes, store, "", kind, near_text(address));
        return nullptr;
    }
    if (use != Use::WRITE && !a->all_written && !test_bits(a->written, address - a->base, bytes)) {
        access_finding(c, w, site, lane, address, bytes, false, "", "uninitialized", near_text(address));
    }
    if (store) a->stored = true, set_bits(a->written, address - a->base, bytes);
    return (u8*)address;
}

void count_request(Context* c, u32 site, Space space, const u64* address, u32 mask, u32 bytes, bool store) {
    if (!mask) return;
    Site& total = c->sites[site];
    Site s;
    u64 first = address[__builtin_ctz(mask)];
    if (in_shared(space, first)) {
        total.requests++, total.wavefront_total += bank_passes(address, mask, bytes);
    } else {
        learn_global(s, address, mask, bytes);
        total.requests++, total.sector_total += s.sectors, total.wavefront_total += s.wavefronts;
        if (Allocation* a = find_allocation(first)) pass_caches(c, s, a, first / 128, store);
    }
    total.lane_bytes += (u64)__builtin_popcount(mask) * bytes;
}
