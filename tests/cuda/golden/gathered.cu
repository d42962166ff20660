typedef int index_t;

// The index, or 0 where it is out of range; the first such index is reported.
static __device__ index_t check_index(
    long long index, long long bound, int number, long long* error)
{
    if (0 <= index && index < bound) return (index_t)index;
    if (atomicCAS((unsigned long long*)error, 0ull, 1ull) == 0) {
        error[1] = number;
        error[2] = index;
        error[3] = bound;
    }
    return 0;
}

extern "C" __global__ void __launch_bounds__(256) map_reindex(
    const long long* __restrict__ b0,
    const float* __restrict__ b1,
    float* __restrict__ b2,
    long long* error)
{
    const int lane = threadIdx.x % 32;
    for (index_t p = blockIdx.x * 8 + threadIdx.x / 32; p < 5; p += gridDim.x * 8) {
        const index_t k1 = check_index(b0[p], 6, 0, error);
        for (index_t i1 = lane; i1 < 10; i1 += 32) {
            b2[i1 + p * 10] = b1[i1 + k1 * 10];
        }
    }
}

typedef int index_t;

// The index, or 0 where it is out of range; the first such index is reported.
static __device__ index_t check_index(
    long long index, long long bound, int number, long long* error)
{
    if (0 <= index && index < bound) return (index_t)index;
    if (atomicCAS((unsigned long long*)error, 0ull, 1ull) == 0) {
        error[1] = number;
        error[2] = index;
        error[3] = bound;
    }
    return 0;
}

extern "C" __global__ void __launch_bounds__(256) map_reindex(
    const long long* __restrict__ b0,
    const float* __restrict__ b1,
    float* __restrict__ b2,
    long long* error)
{
    for (index_t l = blockIdx.x * 256 + threadIdx.x; l < 30; l += gridDim.x * 256) {
        const index_t k1 = check_index(b0[l % 5], 10, 0, error);
        b2[l] = b1[(l / 5) * 10 + k1];
    }
}
