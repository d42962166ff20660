typedef int index_t;

static __device__ float row_max_float32(float value)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = value != value || value > other ? value : other;
    }
    return value;
}

static __device__ float row_add_float32(float value)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = value + other;
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(256) rows_max_add_div(
    const float* __restrict__ b0,
    float* __restrict__ b1,
    long long* error)
{
    const int lane = threadIdx.x % 32;
    for (index_t p = blockIdx.x * 8 + threadIdx.x / 32; p < 6; p += gridDim.x * 8) {
        float a1 = __int_as_float(0xff800000u) /* -inf */;
        for (index_t i1 = lane; i1 < 10; i1 += 32) {
            const float x1 = b0[i1 + p * 10];
            a1 = a1 != a1 || a1 > x1 ? a1 : x1;
        }
        a1 = row_max_float32(a1);
        float a2 = 0.0f;
        for (index_t i1 = lane; i1 < 10; i1 += 32) {
            const float v3 = exp(b0[i1 + p * 10] - a1);
            a2 = a2 + v3;
        }
        a2 = row_add_float32(a2);
        for (index_t i1 = lane; i1 < 10; i1 += 32) {
            const float v4 = exp(b0[i1 + p * 10] - a1);
            b1[i1 + p * 10] = v4 / a2;
        }
    }
}
