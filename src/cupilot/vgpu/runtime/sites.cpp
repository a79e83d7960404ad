// What memory instructions did, added up from pattern to pattern of their lanes' addresses.
#include "engine.h"

void add_up(Site& s) {
    u64 requests = s.requests - s.known_requests;
    if (!requests) return;
    Counted& to = s.counted;
    to.ideal += requests * s.ideal, to.same_address += requests * s.same_address;
    if (s.reaches_shared) {
        to.shared_requests += requests, to.shared_wavefronts += s.wavefront_total - s.known_wavefronts;
        to.shared_bytes += s.lane_bytes - s.known_bytes, to.shared_ideal += requests * s.ideal;
    }
    for (int n = 0; n < 2; n++)
        to.wide_wavefronts[n] += requests * s.wide[n], to.wide_ideal[n] += requests * s.wide_ideal[n];
    s.known_requests = s.requests, s.known_wavefronts = s.wavefront_total, s.known_bytes = s.lane_bytes;
}

extern "C" void vgc_launch_counted(u64 i, u64 site, Counted* out) { *out = engine().launches[i]->sites[site].counted; }
