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

static __device__ bool inside(index_t index, index_t extent)
{
    return 0 <= index && index < extent;
}

extern "C" __global__ void __launch_bounds__(128, 3) contraction_add_relu(
    const float16* __restrict__ b0,
    const float16* __restrict__ b1,
    const float16* __restrict__ b2,
    float16* __restrict__ b3,
    long long* error)
{
    const int lane = threadIdx.x;
    __shared__ __align__(16) float shared1[1152];
    float tile4[4];
    __shared__ __align__(16) float shared2[1152];
    float tile5[4];
    float tile3[8];
    for (index_t p = blockIdx.x; p < 4; p += gridDim.x) {
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
            for (index_t c = 0; c < 4; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile4[c] = inside(c * 8 + (t / 16) + (p % 2) * 32, 40) && inside(t % 16, 1) ? to_float(b0[c * 264 + (t / 16) * 33 + (p % 2) * 1056 + (t % 16)]) : 0.0f;
                }
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 4; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile5[c] = inside(c * 8 + (p / 2) * 32 + (t % 8), 50) && inside(t / 8, 1) ? to_float(b1[c * 8 + (p / 2) * 32 + (t / 8) * 50 + (t % 8)]) : 0.0f;
                }
            }
        }
        __syncthreads();
        for (index_t kb = 0; kb < 3; ++kb) {
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 4; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared1[c * 8 + (t / 16) + (kb % 2) * 576 + (t % 16) * 36] = tile4[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 4; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared2[c * 8 + (t / 8) * 36 + (kb % 2) * 576 + (t % 8)] = tile5[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 4; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile4[c] = inside(c * 8 + (t / 16) + (p % 2) * 32, 40) ? to_float(b0[c * 264 + (t / 16) * 33 + (kb % 2) * 16 + (p % 2) * 1056 + (t % 16) + 1]) : 0.0f;
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 4; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile5[c] = inside(c * 8 + (p / 2) * 32 + (t % 8), 50) ? to_float(b1[c * 8 + (p / 2) * 32 + (t / 8) * 50 + (kb % 2) * 800 + (t % 8) + 50]) : 0.0f;
                    }
                }
            }
            __syncthreads();
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t k = 0; k < 16; ++k) {
                    #pragma unroll
                    for (index_t i = 0; i < 4; ++i) {
                        #pragma unroll
                        for (index_t g = 0; g < 1; ++g) {
                            #pragma unroll
                            for (index_t v = 0; v < 2; ++v) {
                                tile3[i * 2 + v] = tile3[i * 2 + v] + (shared1[i + k * 36 + (t / 64) * 16 + ((t / 16) % 2) * 8 + (kb % 2) * 576 + (t % 2) * 4] * shared2[k * 36 + v + ((t / 2) % 8) * 2 + ((t / 32) % 2) * 16 + (kb % 2) * 576]);
                            }
                        }
                    }
                }
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t i = 0; i < 4; ++i) {
                #pragma unroll
                for (index_t g = 0; g < 1; ++g) {
                    #pragma unroll
                    for (index_t v = 0; v < 2; ++v) {
                        const float t1 = to_float(to_float16(tile3[i * 2 + v]));
                        const float x1 = t1 + (inside(i + (t / 64) * 16 + ((t / 16) % 2) * 8 + (p % 2) * 32 + (t % 2) * 4, 40) && inside(v + (p / 2) * 32 + ((t / 2) % 8) * 2 + ((t / 32) % 2) * 16, 50) ? to_float(b2[v + (p / 2) * 32 + ((t / 2) % 8) * 2 + ((t / 32) % 2) * 16]) : 0.0f);
                        const float x2 = x1 < 0 ? 0 : x1;
                        if (inside(i + (t / 64) * 16 + ((t / 16) % 2) * 8 + (p % 2) * 32 + (t % 2) * 4, 40) && inside(v + (p / 2) * 32 + ((t / 2) % 8) * 2 + ((t / 32) % 2) * 16, 50)) b3[i * 50 + v + (p / 2) * 32 + (t / 64) * 800 + ((t / 16) % 2) * 400 + ((t / 2) % 8) * 2 + ((t / 32) % 2) * 16 + (p % 2) * 1600 + (t % 2) * 200] = to_float16(x2);
                    }
                }
            }
        }
    }
}
