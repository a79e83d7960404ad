// What translated kernels, the scheduler and the CUDA runtime share.
// Offsets of Warp and Context are mirrored in cupilot/vgpu/layout.py.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr int LANES = 32;
constexpr u32 FULL = 0xffffffffu;

// --- memory ---------------------------------------------------------------------------------

// What is known of a byte of memory, beside its value. Marks from MARK on name who wrote it in the
// current interval: the warp (shared memory, since the last barrier) or the block (global memory, in this launch).
// Of a whole sector: MIXED when its bytes differ, BUSY while it becomes that.
enum ByteState : u8 { NEVER = 0, WRITTEN = 1, MARK = 2, MIXED = 252, BUSY = 253, PENDING = 254, MANY = 255 };

// A state for each byte of a buffer (see marks.h).
struct Marks {
    u8* sectors = nullptr;    // by 32 bytes: what all of them are, or MIXED
    u8* bytes = nullptr;      // by byte, where the sector is MIXED
    u32* launches = nullptr;  // by page: the launch that the marks are of; older ones say nothing about who it was
};

// One device buffer. Device addresses are host addresses; pages are backed on first touch.
struct Allocation {
    u64 base = 0, bytes = 0;
    bool freed = false;
    bool stored = false;       // in this call, by a kernel, a fill or a copy
    bool filled = false;       // in this call, as a whole: by a fill or a copy, or because it was given
    bool host = false;         // pinned or managed: host code may touch it
    bool managed = false;      // its pages go to whoever touches them
    bool moved = false;        // of managed memory: its pages are on the device
    bool mapped = false;       // a file's content
    bool given = false;        // its content is from whoever runs the machine
    bool variable = false;     // of a module; `first` is its initial content, zeros but for that
    bool left_over = false;    // written by earlier calls: what this call has not written it must not read
    bool all_written = false;  // spares the per-byte look-up for inputs
    bool watched = false;      // by blocks that may wait for what is put there
    bool sampled = false;      // written by some blocks of a launch: what is missing says nothing about the kernel
    bool partial = false;      // the same in this call: what is missing is not known, nor what is computed from it
    Marks writers;             // a ByteState or the mark of the block that wrote the byte
    Marks readers;             // the mark of the block that read the byte, or MANY
    u32 store_launch = 0;      // the last launch that stored here
    u32 store_launches = 0;    // how many did in this call
    u32 index = 0;
    u32 first_line = 0;        // in the modelled caches: where the host put a buffer must not matter
    std::string name, first;
    bool told = false;         // that an earlier call's work was read here
    std::vector<u8> sides;     // of host memory, by sector: who wrote and read it (host_memory.h)
    std::vector<u8> seen;      // its content when the device last stopped working
};
constexpr u64 PAGE = 4096;
constexpr u32 BY_HOST = 0xffffffffu;  // in place of a launch's number

// Sectors (32 bytes) that blocks moved, by allocation; the L2 model turns them into DRAM traffic.
struct Traffic {
    u64 l2_read = 0, l2_write = 0;          // L1 -> L2
    u64 miss_read = 0, miss_write = 0;      // out of a block's share of L2
    u64 unique_read = 0, unique_write = 0;  // distinct within a block, summed over blocks
};

// The first and the last line of an allocation that a block read, past its L1.
struct Extent {
    u64 block, allocation, first, last;
};

// A set-associative cache of 128-byte lines with four sectors each; the ways of a set are kept in order of use.
class Cache {
  public:
    // Sectors that were not there; and of the line that had to make room, if one had to, what it held.
    struct Touched { u32 missing; bool crowded; u32 lost_line; u32 lost; };

    void resize(u64 bytes, u32 ways);
    void clear();
    Touched touch(u64 line, u32 sectors, bool store, bool allocate);

  private:
    // Bits of `held`: a sector that a load brought in, and four further up one that a store did.
    struct alignas(64) Set { u32 line[8]; u8 held[8]; u8 roomy; };  // roomy: nothing had to make room
    u32 set_of(u32 line) const;

    std::vector<Set> sets_;
    u32 count_ = 0, inverse_ = 0;  // sets, and 2^32 over their number
    u32 ways_ = 0;                 // of a set that are in use, eight at most
    u64 held_ = 0;                 // the bits of `held` that they have
};

