// A launch of a kernel, as its library describes it to the code that runs it.

#pragma once

#include <stddef.h>

// A buffer that a kernel is given. Nobody knows where it ends.
struct Buffer {
    char* start;
    unsigned element;  // bytes
    bool is_constant;  // the kernel promises not to write to it
};

struct Launch {
    void (*kernel)(void*);
    void* data;
    unsigned blocks, threads;
    bool waits;  // whether threads may have to wait for each other
    int order;
    const Buffer* buffers;
    size_t buffer_count;
    char *shared_start, *shared_stop;
    unsigned shared_element;  // the bytes of the smallest element in shared memory
};

// Runs all blocks; a message, or NULL when all went well.
extern "C" const char* emulate(const Launch* launch);
