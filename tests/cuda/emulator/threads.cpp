// Runs the threads of a kernel on one thread of the CPU.
//
// Every thread of a block is a fiber; fibers change only where threads wait for each other, in an
// order that the caller chooses. Shared memory starts as NaN in every block. Waiting in only some
// of the threads that must wait, and collectives of warps that lack a lane, are errors.

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "launch.h"
#include "races.h"

struct Position { unsigned x; };
extern "C" {
Position threadIdx, blockIdx, gridDim, blockDim;
}

enum State { ready, at_block, at_warp, in_shuffle, finished };

struct Fiber {
    ucontext_t context;
    State state;
    unsigned mask;
};

static const unsigned most_threads = 1024, warp = 32;
static Fiber fibers[most_threads];
static char stacks[most_threads][1 << 16];
static unsigned fiber_count;
static ucontext_t scheduler;
static unsigned running;
static const Launch* launch;
static char message[256];

static void wait_as(State state, unsigned mask)
{
    fibers[running].state = state;
    fibers[running].mask = mask;
    swapcontext(&fibers[running].context, &scheduler);
}

static void start_fiber()
{
    launch->kernel(launch->data);
    wait_as(finished, 0);
}

extern "C" void __syncthreads() { wait_as(at_block, 0); }

extern "C" void emulated_syncwarp(unsigned mask) { wait_as(at_warp, mask); }

static uint64_t exchanged[most_threads];

extern "C" uint64_t emulated_shuffle(unsigned mask, uint64_t bits, int distance)
{
    exchanged[running] = bits;
    wait_as(in_shuffle, mask);
    const uint64_t result = exchanged[running ^ (unsigned)distance];
    wait_as(in_shuffle, mask);
    return result;
}

// Copies what every lane of the warp gives, at most as much as fits.
extern "C" void emulated_gather(const void* own, unsigned size, void* of_warp)
{
    static char given[most_threads][32];
    memcpy(given[running], own, std::min(size, (unsigned)sizeof(given[0])));
    wait_as(in_shuffle, 0xffffffffu);
    const unsigned first = running / warp * warp;
    for (unsigned lane = 0; lane < warp; ++lane) {
        memcpy((char*)of_warp + lane * size, given[first + lane], size);
    }
    wait_as(in_shuffle, 0xffffffffu);
}

static bool release_warps()
{
    bool any = false;
    for (unsigned first = 0; first < fiber_count; first += warp) {
        const unsigned lanes = std::min(warp, fiber_count - first);
        unsigned waiting = 0, mask = 0, synchronised = 0;
        for (unsigned lane = 0; lane < lanes; ++lane) {
            const Fiber& fiber = fibers[first + lane];
            if (fiber.state != at_warp && fiber.state != in_shuffle) continue;
            waiting |= 1u << lane;
            mask = fiber.mask;
            synchronised += fiber.state == at_warp;
        }
        if (!waiting || (waiting & mask) != mask) continue;
        for (unsigned lane = 0; lane < lanes; ++lane) {
            if (mask >> lane & 1) fibers[first + lane].state = ready;
        }
        // Shuffles exchange values and say nothing about memory; __syncwarp orders it. One of a
        // part of a warp would order that part: no kernel has one, and none is taken for order.
        if (synchronised == lanes) races::order_warp(first / warp);
        any = true;
    }
    return any;
}

static bool are_all(State state)
{
    return std::all_of(fibers, fibers + fiber_count,
                       [=](const Fiber& fiber) { return fiber.state == state; });
}

static bool release_block()
{
    if (!are_all(at_block)) return false;
    for (unsigned thread = 0; thread < fiber_count; ++thread) fibers[thread].state = ready;
    races::order_block();
    return true;
}

static void report_divergence()
{
    for (unsigned thread = 0; thread < fiber_count; ++thread) {
        if (fibers[thread].state == finished) continue;
        const char* where = fibers[thread].state == at_block ? "__syncthreads" : "a warp collective";
        snprintf(message, sizeof(message), "thread %u of block %u waits in %s for threads that never come",
                 thread, blockIdx.x, where);
        return;
    }
}

enum Order { order_forward, order_reverse, order_random };

// The numbers below a count in an order; a random one differs from one seed to another.
static std::vector<unsigned> ordered(unsigned count, int order, unsigned seed)
{
    std::vector<unsigned> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0u);
    if (order == order_reverse) std::reverse(numbers.begin(), numbers.end());
    if (order == order_random) {
        std::shuffle(numbers.begin(), numbers.end(), std::minstd_rand(seed + 1));
    }
    return numbers;
}

static void turn_to(unsigned thread)
{
    running = threadIdx.x = thread;
    races::turn_to(thread);
}

static bool run_fibers(const std::vector<unsigned>& order)
{
    fiber_count = order.size();
    for (unsigned thread = 0; thread < fiber_count; ++thread) {
        Fiber& fiber = fibers[thread];
        fiber.state = ready;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks[thread];
        fiber.context.uc_stack.ss_size = sizeof(stacks[thread]);
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, start_fiber, 0);
    }
    while (!are_all(finished)) {
        bool progress = false;
        for (unsigned thread : order) {
            if (fibers[thread].state != ready) continue;
            turn_to(thread);
            swapcontext(&scheduler, &fibers[thread].context);
            progress = true;
        }
        if (!release_warps() && !release_block() && !progress) {
            report_divergence();
            return false;
        }
    }
    return true;
}

extern "C" const char* emulate(const Launch* given)
{
    launch = given;
    gridDim.x = launch->blocks;
    blockDim.x = launch->threads;
    races::begin(*launch, (const char*)__builtin_frame_address(0));
    for (unsigned block : ordered(launch->blocks, launch->order, launch->threads)) {
        blockIdx.x = block;
        races::begin_block(block, (launch->threads + warp - 1) / warp);
        memset(launch->shared_start, 0xff, launch->shared_stop - launch->shared_start);
        const std::vector<unsigned> turns = ordered(launch->threads, launch->order, block);
        if (launch->waits) {
            if (!run_fibers(turns)) return message;
            continue;
        }
        for (unsigned thread : turns) {
            turn_to(thread);
            launch->kernel(launch->data);
        }
    }
    return races::found();
}
