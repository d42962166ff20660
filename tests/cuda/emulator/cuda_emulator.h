// Enough of CUDA C++ for g++ to compile the unmodified text of a kernel and run it on the CPU.
//
// Kernels are compiled with -fsanitize=thread, so that every access of theirs calls races.cpp; what
// is written here is not CUDA's, and is not watched. threads.cpp runs the threads.

#pragma once

#include <cmath>
#include <initializer_list>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "launch.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Every access of the text is to happen: none is left out because nobody else seems to write.
#define __restrict__
// A section for each kernel, which names it by SHARED_MEMORY.
#define __shared__ static __attribute__((section(SHARED_MEMORY)))
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

struct Position { unsigned x; };
extern "C" const Position threadIdx, blockIdx, gridDim, blockDim;

static UNWATCHED unsigned least(std::initializer_list<size_t> sizes)
{
    size_t found = *sizes.begin();
    for (const size_t size : sizes) found = size < found ? size : found;
    return found;
}

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

static float __fmul_rn(float x, float y) { return x * y; }
static double __dmul_rn(double x, double y) { return x * y; }

// --- threads that wait for each other --------------------------------------------------------

extern "C" void __syncthreads();
extern "C" void emulated_syncwarp(unsigned mask);
extern "C" uint64_t emulated_shuffle(unsigned mask, uint64_t bits, int distance);

extern "C" void emulated_gather(const void* own, unsigned size, void* of_warp);

static void __syncwarp(unsigned mask = 0xffffffffu) { emulated_syncwarp(mask); }

template <typename T> UNWATCHED T __shfl_xor_sync(unsigned mask, T value, int distance)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = emulated_shuffle(mask, bits, distance);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// --- atomics: threads never change inside one ------------------------------------------------

extern "C" void emulated_atomic(const void* target, unsigned size, const void* caller);

template <typename T> UNWATCHED T atomicAdd(T* target, T value)
{
    emulated_atomic(target, sizeof(T), __builtin_return_address(0));
    const T before = *target;
    *target = before + value;
    return before;
}
template <typename T> UNWATCHED T atomicCAS(T* target, T expected, T value)
{
    emulated_atomic(target, sizeof(T), __builtin_return_address(0));
    const T before = *target;
    if (before == expected) *target = value;
    return before;
}
