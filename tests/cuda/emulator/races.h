// What races.cpp has to know of the threads and the order between them.

#pragma once

#include "launch.h"

namespace races {

// Starts a launch; locals of threads without stacks of their own lie below `frame`.
void begin(const Launch& launch, const char* frame);
void begin_block(unsigned block, unsigned warps);
// The thread whose accesses follow.
void turn_to(unsigned thread);
// All threads of the running block, or those of a warp, have waited for each other.
void order_block();
void order_warp(unsigned warp);
// The first race of the launch in words that races.py completes, or NULL.
const char* found();

}  // namespace races
