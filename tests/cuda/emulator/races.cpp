// Finds accesses of two threads to one cell that nothing orders, whatever order they happen in here.
//
// GCC calls the functions at the end for every access of a kernel (-fsanitize=thread). Each cell, an
// element of a buffer or of shared memory, remembers who has accessed it since. Two accesses are a
// race if at least one writes, at least one is not atomic, and CUDA does not order them:
//
// - threads of different blocks are never ordered within a launch;
// - threads of one block are ordered by a __syncthreads() between the accesses;
// - lanes of one warp are also ordered by a __syncwarp(), but not by a shuffle, which "does not
//   imply a memory barrier", and not by running in step, which no GPU promises since Volta;
// - atomics are relaxed: they do not race with each other, and order nothing else. Volatile accesses
//   count as atomic, because PTX makes relaxed ones of them.
//
// Equal values written by several threads are a race too. CUDA's C++ has the data races of C++,
// whose behaviour is undefined whatever is written: a compiler may use memory that it is about to
// write for something else. PTX would promise one of the values. But whether values are equal
// depends on the data of a test, and no kernel needs such writes.

#include "races.h"

#include <stdint.h>
#include <stdio.h>

#include <algorithm>
#include <vector>

// The first and the last byte of this library.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

namespace races {

// An access: its phase, the thread, and where the kernel makes it. Zero is none.
//
// Phases count up over a launch. Each block begins one, and so does each block that has waited, for
// all its warps; a warp that has waited alone begins one for itself.
typedef uint64_t Access;
static const int place_bits = 24, thread_bits = 10, phase_bits = 26;
static Access access_of(uint64_t phase, uint64_t thread, uint64_t place)
{
    return (phase << thread_bits | thread) << place_bits | place;
}
static uint64_t phase_of(Access one) { return one >> (place_bits + thread_bits); }
static unsigned thread_of(Access one)
{
    return one >> place_bits & ((1u << thread_bits) - 1);
}
static uint64_t place_of(Access one) { return one & ((1u << place_bits) - 1); }

enum Kind { reads, writes, is_atomic };

// Two accesses are enough to know whether any of all that happened is not ordered with a new one:
// two of different warps, or of one warp in its last phase, or one of another block.
struct Group {
    Access first, second;
};

// A write that is no race comes after all that the cell remembers, which it may forget.
struct Cell {
    Access write;
    Group read, atomic;
};

// A phase and one warp, or every warp of the block.
typedef uint32_t Readers;
static const unsigned every_warp = 63;
static Readers readers_of(uint32_t phase, unsigned warp) { return phase << 6 | warp; }

// Memory from one address up to the next region.
struct Region {
    enum Use { ignored, constant, global, shared } use;
    const char* start;
    int shift;  // an element has 1 << shift bytes
    int buffer;
    std::vector<Cell> cells;
    // For each cell, as a `Readers`, who may read it again without a race and without news.
    std::vector<Readers> saturated;
};

static const size_t most_cells = 1 << 28;
static const int most_regions = 512;
static Region regions[most_regions], shared_memory;
static int region_count;
static size_t shared_size;

// The first phases of the running block, and since it has waited; the last phases of its warps.
static uint32_t next_phase, block_phase, waited_phase, warp_phase[32], phase;
static unsigned warps, running;
static Readers readers, all_readers;
static std::vector<std::pair<uint64_t, unsigned>> blocks;
static char message[256];

static void set(Region& region, Region::Use use, const char* start, unsigned element, int buffer)
{
    region.use = use;
    region.start = start;
    region.shift = __builtin_ctz(element);
    region.buffer = buffer;
    region.cells.clear();
    region.saturated.clear();
}

// A result may have the memory of an operand: one region, with the smaller elements of the two.
static void add(Region::Use use, const char* start, unsigned element = 1, int buffer = -1)
{
    Region* const stop = regions + region_count;
    Region* const above = std::lower_bound(
        regions, stop, start, [](const Region& one, const char* place) { return one.start < place; });
    if (above != stop && above->start == start) {
        above->shift = std::min(above->shift, __builtin_ctz(element));
        above->use = std::max(above->use, use);
        return;
    }
    set(*stop, use, start, element, buffer);
    std::rotate(above, stop, stop + 1);
    ++region_count;
}

void begin(const Launch& launch, const char* frame)
{
    message[0] = 0;
    next_phase = 1;
    blocks.clear();
    set(shared_memory, Region::shared, launch.shared_start, launch.shared_element, -1);
    shared_size = launch.shared_stop - launch.shared_start;
    region_count = 0;
    add(Region::ignored, nullptr);
    add(Region::ignored, frame - (1 << 20));
    add(Region::ignored, frame);
    for (size_t k = 0; k < launch.buffer_count; ++k) {
        const Buffer& buffer = launch.buffers[k];
        add(buffer.is_constant ? Region::constant : Region::global, buffer.start, buffer.element, k);
    }
}

static void begin_phase()
{
    waited_phase = next_phase++;
    for (unsigned warp = 0; warp < warps; ++warp) warp_phase[warp] = waited_phase;
}

void begin_block(unsigned block, unsigned warps_of_block)
{
    warps = warps_of_block;
    begin_phase();
    block_phase = waited_phase;
    blocks.emplace_back(block_phase, block);
}

void order_block() { begin_phase(); }

void order_warp(unsigned warp) { warp_phase[warp] = next_phase++; }

void turn_to(unsigned thread)
{
    running = thread;
    phase = warp_phase[thread / 32];
    readers = readers_of(phase, thread / 32);
    all_readers = readers_of(waited_phase, every_warp);
}

const char* found() { return message[0] ? message : nullptr; }

static unsigned block_of(Access one)
{
    unsigned block = 0;
    for (const auto& begun : blocks) {
        if (begun.first <= phase_of(one)) block = begun.second;
    }
    return block;
}

static void report(const Region& region, size_t element, Kind kind, Access now, Kind before_kind,
                   Access before)
{
    if (message[0]) return;
    static const char* const names[] = {"read", "write", "atomic"};
    snprintf(message, sizeof(message), "race %d %zu %s %u %u %#zx %s %u %u %#zx", region.buffer,
             region.use == Region::shared ? (region.start - __ehdr_start) + (element << region.shift)
                                          : element,
             names[kind], thread_of(now), block_of(now), (size_t)place_of(now), names[before_kind],
             thread_of(before), block_of(before), (size_t)place_of(before));
}

// Whether another thread made an access that nothing orders with what the running one does now.
static inline bool is_unordered(Access one, bool is_shared)
{
    if (!one) return false;
    // Shared memory of another block is other memory.
    if (phase_of(one) < block_phase) return !is_shared;
    if (phase_of(one) < waited_phase) return false;
    const unsigned distance = thread_of(one) ^ running;
    return distance && (distance >= 32 || phase_of(one) == phase);
}

// Adds an access to a group; for whom the group needs no others, or 0.
static inline Readers remember(Group& group, Access now, bool is_shared)
{
    const Access first = group.first, second = group.second;
    if (!first || phase_of(first) < waited_phase) {
        // What another block did is not ordered with anything that can still happen.
        if (first && phase_of(first) < block_phase && !is_shared) return all_readers;
        group = {now, 0};
        return 0;
    }
    const bool same_warp = (thread_of(first) ^ running) < 32;
    if (second && (thread_of(first) ^ thread_of(second)) >= 32) return all_readers;
    if (!same_warp) {
        group.second = now;
        return all_readers;
    }
    if (phase_of(first) != phase || thread_of(first) == running) {
        if (!second || phase_of(first) != phase) group = {now, 0};
    } else if (!second) {
        group.second = now;
    }
    return group.second ? readers : 0;
}

template <Kind kind> static inline void note(Region& region, size_t element, Access now)
{
    Cell& cell = region.cells[element];
    const bool is_shared = region.use == Region::shared;
    bool is_race = false;
    const auto against = [&](Kind before_kind, Access before) {
        if (__builtin_expect(!is_unordered(before, is_shared), true)) return;
        report(region, element, kind, now, before_kind, before);
        is_race = true;
    };
    against(writes, cell.write);
    if (kind != reads) {
        against(reads, cell.read.first);
        against(reads, cell.read.second);
    }
    if (kind != is_atomic) {
        against(is_atomic, cell.atomic.first);
        against(is_atomic, cell.atomic.second);
    }
    if (kind == writes) {
        cell = {now, {0, 0}, {0, 0}};
        region.saturated[element] = 0;
        return;
    }
    const Readers known = remember(kind == reads ? cell.read : cell.atomic, now, is_shared);
    // What this block did before it waited does not concern any of its warps.
    const bool is_quiet = phase_of(cell.write) < waited_phase && !cell.atomic.first && !is_race;
    region.saturated[element] = kind == reads && is_quiet ? known : 0;
}

static inline Region& region_of(const char* place)
{
    static int last;
    const auto holds = [&](int k) {
        return regions[k].start <= place && (k + 1 == region_count || place < regions[k + 1].start);
    };
    if (last < region_count && holds(last)) return regions[last];
    const auto above = [](const char* place, const Region& one) { return place < one.start; };
    last = std::upper_bound(regions, regions + region_count, place, above) - regions - 1;
    return regions[last];
}

template <Kind kind>
static __attribute__((noinline)) void note_all(
    Region& region, size_t first, size_t last, const void* caller)
{
    const uint64_t from = (const char*)caller - __ehdr_start;
    const Access now = access_of(phase, running, from);
    if (region.use == Region::constant) {
        report(region, first, kind, now, reads, now);
        return;
    }
    if (last >= region.cells.size()) {
        if (last >= most_cells || from >> place_bits || next_phase >> phase_bits) {
            snprintf(message, sizeof(message), "it is too large to be checked for races");
            return;
        }
        region.cells.resize(std::max(last + 1, 2 * region.cells.size()));
        region.saturated.resize(region.cells.size());
    }
    for (size_t element = first; element <= last; ++element) note<kind>(region, element, now);
}

template <Kind kind>
static inline __attribute__((always_inline)) void touch(
    const volatile void* address, size_t size, const void* caller)
{
    const char* const place = (const char*)address;
    Region* region = &shared_memory;
    if (place >= __ehdr_start && place < _end) {
        // Stacks, the place of a thread, constants; a kernel has its own shared memory in between.
        if (size_t(place - shared_memory.start) >= shared_size) return;
    } else {
        region = &region_of(place);
        if (region->use == Region::ignored) return;
        if (region->use == Region::constant && kind == reads) return;
    }
    const size_t offset = place - region->start;
    size_t first = offset >> region->shift;
    const size_t last = (offset + size - 1) >> region->shift;
    if (kind == reads && last < region->saturated.size()) {
        const Readers* const saturated = region->saturated.data();
        while (saturated[first] == readers || saturated[first] == all_readers) {
            if (first++ == last) return;
        }
    }
    note_all<kind>(*region, first, last, caller);
}

}  // namespace races

