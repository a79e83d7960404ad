// What calls need at run time: frames on the local stack, and the functions that CUDA provides to device code.
#include <cstring>

#include "engine.h"
#include "local.h"
#include "print.h"

// Rows of words of all lanes; whoever does not take part has nothing above the running frame.
extern "C" void vg_copy_frame(Context* c, Warp* w, u32 from, u32 to, u32 bytes) {
    if ((from | to) % 4 == 0) {
        memmove(local_word(c, w, to, 0), local_word(c, w, from, 0), (bytes + 3) / 4 * 4 * LANES);
        return;
    }
    for (u32 lane = 0; lane < LANES; lane++)
        for (u32 b = 0; b < bytes; b++) *local_word(c, w, to + b, lane) = *local_word(c, w, from + b, lane);
}

// Recursion is a loop without a back edge, so calls must look at the clock too. True when the launch is to end.
static bool time_is_up(Context* c, Warp* w, u32 line) {
    static thread_local u32 calls = 0;
    Engine& e = engine();
    if ((++calls & 1023) || c->launch->stop) return c->launch->stop;
    if (e.settings.deadline_s <= 0 || steady_seconds() < e.settings.deadline_s) return false;
    c->launch->stop = true, c->launch->error = 702, e.timed_out = true;  // cudaErrorLaunchTimeout
    report(c, w, "time-out", "still running", line, w->mask & -w->mask);
    return true;
}

// Whether there is room for the frames of a caller and the called, and for the lanes that may come to wait in it.
extern "C" u32 vg_enter(Context* c, Warp* w, u32 need, u32 limit, u32 depth, u32 line) {
    if (time_is_up(c, w, line)) return 0;
    if ((u64)w->frame + need <= limit && w->sp + 80 <= depth) return 1;
    if (!c->launch->stop) report(c, w, "stack-overflow", "calls are nested too deeply", line, w->mask);
    c->launch->stop = true, c->launch->error = 719;
    return 0;
}

extern "C" void vg_bad_call(Context* c, Warp* w) {
    report(c, w, "bad-call", "a call through a pointer that is not a device function's", 0, w->mask);
    c->launch->stop = true, c->launch->error = 718;  // cudaErrorInvalidPc
}

// A register's slot to the frame and back; bytes of one lane, or 0 for a mask.
extern "C" void vg_save(Context* c, Warp* w, u32 slot, u32 offset, u32 bytes) {
    memcpy(local_word(c, w, offset, 0), (u8*)w + slot, bytes ? bytes * LANES : 4);
}

extern "C" void vg_restore(Context* c, Warp* w, u32 slot, u32 offset, u32 bytes) {
    u8 *to = (u8*)w + slot, *from = local_word(c, w, offset, 0);
    if (!bytes) {
        u32 saved, now;
        memcpy(&saved, from, 4), memcpy(&now, to, 4);
        now = (saved & w->mask) | (now & ~w->mask);
        memcpy(to, &now, 4);
        return;
    }
    for (u32 bits = w->mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        memcpy(to + lane * bytes, from + lane * bytes, bytes);
    }
}

// --- functions of the CUDA runtime ----------------------------------------------------------

static u64 take(Context* c, Warp* w, u32 offset, u32 lane, u32 bytes) {
    u64 value = 0;
    for (u32 b = 0; b < bytes; b++) value |= (u64)*local_word(c, w, offset + b, lane) << 8 * b;
    return value;
}

static void give(Context* c, Warp* w, u32 offset, u32 lane, u64 value, u32 bytes) {
    for (u32 b = 0; b < bytes; b++) *local_word(c, w, offset + b, lane) = (u8)(value >> 8 * b);
}

// Bytes at a generic address, as far as they can be read.
static std::vector<u8> bytes_at(Context* c, Warp* w, u32 lane, u64 address, u64 most) {
    std::vector<u8> out;
    u64 offset = address & ~(0xffull << 56);
    if (address >> 56 == LOCAL_WINDOW) {
        for (u64 b = 0; b < most && offset + b < c->local_bytes; b++) out.push_back(*local_word(c, w, offset + b, lane));
    } else if (address >> 56 == SHARED_WINDOW) {
        for (u64 b = 0; b < most && offset + b < c->shared_bytes; b++) out.push_back(c->shared[offset + b]);
    } else if (Allocation* a = find_allocation(address)) {
        u64 end = a->base + a->bytes;
        for (u64 p = address; p < end && p < address + most; p++) out.push_back(*(u8*)p);
    }
    return out;
}

static std::string text_at(Context* c, Warp* w, u32 lane, u64 address) {
    std::vector<u8> bytes = bytes_at(c, w, lane, address, 4096);
    return std::string((const char*)bytes.data(), strnlen((const char*)bytes.data(), bytes.size()));
}

extern "C" void vg_call_vprintf(Context* c, Warp* w, u32 mask, u32, u32 format, u32 arguments, u32 result) {
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        std::string text = text_at(c, w, lane, take(c, w, format, lane, 8));
        std::vector<u8> data = bytes_at(c, w, lane, take(c, w, arguments, lane, 8), 1024);
        data.resize(2048);
        u32 taken = 0;
        std::string printed = format_print(text.c_str(), data.data(), &taken);
        {
            std::lock_guard<std::mutex> guard(c->launch->mutex);
            c->launch->printed += printed;
        }
        c->tally->aside.prints++;
        give(c, w, result, lane, taken, 4);
    }
}

extern "C" void vg_call_assertfail(Context* c, Warp* w, u32 mask, u32, u32 message, u32 file, u32 number, u32 function,
                                   u32) {
    if (!mask) return;
    u32 lane = __builtin_ctz(mask);
    auto text = [&](u32 offset) { return text_at(c, w, lane, take(c, w, offset, lane, 8)); };
    std::string path = text(file), what = "assertion `" + text(message) + "` failed in " + text(function);
    report(c, w, "assert", what, (u32)take(c, w, number, lane, 4), mask, path.substr(path.rfind('/') + 1));
    c->launch->stop = true, c->launch->error = 710;  // cudaErrorAssert
}

extern "C" void vg_call_malloc(Context* c, Warp* w, u32 mask, u32, u32 size, u32 result) {
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        c->tally->aside.heap_calls++;
        give(c, w, result, lane, allocate(take(c, w, size, lane, 8), "device malloc"), 8);
    }
}

extern "C" void vg_call_free(Context* c, Warp* w, u32 mask, u32 line, u32 pointer) {
    for (u32 bits = mask; bits; bits &= bits - 1) {
        u32 lane = __builtin_ctz(bits);
        u64 address = take(c, w, pointer, lane, 8);
        c->tally->aside.heap_calls++;
        if (address && !release(address))
            report(c, w, "bad-free", "free of a pointer that malloc did not give", line, 1u << lane);
    }
}
