#include "chain.h"

#include <algorithm>
#include <cstring>

// Words that are kept; a kernel that puts down more does not hand over turns.
constexpr size_t MOST_WORDS = 1 << 20;
// Values of a word that are kept; beyond them, the last takes the place of the one before it.
constexpr size_t MOST_VALUES = 8;
// A warp that does more than this between two looks has something else to do.
constexpr u64 POLL_CYCLES = 2000;

void BlockTime::begin(u64 number) {
    block = number, waited = hops = 0, blind = false;
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

namespace {

struct Found {
    bool others = false;                  // another block left it
    const Meetings::Put* value = nullptr;  // what it was by now, if it is something else since
};

// What a look at a word of another block shows, after the wait for it. `again`: the same was seen before.
Found wait_for(BlockTime& t, const Meetings::Word& word, bool passing, u64& seen, bool again) {
    u64 there = word.time + (passing ? 0 : engine().settings.handover), time = t.now();
    if (there > time) t.waited += there - time, t.hops = std::max(t.hops, word.hops + !passing), time = there;
    Found found{true};
    if (passing || t.blind || word.later.size() < 2) return found;
    u64 at = 0, last = word.later.size() - 1;
    while (at < last && word.later[at + 1].time <= time) at++;
    if (again && at <= seen) at = std::min(seen + 1, last);
    if (word.later[at].time > time) {
        u64 then = word.later[at].time + engine().settings.handover;
        t.waited += then - time, t.hops = std::max(t.hops, word.later[at].hops + 1);
    }
    seen = at;
    if (at < last) found.value = &word.later[at];
    return found;
}

Found look(Context* c, const Warp* w, u64 place, bool passing, bool only) {
    BlockTime& t = *c->time;
    auto at = t.meetings->words.find(place);
    bool known = at != t.meetings->words.end(), others = known && at->second.block != t.block;
    t.blind |= !known && !passing;
    BlockTime::Look &last = t.looks[w->index], now{place, t.block, 0, 0, 0};
    if (others) now.block = at->second.block, now.time = at->second.time;
    bool same = only && last.place == place && last.block == now.block && last.time == now.time;
    now.seen = same ? last.seen : 0;
    if (only) {
        now.way = t.way(w->index);
        bool vain = same && !passing;
        if (vain) t.idle[w->index] += now.way - last.way;
        t.vain[w->index] = vain && now.way - last.way <= POLL_CYCLES ? t.vain[w->index] + 1 : 0;
    }
    Found found = others ? wait_for(t, at->second, passing, now.seen, same) : Found{};
    if (only) last = now;
    return found;
}

void put(Context* c, u64 place, u64 address, u32 bytes, bool taken) {
    BlockTime& t = *c->time;
    auto& words = t.meetings->words;
    t.meetings->full |= words.size() >= MOST_WORDS;
    if (t.meetings->full) return;
    auto [at, fresh] = words.try_emplace(place);
    Meetings::Word& word = at->second;
    Meetings::Put value{t.now(), t.hops, bytes, {}};
    memcpy(value.value, (const void*)address, std::min<u32>(bytes, sizeof value.value));
    if (fresh || word.block != t.block || word.taken)
        word = {t.block, value.time, t.hops, taken, {}};
    else if (word.later.size() >= MOST_VALUES)
        word.later.pop_back();
    word.later.push_back(value);
}

}  // namespace

void meet(Context* c, const Warp* w, const u64* address, u32 lanes, Meeting kind, u32 bytes, void* data, u32 width) {
    if (!c->time || !c->time->meetings || c->time->meetings->full) return;
    const u64 first = address[__builtin_ctz(lanes)];
    bool only = true;
    for (u32 bits = lanes; bits; bits &= bits - 1) only &= address[__builtin_ctz(bits)] == first;
    if (only) lanes &= data ? lanes : lanes & -lanes;
    Found found;
    u64 last = 0;
    for (u32 bits = lanes; bits; bits &= bits - 1) {
        u32 lane = (u32)__builtin_ctz(bits);
        u64 place = address[lane] / 4;
        if (place != last) {
            found = kind != Meeting::PUT ? look(c, w, place, kind == Meeting::PASS, only) : Found{};
            // the words behind the first one of a wide access go with it
            for (u64 more = place + 1; more < place + bytes / 4; more++)
                if (kind == Meeting::LOOK) look(c, w, more, true, false);
            for (u64 each = place; kind != Meeting::LOOK && each < place + std::max(1u, bytes / 4); each++)
                put(c, each, each == place ? address[lane] : 4 * each, each == place ? bytes : 4, found.others && kind == Meeting::TAKE);
        }
        last = place;
        if (!found.value || !data || found.value->bytes != bytes) continue;
        for (u32 v = 0; v < bytes / width; v++)
            memcpy((u8*)data + (v * LANES + lane) * width, found.value->value + v * width, width);
    }
}