// Sectors that a block missed in its share of L2 and lost again; only they can be missed for a second time.
class PastMisses {
  public:
    void clear();
    void add(u32 line, u32 sectors);
    u32 of(u32 line) const;

  private:
    static constexpr u32 LINES = 16, NONE = 0xffffffffu;
    struct Region { u32 number; u8 sectors[LINES]; };
    Region* place(u32 number);
    void grow();
    std::vector<Region> regions_;  // a hash table
    std::vector<u32> used_;
};

// --- one memory instruction -----------------------------------------------------------------

enum Kind : u32 { GENERAL, CONTIGUOUS, BROADCAST };

// Bytes that a request covers, relative to its first lane's address.
struct Run { i32 delta; u32 bytes; };

// What a memory instruction did beside requests, sectors, wavefronts and bytes. Added up pattern by pattern (`add_up`),
// so that a request costs nothing. Mirrored in cupilot/vgpu/sites.py.
struct Counted {
    u64 ideal = 0;         // wavefronts that the requests would need without bank conflicts
    u64 same_address = 0;  // lanes at each request's busiest address, of atomics
    // what a generic instruction did in shared memory
    u64 shared_requests = 0, shared_wavefronts = 0, shared_bytes = 0, shared_ideal = 0;
    // wavefronts of the aligned accesses of 8 and 16 bytes that the lanes' accesses are parts of
    u64 wide_wavefronts[2] = {}, wide_ideal[2] = {};
};
// Bits of SiteInfo::wanted: what is worth a look at every new pattern.
enum Wanted : u32 { WIDE_8 = 1, WIDE_16 = 2, SAME_ADDRESS = 4, WAITS = 8 };

// What is known of a memory instruction; the last pattern of lane addresses is kept, so that a
// request with the same pattern needs one comparison instead of an analysis.
struct Site {
    // the pattern
    u32 mask = 0, valid = 0, in_shared = 0;
    bool relaxed = false;  // volatile and the like: meant to race
    bool even = false;     // all lanes, the same distance from each to the next
    Kind kind = GENERAL;
    i64 low = 0, high = 0;
    u32 misaligned = 0, runs = 0, passes = 0;
    // what was counted
    alignas(64) u64 requests = 0;
    u64 sector_total = 0, wavefront_total = 0, lane_bytes = 0;
    // lines and sectors, for one alignment of the first address
    u32 alignment = FULL, sectors = 0, lines = 0, wavefronts = 0;
    Allocation* allocation = nullptr;
    // to guess what comes next: the first lane's address in the last request and in the block's first one
    u64 last = 0;
    u64 begin = 0, begin_requests = 0;
    i64 block_step = 0;  // from block to block; 0: a block asks for much
    u32 stamp = 0;       // of the block
    alignas(64) i64 delta[LANES];
    alignas(64) i32 short_delta[LANES];
    Run run[LANES];
    i32 line_delta[2 * LANES];
    u8 line_sectors[2 * LANES];
    // the same as one byte per byte from the lowest address on, when that is not far
    u32 cover_vectors = 0;  // of 32 bytes; 0: too far
    alignas(64) u8 cover[512];
    // lanes that share addresses: the different ones, and which of them each lane reads
    u32 different = 0;  // 0: more than 16
    i32 different_delta[16];
    alignas(32) u32 lane_choice[LANES];
    std::vector<Run> group_runs;  // of all loads of a group together
    // what each request of the pattern adds to `counted`, and the counts when it was learned
    u32 wanted = 0, ideal = 0, same_address = 0, wide[2] = {}, wide_ideal[2] = {};
    bool reaches_shared = false;
    u64 known_requests = 0, known_wavefronts = 0, known_bytes = 0;
    Counted counted;
};

// Add what the requests since the last call did to `counted`; before the pattern changes, and at the end.
void add_up(Site& s);
// Field by field, as `add` does it.
template <class Add>
void add_counted(Counted& to, const Counted& from, Add add) {
    add(to.ideal, from.ideal), add(to.same_address, from.same_address);
    add(to.shared_requests, from.shared_requests), add(to.shared_wavefronts, from.shared_wavefronts);
    add(to.shared_bytes, from.shared_bytes), add(to.shared_ideal, from.shared_ideal);
    for (int n = 0; n < 2; n++)
        add(to.wide_wavefronts[n], from.wide_wavefronts[n]), add(to.wide_ideal[n], from.wide_ideal[n]);
}

