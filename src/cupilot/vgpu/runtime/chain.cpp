#include "chain.h"

#include <algorithm>

// Words that are kept; a kernel that puts down more does not hand over turns.
constexpr size_t MOST_WORDS = 1 << 20;
// A warp that does more than this between two looks has something else to do.
constexpr u64 POLL_CYCLES = 2000;

void BlockTime::begin(u64 number) {
    block = number, waited = hops = 0;
    looks.assign(warps, Look{}), idle.assign(warps, 0), vain.assign(warps, 0);
}

u64 BlockTime::way(u32 warp) const {
    const auto& cycles = kernel->block_cycles;
    const u64* row = counts + (u64)warp * 2 * cycles.size();
    u64 total = 0;
    for (size_t b = 0; b < cycles.size(); b++) total += row[2 * b] * cycles[b];
    return total;
}

u64 BlockTime::now() const {
    u64 latest = 0;
    for (u32 i = 0; i < warps; i++) latest = std::max(latest, way(i) - idle[i]);
    return latest + waited;
}

void BlockTime::end() {
    if (!meetings || !hops) return;
    u64 time = now();
    if (time <= meetings->longest) return;
    meetings->longest = time, meetings->hops = hops;
}

// Gives whether it found what another block left.
static bool look(Context* c, const Warp* w, u64 place, bool passing) {
    BlockTime& t = *c->time;
    auto found = t.meetings->words.find(place);
    bool others = found != t.meetings->words.end() && found->second.block != t.block;
    Meetings::Word word = others ? found->second : Meetings::Word{t.block, 0, 0, false};
    BlockTime::Look &last = t.looks[w->index], now{place, word.block, word.time, t.way(w->index)};
    bool same = !passing && last.place == place && last.block == word.block && last.time == word.time;
    if (same) t.idle[w->index] += now.way - last.way;
    t.vain[w->index] = same && now.way - last.way <= POLL_CYCLES ? t.vain[w->index] + 1 : 0;
    last = now;
    if (!others) return false;
    u64 there = word.time + (passing ? 0 : engine().settings.handover), time = t.now();
    if (there > time) t.waited += there - time, t.hops = std::max(t.hops, word.hops + !passing);
    return true;
}

static void put(Context* c, u64 place, bool taken) {
    BlockTime& t = *c->time;
    auto& words = t.meetings->words;
    if (words.size() >= MOST_WORDS) return;
    auto [at, fresh] = words.try_emplace(place);
    if (fresh || at->second.block != t.block || at->second.taken) at->second = {t.block, t.now(), t.hops, taken};
}

void meet(Context* c, const Warp* w, const u64* address, u32 lanes, Meeting kind) {
    if (!c->time || !c->time->meetings) return;
    u64 last = 0;
    for (u32 bits = lanes; bits; bits &= bits - 1) {
        u64 place = address[__builtin_ctz(bits)] / 4;
        if (place == last) continue;
        last = place;
        bool others = kind != Meeting::PUT && look(c, w, place, kind == Meeting::PASS);
        if (kind != Meeting::LOOK) put(c, place, others && kind == Meeting::TAKE);
    }
}
