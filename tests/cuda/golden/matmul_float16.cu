typedef int index_t;

struct float16 { unsigned short bits; };
#ifdef __CUDA_ARCH__
static __device__ float to_float(float16 x)
{
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}
static __device__ float16 to_float16(float x)
{
    float16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
}
#else
static float to_float(float16 x) { return emulated_float_of_float16(x.bits); }
static float16 to_float16(float x) { return {emulated_float16_of_float(x)}; }
#endif

template <typename T, int N> struct __align__(N * sizeof(T)) Part { T at[N]; };

static __device__ bool inside(index_t index, index_t extent)
{
    return 0 <= index && index < extent;
}

static __device__ __forceinline__ int own_lane()
{
    int lane = threadIdx.x;
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(lane));
    __builtin_assume(0 <= lane && lane < 1024);
#endif
    return lane;
}

// Without such instructions, each lane computes its sums by itself.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define BEFORE_AMPERE 1
#else
#define BEFORE_AMPERE 0
#endif
#if defined(__CUDA_ARCH__) && !BEFORE_AMPERE
template <bool TURNED>
static __device__ __forceinline__ void load_matrices(unsigned* loaded, const void* place)
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(place);
    if (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(loaded[0]), "=r"(loaded[1]), "=r"(loaded[2]), "=r"(loaded[3])
            : "r"(address) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(loaded[0]), "=r"(loaded[1]), "=r"(loaded[2]), "=r"(loaded[3])
            : "r"(address) : "memory");
    }
}
static __device__ __forceinline__ void multiply_matrices(
    float* sums, const unsigned* left, const unsigned* right)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
#elif !defined(__CUDA_ARCH__)
template <bool TURNED> static void load_matrices(unsigned* loaded, const void* place)
{
    struct __align__(16) Row { unsigned short at[8]; };
    const void* of_warp[32];
    emulated_gather(&place, sizeof(place), of_warp);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
        loaded[matrix] = 0;
        for (unsigned one = 0; one < 2; ++one) {
            const unsigned row = lane / 4, column = lane % 4 * 2 + one;
            const Row* const line = (const Row*)of_warp[matrix * 8 + (TURNED ? column : row)];
            loaded[matrix] |= (unsigned)line->at[TURNED ? row : column] << 16 * one;
        }
    }
}
static void multiply_matrices(float* sums, const unsigned* left, const unsigned* right)
{
    struct Lane { unsigned left[4], right[2]; } own, of_warp[32];
    for (unsigned k = 0; k < 4; ++k) own.left[k] = left[k];
    for (unsigned k = 0; k < 2; ++k) own.right[k] = right[k];
    emulated_gather(&own, sizeof(own), of_warp);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned sum = 0; sum < 4; ++sum) {
        for (unsigned step = 0; step < 16; ++step) {
            const unsigned within = step % 8 / 2, shift = step % 2 * 16;
            const Lane& row = of_warp[lane / 4 * 4 + within];
            const Lane& column = of_warp[(lane % 4 * 2 + sum % 2) * 4 + within];
            const float16 a{(unsigned short)(row.left[sum / 2 + step / 8 * 2] >> shift)};
            const float16 b{(unsigned short)(column.right[step / 8] >> shift)};
            sums[sum] += to_float(a) * to_float(b);
        }
    }
}
#endif

// The place of a chunk of a line: chunks are rotated from line to line.
template <bool ALONG, int LENGTH>
static __device__ __forceinline__ const float16* place_of(
    const float16* panel, unsigned line, unsigned chunk, int square)
{
    const unsigned group = LENGTH / 8 < 8 ? LENGTH / 8 : 8;
    if (ALONG) line += 16 * square;
    else chunk += 2 * square;
    const unsigned rotated = (chunk + line / (8 / group)) % group;
    return panel + line * LENGTH + (chunk / group * group + rotated) * 8;
}

// The element of a row or column and a step.
template <bool ALONG, int LENGTH>
static __device__ __forceinline__ float element_of(
    const float16* panel, unsigned chunk, unsigned side, unsigned step)
{
    const unsigned line = ALONG ? side : step, place = chunk * 8 + (ALONG ? step : side);
    return to_float(place_of<ALONG, LENGTH>(panel, line, place / 8, 0)[place % 8]);
}

// Adds a product of panels 16 deep to the sums of ROWS * 16 by COLUMNS * 8 elements. Lines of a
// panel run along the depth or across it, have so many elements, and are used from a chunk on.
template <int ROWS, int COLUMNS, bool LEFT_ALONG, int LEFT, bool RIGHT_ALONG, int RIGHT>
static __device__ __forceinline__ void warp_product(
    const float16* left, unsigned left_chunk, const float16* right, unsigned right_chunk, float* sums)
{
    const unsigned lane = threadIdx.x % 32, low = lane % 16, high = lane / 16;
#if BEFORE_AMPERE
    #pragma unroll
    for (int k = 0; k < ROWS * COLUMNS * 4; ++k) {
        const unsigned row = k / 4 / COLUMNS * 16 + k % 4 / 2 * 8 + lane / 4;
        const unsigned column = k / 4 % COLUMNS * 8 + lane % 4 * 2 + k % 2;
        for (int step = 0; step < 16; ++step) {
            sums[k] += element_of<LEFT_ALONG, LEFT>(left, left_chunk, row, step) *
                       element_of<RIGHT_ALONG, RIGHT>(right, right_chunk, column, step);
        }
    }
#else
    const unsigned inner = lane % 8 + high * 8, outer = lane / 8 % 2;
    left_chunk += LEFT_ALONG ? high : outer;
    right_chunk += RIGHT_ALONG ? outer : high;
    const unsigned row = LEFT_ALONG ? low : inner, column = RIGHT_ALONG ? inner : low;
    unsigned columns[COLUMNS / 2][4];
    #pragma unroll
    for (int j = 0; j < COLUMNS / 2; ++j) {
        load_matrices<!RIGHT_ALONG>(
            columns[j], place_of<RIGHT_ALONG, RIGHT>(right, column, right_chunk, j));
    }
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        unsigned rows[4];
        load_matrices<!LEFT_ALONG>(rows, place_of<LEFT_ALONG, LEFT>(left, row, left_chunk, i));
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            multiply_matrices(sums + (i * COLUMNS + j) * 4, rows, columns[j / 2] + j % 2 * 2);
        }
    }