enum class Space : u32 { GLOBAL, SHARED, GENERIC, LOCAL };
enum class Use : u32 { READ, WRITE, UPDATE };  // UPDATE: atomically

struct SiteInfo {
    u32 line, bytes, store;
    Space space;
    u32 relaxed, wanted;
};

// --- kernels --------------------------------------------------------------------------------

struct Warp;
struct Context;
using KernelFunction = i32 (*)(Warp*, Context*);

struct KernelInfo {
    std::string name;
    u32 id = 0;
    KernelFunction function = nullptr;
    u32 warp_bytes = 0, local_bytes = 0, shared_bytes = 0, param_bytes = 0, max_threads = 0;
    std::vector<u32> param_offsets, param_sizes;
    std::vector<u32> block_instructions, block_lines;
    std::vector<u32> block_cycles;  // of a lone warp's way through each basic block, its waits for memory among them
    std::vector<SiteInfo> sites;
    std::vector<u64> variables;
    bool takes_turns = false;  // lanes that part may go on in any order
    bool allocates = false;    // calls malloc or free, which other host threads must not see half done
    u32 max_dynamic_shared = 48 << 10;
    std::map<u32, std::string> files;  // by line, where it is the same for all code of that line
    std::string error;                 // why it could not be translated, and where
    u32 error_line = 0;
};

struct StackEntry { u32 pc, mask, rpc, frame, saved, pad[3]; };

struct Warp {
    u32 pc, mask, exited, live, rpc, sp;
    i32 fuel;
    u32 barrier, index, barrier_threads, votes, frame, saved, turns, slept, pad;
    u32 tid[3][LANES];
    u32 pad2[16];
    StackEntry stack[1];
};
static_assert(offsetof(Warp, tid) == 64 && offsetof(Warp, stack) == 512);

struct LaunchState;
struct AsyncState;
struct BlockTime;
struct Meetings;

// What a kernel does beside computing and moving data: calls of lanes; nanoseconds of sleep, of all warps and of the
// one with most; time that loops saw pass on a clock, of all blocks and of the one with most. Mirrored in vgpu/aside.py.
struct Aside {
    u64 prints = 0, heap_calls = 0;
    u64 sleep_ns = 0, longest_sleep_ns = 0;
    u64 clock_cycles = 0, longest_clock_cycles = 0, clock_ns = 0, longest_clock_ns = 0;
    u64 host_read_bytes = 0, host_write_bytes = 0;  // of memory that host code sees, each sector once per call
};

// What a block, or several with neighbouring numbers, did: sums, and the most that one of them did.
struct BlockCost {
    u64 block = 0, blocks = 0;                // the number of the first, or of the only one
    u64 work = 0, most_work = 0;              // warp instructions
    u64 path = 0, longest_path = 0;           // cycles of the warp with the longest way
    u64 wavefronts = 0, most_wavefronts = 0;  // of L1 and shared memory
    u64 sectors = 0, most_sectors = 0;        // past L1
    u64 stored_bytes = 0;                     // by lanes, in global memory
    double stands_for = 1;                    // blocks of the grid, each
};

// What one host thread counted.
struct Tally {
    Aside aside;
    std::vector<u64> counts;
    std::vector<Site> sites;
    std::vector<Traffic> traffic;
    std::vector<Extent> running;  // of the block that runs, by allocation
    std::vector<Extent> extents;  // of those that ended and ran alone
    std::vector<u64> critical;    // executions of each basic block, by the warp of each block with the longest way
    std::vector<BlockCost> costs;
};

// One of a block's barriers. Warps arrive as a whole.
struct Barrier {
    u32 arrived = 0, waiting = 0;  // warps, by bit
    u32 threads = 0;               // expected; 0: all that are left
    u32 popc = 0, any = 0, all = 1;         // of the predicates that came with the arrivals
    u32 result_popc = 0, result_any = 0, result_all = 0;
};

// Threads of the running block, by warp and lane, in which an instruction had one kind of fault.
struct Faulty {
    u32 site, fault;
    u32 lanes[LANES];
};

