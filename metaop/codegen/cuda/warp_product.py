"""The device function in which the lanes of a warp multiply two panels by tensor cores.

Inline PTX is guarded by __CUDA_ARCH__; the emulator computes the same from the same fragments. They
are those of the instructions `ldmatrix` and `mma.m16n8k16`: lane l gives the place of row l % 8 of
matrix l / 8 of four, 8 by 8 each. It gets the elements 2 * (l % 4) and the next of row l / 4 of all
four, or those of column l / 4 if they are turned. The left factor's four matrices are the upper and
the lower rows of the first 8 steps, then those of the other 8; the right one's two are the first
and the other 8 steps. A lane's four sums are in row l / 4 and 8 rows below, in two columns each.
"""

from __future__ import annotations

from metaop.codegen.cuda.types import storage_type
from metaop.codegen.nest import ir
from metaop.unified_graph.dtype import DType

NAME, LANE = "warp_product", "own_lane"
_PTX_TYPES = {"bfloat16": "bf16", "float16": "f16"}

_TEXT = """\
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
    asm("mma.sync.aligned.m16n8k16.row.col.f32.PTX.PTX.f32 "
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
            const TYPE a{(unsigned short)(row.left[sum / 2 + step / 8 * 2] >> shift)};
            const TYPE b{(unsigned short)(column.right[step / 8] >> shift)};
            sums[sum] += to_float(a) * to_float(b);
        }
    }
}
#endif

// The place of a chunk of a line: chunks are rotated from line to line.
template <bool ALONG, int LENGTH>
static __device__ __forceinline__ const TYPE* place_of(
    const TYPE* panel, unsigned line, unsigned chunk, int square)
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
    const TYPE* panel, unsigned chunk, unsigned side, unsigned step)
{
    const unsigned line = ALONG ? side : step, place = chunk * 8 + (ALONG ? step : side);
    return to_float(place_of<ALONG, LENGTH>(panel, line, place / 8, 0)[place % 8]);
}

// Adds a product of panels 16 deep to the sums of ROWS * 16 by COLUMNS * 8 elements. Lines of a
// panel run along the depth or across it, have so many elements, and are used from a chunk on.
template <int ROWS, int COLUMNS, bool LEFT_ALONG, int LEFT, bool RIGHT_ALONG, int RIGHT>
static __device__ __forceinline__ void warp_product(
    const TYPE* left, unsigned left_chunk, const TYPE* right, unsigned right_chunk, float* sums)
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
"""


# What follows from the lane would be computed before the loop over tasks, and kept in registers
# that the sums need. The compiler must not see that it is the same for all tasks.
LANE_TEXT = """\
static __device__ __forceinline__ int own_lane()
{
    int lane = threadIdx.x;
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(lane));
    __builtin_assume(0 <= lane && lane < 1024);
#endif
    return lane;
}
"""


def warp_product_function(dtype: DType) -> str:
    """The text of the function for factors of a dtype."""
    return _TEXT.replace("PTX", _PTX_TYPES[dtype.name]).replace("TYPE", storage_type(dtype))


def warp_product_call(
    product: ir.WarpProduct, panels: tuple[tuple[str, str], tuple[str, str]], sums: str
) -> str:
    """The call for panels with a first element and a first chunk."""
    sizes = [str(product.rows // ir.WARP_ROWS), str(product.columns // ir.WARP_COLUMNS)]
    for panel in (product.left, product.right):
        sizes += [str(panel.along).lower(), str(panel.length)]
    places = ", ".join(f"&{element}, {chunk}" for element, chunk in panels)
    return f"{NAME}<{', '.join(sizes)}>({places}, {sums});"


def max_sums(item: object) -> int:
    """The most sums that a lane has of a product of its warp in statements; 0 without products."""
    if isinstance(item, ir.WarpProduct):
        return item.rows * item.columns // ir.WARP
    return max(map(max_sums, item), default=0) if isinstance(item, tuple) else 0
