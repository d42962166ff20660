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
    const float16* b0,
    const float16* b1,
    const float16* __restrict__ b2,
    float16* b3,
    long long* error)
{
    const int lane = threadIdx.x;
    __shared__ __align__(16) float shared1[2304];
    float tile4[8];
    __shared__ __align__(16) float shared2[2304];
    float tile5[8];
    float tile3[16];
    for (index_t p = blockIdx.x; p < 4; p += gridDim.x) {
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t i = 0; i < 16; ++i) {
                tile3[i] = 0.0f;
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 8; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile4[c] = inside(c * 4 + (t / 32) + (p % 2) * 32, 40) && inside(t % 32, 1) ? to_float(b0[c * 132 + (t / 32) * 33 + (p % 2) * 1056 + (t % 32)]) : 0.0f;
                }
            }
        }
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 8; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 1; ++v) {
                    tile5[c] = inside((p / 2) * 32 + (c % 4) * 8 + (t % 8), 50) && inside((c / 4) * 16 + (t / 8), 1) ? to_float(b1[(c / 4) * 800 + (p / 2) * 32 + (t / 8) * 50 + (c % 4) * 8 + (t % 8)]) : 0.0f;
                }
            }
        }
        __syncthreads();
        for (index_t kb = 0; kb < 2; ++kb) {
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared1[c * 4 + kb * 1152 + (t / 32) + (t % 32) * 36] = tile4[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        shared2[kb * 1152 + (c / 4) * 576 + (t / 8) * 36 + (c % 4) * 8 + (t % 8)] = tile5[c];
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile4[c] = inside(c * 4 + (t / 32) + (p % 2) * 32, 40) ? to_float(b0[c * 132 + (t / 32) * 33 + (p % 2) * 1056 + (t % 32) + 1]) : 0.0f;
                    }
                }
            }
            {
                const index_t t = lane;
                #pragma unroll
                for (index_t c = 0; c < 8; ++c) {
                    #pragma unroll
                    for (index_t v = 0; v < 1; ++v) {
                        tile5[c] = inside((p / 2) * 32 + (c % 4) * 8 + (t % 8), 50) ? to_float(b1[(c / 4) * 800 + (p / 2) * 32 + (t / 8) * 50 + (c % 4) * 8 + (t % 8) + 50]) : 0.0f;
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
                            for (index_t v = 0; v < 4; ++v) {
                                tile3[i * 4 + v] = tile3[i * 4 + v] + (shared1[i + k * 36 + kb * 1152 + (t / 64) * 576 + ((t / 16) % 4) * 8 + (t % 2) * 4] * shared2[k * 36 + kb * 1152 + v + (t / 64) * 576 + ((t / 2) % 8) * 4]);
                            }
                        }
                    }
                }
            }
        }
        __syncthreads();
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t i = 0; i < 4; ++i) {
                #pragma unroll
                for (index_t g = 0; g < 1; ++g) {
                    #pragma unroll
                    for (index_t v = 0; v < 4; ++v) {
                        shared1[i * 36 + v + (t / 16) * 288 + ((t / 2) % 8) * 4 + (t % 2) * 144] = tile3[i * 4 + v];
                    }
                }
            }
        }
        __syncthreads();
        {
            const index_t t = lane;
            #pragma unroll
            for (index_t c = 0; c < 2; ++c) {
                #pragma unroll
                for (index_t v = 0; v < 4; ++v) {
                    const float t1 = to_float(to_float16(shared1[c * 576 + ((t * 4 + v) / 32) * 36 + ((t * 4 + v) % 32)] + shared1[c * 576 + ((t * 4 + v) / 32) * 36 + ((t * 4 + v) % 32) + 1152]));
                    const float x1 = t1 + (inside(c * 16 + ((t * 4 + v) / 32) + (p % 2) * 32, 40) && inside((p / 2) * 32 + ((t * 4 + v) % 32), 50) ? to_float(b2[(p / 2) * 32 + ((t * 4 + v) % 32)]) : 0.0f);
                    const float x2 = x1 < 0 ? 0 : x1;
                    if (inside(c * 16 + ((t * 4 + v) / 32) + (p % 2) * 32, 40) && inside((p / 2) * 32 + ((t * 4 + v) % 32), 50)) b3[c * 800 + ((t * 4 + v) / 32) * 50 + (p / 2) * 32 + ((t * 4 + v) % 32) + (p % 2) * 1600] = to_float16(x2);
                }
            }
        }
    }
}
