#include "host_memory.h"

#include <algorithm>
#include <cstring>

#include "findings.h"
#include "marks.h"

namespace {

// Who wrote a sector: the device in this call or in an earlier one; neither: the host. And what was counted.
enum Side : u8 { DEVICE = 1, EARLIER = 2, READ = 4, WROTE = 8 };

bool is_devices(u8 one) { return one & (DEVICE | EARLIER); }

// Where the content is no longer what the device left, the host wrote it.
u64 find_host_stores(Allocation* a) {
    const u8* now = (const u8*)a->base;
    u64 found = 0;
    for (u64 sector = 0; sector < a->sides.size(); sector++) {
        u64 at = sector * SECTOR, bytes = std::min<u64>(SECTOR, a->bytes - std::min(a->bytes, at));
        if (!is_devices(a->sides[sector]) || !bytes || !memcmp(now + at, a->seen.data() + at, bytes)) continue;
        a->sides[sector] &= (u8) ~(DEVICE | EARLIER | READ);
        a->moved = false;  // its page went to the host
        found += bytes;
    }
    return found;
}

}  // namespace

u64 begin_device_work() {
    u64 managed = 0;
    if (!engine().shares_memory) return managed;
    for (Allocation* a : engine().allocations) {
        if (!a->host || a->freed || a->seen.size() != a->bytes) continue;
        u64 found = find_host_stores(a);
        managed += a->managed ? found : 0;
    }
    return managed;
}

void end_device_work(LaunchState* launch) {
    if (!engine().shares_memory) return;
    for (Allocation* a : engine().allocations) {
        if (!a->host || a->freed) continue;
        if (std::any_of(a->sides.begin(), a->sides.end(), is_devices))
            a->seen.assign((const u8*)a->base, (const u8*)a->base + a->bytes);
        bool used = launch && a->managed && a->index < launch->traffic.size() &&
                    (launch->traffic[a->index].l2_read || launch->traffic[a->index].l2_write);
        if (used && !a->moved) launch->moved.push_back(a->index), a->moved = true;
    }
}

void use_host_memory(Context* c, const Site& s, Allocation* a, u64 first, bool store) {
    Aside& aside = c->tally->aside;
    u64 line = first / 128;
    for (u32 i = 0; i < s.lines; i++) {
        for (u32 bits = s.line_sectors[i]; bits; bits &= bits - 1) {
            u64 address = (line + (u64)(i64)s.line_delta[i]) * 128 + (u64)__builtin_ctz(bits) * SECTOR;
            u64 sector = (std::max(address, a->base) - a->base) / SECTOR;
            if (sector * SECTOR >= a->bytes) continue;
            u8& one = a->sides[sector];
            if (store) {
                if (!(one & WROTE) && !a->managed) aside.host_write_bytes += SECTOR;
                one = (u8)((one & ~EARLIER) | DEVICE | WROTE);
            } else if (a->partial) {  // blocks that did not run may have written it
                continue;
            } else if (one & EARLIER) {
                if (!a->told)
                    report("left-over", "a kernel reads what an earlier call left in memory that host code sees, " + a->name,
                           c->launch->kernel->name);
                a->told = true;
            } else if (!(one & (DEVICE | READ))) {
                aside.host_read_bytes += SECTOR;
                one |= READ;
            }
        }
    }
}

void device_wrote(Allocation* a, u64 offset, u64 bytes) {
    if (!a->host || !bytes) return;
    for (u64 sector = offset / SECTOR; sector <= (offset + bytes - 1) / SECTOR; sector++) {
        u8& one = a->sides[sector];
        one = (u8)((one & ~EARLIER) | DEVICE);
    }
}

bool is_of_earlier_call(const Allocation* a, u64 offset, u64 bytes) {
    if (!a->host || !bytes) return false;
    auto from = a->sides.begin() + (i64)(offset / SECTOR), to = a->sides.begin() + (i64)((offset + bytes - 1) / SECTOR) + 1;
    return std::any_of(from, to, [](u8 one) { return one & EARLIER; });
}

void forget_sides(Allocation* a) {
    a->told = a->moved = false;  // the host may have read it meanwhile
    for (u8& one : a->sides) one = is_devices(one) ? EARLIER : 0;
}