struct Context {
    u8* params;
    u8* shared;
    u64 shared_bytes;
    u32 ctaid[3], nctaid[3], ntid[3], pad;
    u64* counts;  // executions and active lanes of each basic block
    u64* variables;
    u32 dynamic_shared_bytes, sm, sms, pad2;
    u64 workspace;  // of a grid that waits for itself
    // not known to translated code
    Site* sites;
    LaunchState* launch;
    Tally* tally;
    Cache l1, l2;
    PastMisses misses;
    u32 stamp;
    u64 clock;  // advances with every look at it
    u64 seen_cycles, seen_ns;  // what the looks of the running block made of it
    u64 constants[32] = {};    // lines of the constant cache, which outlive a block, in order of use
    Barrier barriers[16];
    u8 block_mark;  // of the running block in global memory
    bool checks;
    // shared memory: by byte, who wrote and read it since the last barrier
    u8 *shared_state, *shared_readers;
    u32 interval_low, interval_high;  // bytes touched since the last barrier
    u32 block_low, block_high;        // and in the whole block
    // local memory: per warp, words of the lanes side by side
    u8* local;
    u64 local_bytes;  // of one thread
    AsyncState* async;  // copies under way; made when the first one is
    BlockTime* time;    // when other blocks wait for it, or it for others (chain.h)
    bool incomplete;    // the block read what blocks that do not run would have written: what it stores is not known
    std::vector<Faulty> faulty;
};
static_assert(offsetof(Context, counts) == 64 && offsetof(Context, variables) == 72);
static_assert(offsetof(Context, sm) == 84 && offsetof(Context, workspace) == 96);

// --- findings -------------------------------------------------------------------------------

constexpr u32 NO_SITE = FULL;
using Triple = std::array<u32, 3>;

// The access of a thread; `address` is an offset in shared and local memory. The buffer is the nearest one of global
// memory, the block's shared memory or the thread's local memory.
struct MemoryAccess {
    Use use = Use::READ;
    Space space = Space::GLOBAL;
    u32 bytes = 0;
    u64 address = 0;
    std::optional<u64> buffer_bytes;
    std::optional<i64> offset;  // in the buffer; negative before it
    bool freed = false;
};

// The access that another one races with, as far as it is known.
struct OtherAccess {
    const char* kind;     // read, write or copy
    const char* missing;  // what would order the two: barrier, fence or wait
    std::optional<Triple> block, thread;
    std::optional<u32> warp;
    u32 line = 0;
};

// Something that a kernel or its host code did and must not do. Given to Python as JSON (findings.cpp).
struct Finding {
    const char* kind = "";
    std::string text;  // what the other fields do not say
    std::string kernel, file;
    u32 line = 0;
    std::optional<Triple> block, thread;
    u64 threads = 0;  // that did the same in this launch
    std::optional<MemoryAccess> access;
    std::optional<OtherAccess> other;
    u32 site = NO_SITE, launch = 0, kernel_id = 0;
};

constexpr u64 SEVERAL = ~0ull;

struct LaunchState {
    KernelInfo* kernel = nullptr;
    u32 grid[3], block[3];
    u32 dynamic_shared = 0;
    u64 blocks = 0, blocks_run = 0, lane_instructions = 0;
    double scale = 1;  // from what was counted to the whole grid
    u64 heaviest = 0;  // warp instructions of the block that had most, among those that ran alone
    u32 resident = 1;
    bool cooperative = false;
    u64 workspace = 0;
    std::vector<u64> counts;
    std::vector<Site> sites;
    std::vector<Traffic> traffic;
    std::vector<Extent> extents;
    std::atomic<bool> incomplete{false};  // some block read what blocks that did not run would have written
    Aside aside;
    std::vector<u32> moved;  // managed buffers whose pages this launch brought to the device
    std::vector<u64> critical;
    std::vector<BlockCost> costs;
    u64 chain_cycles = 0, chain_hops = 0;  // of the longest chain of blocks that wait for each other
    std::string printed;
    u32 number = 0;                // counts launches, from 1
    std::atomic<bool> any_published{false};
    std::atomic<bool> published[256] = {};  // blocks (by mark) whose writes a fence made visible
    std::atomic<u64> block_of[256] = {};    // by mark: 0, or 1 + the block that has it, or SEVERAL
    int error = 0;  // a cudaError_t
    bool stop = false;
    std::mutex mutex;
};

