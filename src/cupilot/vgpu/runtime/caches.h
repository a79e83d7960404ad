// Requests through the modelled caches.
#pragma once

#include "engine.h"

// The lines of a site's known pattern, first lane at `first`, of one buffer.
void pass_caches(Context* c, const Site& s, Allocation* a, u64 first, bool store);