// --- what GCC calls ----------------------------------------------------------------------------

#define CALLED(name, kind, size)                                        \
    extern "C" void __tsan_##name(void* address)                        \
    {                                                                   \
        races::touch<kind>(address, size, __builtin_return_address(0)); \
    }
#define CALLED_FOR(size)                                           \
    CALLED(read##size, races::reads, size)                         \
    CALLED(write##size, races::writes, size)                       \
    CALLED(unaligned_read##size, races::reads, size)               \
    CALLED(unaligned_write##size, races::writes, size)             \
    CALLED(volatile_read##size, races::is_atomic, size)            \
    CALLED(volatile_write##size, races::is_atomic, size)           \
    CALLED(unaligned_volatile_read##size, races::is_atomic, size)  \
    CALLED(unaligned_volatile_write##size, races::is_atomic, size)

CALLED_FOR(1)
CALLED_FOR(2)
CALLED_FOR(4)
CALLED_FOR(8)
CALLED_FOR(16)

extern "C" void __tsan_read_range(void* address, size_t size)
{
    races::touch<races::reads>(address, size, __builtin_return_address(0));
}

extern "C" void __tsan_write_range(void* address, size_t size)
{
    races::touch<races::writes>(address, size, __builtin_return_address(0));
}

extern "C" void emulated_atomic(const void* target, unsigned size, const void* caller)
{
    races::touch<races::is_atomic>(target, size, caller);
}

extern "C" void __tsan_init() {}
