typedef int index_t;

template <typename T> static __device__ T metaop_floor(T x) { return x; }
static __device__ float metaop_floor(float x)
{ return floor(x); }
static __device__ double metaop_floor(double x)
{ return floor(x); }

extern "C" __global__ void __launch_bounds__(256) map_sub_add(
    const float* b0,
    float* b1,
    float* b2,
    long long* error)
{
    for (index_t i0 = blockIdx.x * 256 + threadIdx.x; i0 < 60; i0 += gridDim.x * 256) {
        const float v1 = __fmul_rn(b0[i0], b0[i0]);
        const float kept1 = b0[i0];
        b1[i0] = v1 - metaop_floor(v1);
        b2[i0] = (2.0f * kept1) + 1.0f;
    }
}
