// Enough of CUDA C++ for g++ to compile the unmodified text of a kernel and run it on the CPU.
//
// Every thread of a block is a fiber; fibers change only where threads wait for each other, in an
// order that the caller chooses. Shared memory starts as NaN in every block. Waiting in only some
// of the threads that must wait, and collectives of warps that lack a lane, are errors.

#pragma once

#include <cmath>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("shared_memory")))

struct Position { unsigned x; };
static Position threadIdx, blockIdx, gridDim, blockDim;

// --- conversions -----------------------------------------------------------------------------

template <typename To, typename From> static To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same number of bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static float __int_as_float(unsigned bits) { return bits_as<float>(bits); }
static int __float_as_int(float x) { return bits_as<int>(x); }
static double __longlong_as_double(unsigned long long bits) { return bits_as<double>(bits); }
static long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static float emulated_float_of_float16(unsigned short bits) { return (float)bits_as<_Float16>(bits); }
static unsigned short emulated_float16_of_float(float x)
{
    return bits_as<unsigned short>((_Float16)x);
}

// The inverse of erf by Newton's steps, which CUDA has and C has not.
static double erfinv(double y)
{
    if (!(fabs(y) < 1)) return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
    const double w = -log1p(-y * y), a = 2 / (M_PI * 0.147) - w / 2;
    double x = copysign(sqrt(sqrt(a * a + w / 0.147) - a), y);
    for (int step = 0; step < 4; ++step) {
        const double far = (1 - fabs(y) - erfc(fabs(x))) * copysign(1.0, y);
        const double error = fabs(y) < 0.5 ? erf(x) - y : far;
        const double change = error * sqrt(M_PI) / 2 * exp(x * x);
        x -= change / (1 + x * change);
    }
    return x;
}
static float erfinv(float y) { return (float)erfinv((double)y); }

// --- fibers ----------------------------------------------------------------------------------

enum State { ready, at_block, at_warp, finished };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    unsigned mask;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned running;
static void (*body)(void*);
static void* body_data;
static char message[256];

static void switch_to_scheduler() { swapcontext(&fibers[running].context, &scheduler); }

static void start_fiber()
{
    body(body_data);
    fibers[running].state = finished;
    switch_to_scheduler();
}

static void __syncthreads()
{
    fibers[running].state = at_block;
    switch_to_scheduler();
}

static void __syncwarp(unsigned mask = 0xffffffffu)
{
    fibers[running].state = at_warp;
    fibers[running].mask = mask;
    switch_to_scheduler();
}

static uint64_t exchanged[1024];

template <typename T> static T __shfl_xor_sync(unsigned mask, T value, int distance)
{
    memcpy(&exchanged[running], &value, sizeof(T));
    __syncwarp(mask);
    T result;
    memcpy(&result, &exchanged[running ^ (unsigned)distance], sizeof(T));
    __syncwarp(mask);
    return result;
}

static bool release_warps()
{
    bool any = false;
    for (unsigned first = 0; first < fibers.size(); first += 32) {
        unsigned waiting = 0, mask = 0;
        for (unsigned lane = 0; lane < 32 && first + lane < fibers.size(); ++lane) {
            if (fibers[first + lane].state == at_warp) {
                waiting |= 1u << lane;
                mask = fibers[first + lane].mask;
            }
        }
        if (!waiting || (waiting & mask) != mask) continue;
        for (unsigned lane = 0; lane < 32; ++lane) {
            if (mask >> lane & 1) fibers[first + lane].state = ready;
        }
        any = true;
    }
    return any;
}

static bool release_block()
{
    for (Fiber& fiber : fibers) {
        if (fiber.state != at_block) return false;
    }
    for (Fiber& fiber : fibers) fiber.state = ready;
    return true;
}

static bool all_finished()
{
    for (Fiber& fiber : fibers) {
        if (fiber.state != finished) return false;
    }
    return true;
}

static void report_divergence()
{
    for (unsigned thread = 0; thread < fibers.size(); ++thread) {
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

static bool run_fibers(const std::vector<unsigned>& order)
{
    const unsigned threads = order.size();
    fibers.resize(threads);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(1 << 16);
        fiber.state = ready;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, start_fiber, 0);
    }
    while (!all_finished()) {
        bool progress = false;
        for (unsigned thread : order) {
            running = thread;
            if (fibers[running].state != ready) continue;
            threadIdx.x = running;
            swapcontext(&scheduler, &fibers[running].context);
            progress = true;
        }
        if (!release_warps() && !release_block() && !progress) {
            report_divergence();
            return false;
        }
    }
    return true;
}

extern "C" char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));

// Runs a kernel on `blocks` blocks; a message, or NULL when all went well.
static const char* emulate(
    void (*kernel)(void*), void* data, unsigned blocks, unsigned threads, bool waits, int order)
{
    body = kernel;
    body_data = data;
    gridDim.x = blocks;
    blockDim.x = threads;
    for (unsigned block : ordered(blocks, order, threads)) {
        blockIdx.x = block;
        const std::vector<unsigned> turns = ordered(threads, order, block);
        if (__start_shared_memory) {
            memset(__start_shared_memory, 0xff, __stop_shared_memory - __start_shared_memory);
        }
        if (waits) {
            if (!run_fibers(turns)) return message;
            continue;
        }
        for (unsigned thread : turns) {
            threadIdx.x = thread;
            kernel(data);
        }
    }
    return nullptr;
}

// --- atomics: fibers never change inside one -------------------------------------------------

template <typename T> static T atomicAdd(T* target, T value)
{
    const T before = *target;
    *target = before + value;
    return before;
}
template <typename T> static T atomicCAS(T* target, T expected, T value)
{
    const T before = *target;
    if (before == expected) *target = value;
    return before;
}