#endif
}

extern "C" __global__ void __launch_bounds__(128, 4) contraction_add_relu(
    const float16* b0,
    const float16* b1,
    const float16* __restrict__ b2,
    float16* b3,
    long long* error)
{
    const int lane = threadIdx.x;
    __shared__ __align__(16) float16 shared1[2048];
    __align__(16) float16 tile4[8];
    __shared__ __align__(16) float16 shared2[2048];
    __align__(16) float16 tile5[8];
    float tile3[8];
    #pragma unroll 1
    for (index_t p = blockIdx.x; p < 4; p += gridDim.x) {
        const int lane = own_lane();
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t i = 0; i < 8; ++i) {
                tile3[i] = 0.0f;
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 8; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile4[c] = inside(c * 4 + (t / 32) + (p % 2) * 32, 40) & inside(t % 32, 1) ? b0[c * 132 + (t / 32) * 33 + (p % 2) * 1056 + (t % 32)] : to_float16(0.0f);
                }
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 8; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile5[c] = inside((p / 2) * 32 + (c % 4) * 8 + (t % 8), 50) & inside((c / 4) * 16 + (t / 8), 1) ? b1[(c / 4) * 800 + (p / 2) * 32 + (t / 8) * 50 + (c % 4) * 8 + (t % 8)] : to_float16(0.0f);
                }
            }
        }
        __syncthreads();
        #pragma unroll 1
        for (index_t kb = 0; kb < 2; ++kb) {
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared1[c * 128 + kb * 1024 + (t / 32) * 32 + ((c * 16 + t + (t / 64) * 8) % 32)] = tile4[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared2[kb * 1024 + (c / 4) * 512 + (t / 8) * 32 + ((c + (t / 16)) % 4) * 8 + (t % 8)] = tile5[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile4[c] = inside(c * 4 + (t / 32) + (p % 2) * 32, 40) ? b0[c * 132 + (t / 32) * 33 + (p % 2) * 1056 + (t % 32) + 1] : to_float16(0.0f);
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile5[c] = inside((p / 2) * 32 + (c % 4) * 8 + (t % 8), 50) ? b1[(c / 4) * 800 + (p / 2) * 32 + (t / 8) * 50 + (c % 4) * 8 + (t % 8) + 50] : to_float16(0.0f);
                    }
                }
            }
            __syncthreads();
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t k = 0; k < 2; ++k) {
                    warp_product<1, 2, true, 32, false, 32>(&shared1[kb * 1024 + (t / 64) * 512], k * 2, &shared2[k * 512 + kb * 1024], ((t / 32) % 2) * 2, tile3);
                }
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t i = 0; i < 1; ++i) {
                #pragma unroll
                for (index_t h = 0; h < 2; ++h) {
                    #pragma unroll
                    for (index_t j = 0; j < 2; ++j) {
                        #pragma unroll
                        for (index_t v_first = 0; v_first < 2; v_first += 2) {
                            Part<float16, 2> part1;
                            const Part<float16, 2> part2 = inside(h * 8 + (t / 64) * 16 + ((t / 4) % 8) + (p % 2) * 32, 40) & inside(j * 8 + v_first + (p / 2) * 32 + ((t / 32) % 2) * 16 + (t % 4) * 2, 50) ? *(const Part<float16, 2>*)&b2[j * 8 + v_first + (p / 2) * 32 + ((t / 32) % 2) * 16 + (t % 4) * 2] : Part<float16, 2>();
                            #pragma unroll
                            for (int e = 0; e < 2; ++e) {
                                const index_t v = v_first + e;
                                const float t1 = to_float(to_float16(tile3[h * 2 + j * 4 + v]));
                                const float x1 = t1 + to_float(part2.at[e]);
                                const float x2 = x1 < 0 ? 0 : x1;
                                part1.at[e] = to_float16(x2);
                            }
                            if (inside(h * 8 + (t / 64) * 16 + ((t / 4) % 8) + (p % 2) * 32, 40) & inside(j * 8 + v_first + (p / 2) * 32 + ((t / 32) % 2) * 16 + (t % 4) * 2, 50)) *(Part<float16, 2>*)&b3[h * 400 + j * 8 + v_first + (p / 2) * 32 + (t / 64) * 800 + ((t / 32) % 2) * 16 + ((t / 4) % 8) * 50 + (p % 2) * 1600 + (t % 4) * 2] = part1;
                        }
                    }
                }
            }
        }
    }
}