// --- the device -----------------------------------------------------------------------------

struct DeviceInfo {
    char name[64];
    i32 major, minor, sms, clock_khz, threads_per_block, threads_per_sm, blocks_per_sm, registers_per_sm;
    u64 shared_per_block, shared_per_block_optin, shared_per_sm, l1_bytes, l2_bytes, dram_bytes, dram_bytes_per_s;
};

struct Settings {
    u64 sample_budget = 0;  // lane instructions per launch; 0: run every block
    u64 sample_seed = 0;    // of which blocks those are
    u64 handover = 0;       // cycles from one block's store until another one's load that waits for it has it
    double deadline_s = 0;  // steady clock; 0: none
    u32 threads = 1;
    u32 findings_limit = 8;
    bool checks = true;  // initialisation and races; bounds are always checked
    bool cooperative = false;  // the next launch may wait for itself
    bool program = false;  // a whole program: findings do not end its launches
    u64 order = 0;         // seed of the order in which blocks and warps run; 0: by number
};

struct Operation { std::string kind; u64 bytes; u64 before_launch; };

// Of a launch: how many blocks are rare and how many are picked, then the rare ones, their levels and the picked ones.
using RareBlocks = const u64* (*)(u32 kernel, const u32* grid, const u32* block, const u8* params, u64 seed);

struct Engine {
    DeviceInfo device{};
    Settings settings;
    RareBlocks rare_blocks = nullptr;
    std::vector<Allocation*> allocations;  // sorted by address
    std::vector<Allocation*> by_index;
    std::vector<LaunchState*> launches;
    std::vector<Operation> operations;
    std::vector<Finding> findings;
    std::mutex mutex;
    bool timed_out = false;
    u32 launch_count = 0, line_count = 0;
    bool shares_memory = false;  // some buffer is the host's as well
    std::atomic<u32> block_count{0};
};

Engine& engine();

// Generic addresses: windows far outside what a host pointer can be (layout.py mirrors them).
constexpr u64 SHARED_WINDOW = 1, LOCAL_WINDOW = 2;  // bits 56 and up

// Report what some lanes of a warp did at a source line; reports of one launch that differ in the threads only are one.
[[gnu::cold]] void report(Context* c, Warp* w, const char* kind, const std::string& text, u32 line, u32 lanes,
                          const std::string& file = "");
// Report what host code did.
void report(const char* kind, const std::string& text, const std::string& kernel = "");

u64 allocate(u64 bytes, const char* name, bool host = false);
// The same for the engine's own use: written, in every call.
u64 allocate_given(u64 bytes, const char* name);
bool release(u64 address);
Allocation* find_allocation(u64 address);
void mark_written(u64 address, u64 bytes);
// Whether bytes are what an earlier call left, and nobody has written them since.
bool is_left_over(u64 address, u64 bytes);
// A call begins: what was written before is initialised, but not stored.
void begin_call();

// Memory that only the device may touch; host code that does so while a guard is on crashes with a message.
void add_device_region(u64 base, u64 bytes);
void drop_device_region(u64 base);
// For as long as one of these lives, the guard is off.
struct Opened {
    Opened();
    ~Opened();
};

// For instructions that are neither plain loads nor plain stores: the access of lanes to one address, checked like any other.
// Gives the host address, or null after a finding was reported.
u8* reach(Context* c, Warp* w, u32 site, u32 lanes, Space space, u64 address, u32 bytes, Use use);
// Count one request of the lanes in the mask: sectors, lines, wavefronts, caches.
void count_request(Context* c, u32 site, Space space, const u64* address, u32 mask, u32 bytes, bool store);

// What a block did before is now visible to others (a fence, or an atomic with release semantics).
void publish(Context* c, Warp* w);
// A barrier: what its warps did to shared memory is ordered before what follows.
void order_shared(Context* c, u32 warps, bool all);
void* lazy_pages(u64 bytes);
// The life of a block's asynchronous copies: a block begins with none, and those under way at its end still arrive.
void begin_async(Context* c);
void end_async(Context* c);
void free_async(Context* c);

// Run a launch; returns a cudaError_t number.
int run_launch(KernelInfo* kernel, const u32 grid[3], const u32 block[3], void** args, u64 dynamic_shared, u32 resident);
double steady_seconds();
