"""Device functions for kernels, added in front of a kernel whose text names them."""

from __future__ import annotations

import re

from metaop.codegen.cuda.expressions import stripped
from metaop.codegen.cuda.types import compute_type, is_narrow_float, literal, storage_type
from metaop.elementwise.functions import CUDA_HELPERS, FUNCTIONS
from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph.dtype import DType

# Inline PTX is guarded by __CUDA_ARCH__; the emulator has functions of the same names.
_FLOAT16 = """\
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
"""

_BFLOAT16 = """\
struct bfloat16 { unsigned short bits; };
static __device__ float to_float(bfloat16 x) { return __int_as_float((unsigned)x.bits << 16); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __device__ bfloat16 to_bfloat16(float x)
{
    bfloat16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
}
#else
static __device__ bfloat16 to_bfloat16(float x)
{
    const unsigned bits = __float_as_int(x);
    // To nearest, ties to even; NaN stays NaN.
    const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {(unsigned short)(x != x ? 0x7fc0u : rounded)};
}
#endif
"""

# Aligned as a whole, so that one instruction reads or writes it.
_PART = """\
template <typename T, int N> struct __align__(N * sizeof(T)) Part { T at[N]; };
"""

_INSIDE = """\
static __device__ bool inside(index_t index, index_t extent)
{
    return 0 <= index && index < extent;
}
"""

_CHECK_INDEX = """\
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
"""

_FUNCTIONS = {
    "float16": _FLOAT16,
    "bfloat16": _BFLOAT16,
    "Part": _PART,
    "inside": _INSIDE,
    "check_index": _CHECK_INDEX,
    **CUDA_HELPERS,
}
_WORD = re.compile(r"\b(?:to_)?(\w+)\b")


def prelude(kernel: str) -> str:
    """The functions that the text of a kernel names, and those that these name."""
    needed: set[str] = set()
    waiting = [kernel]
    while waiting:
        words = set(_WORD.findall(waiting.pop())) & _FUNCTIONS.keys()
        waiting.extend(_FUNCTIONS[name] for name in words - needed)
        needed |= words
    return "\n".join(text for name, text in _FUNCTIONS.items() if name in needed)


# --- combining ------------------------------------------------------------------------------------


def combined(reducer: str, left: str, right: str) -> str:
    """The C++ expression that combines two variables."""
    return stripped(FUNCTIONS[REDUCERS[reducer].combine].cuda.format(left, right))


def identity(reducer: str, dtype: DType) -> str:
    """The literal of the identity element."""
    return literal(REDUCERS[reducer].identity(dtype), dtype)


def row_function(reducer: str, dtype: DType, lanes: int) -> tuple[str, str]:
    """The name and the text of the function that combines the values of all lanes of a row.

    Every lane gets the result. Lanes of a warp exchange values by shuffles, warps through shared
    memory. The order is fixed, so results are deterministic.
    """
    name = f"row_{reducer}_{dtype.name}"
    ctype = compute_type(dtype)
    shuffled = "(int)value" if dtype.itemsize < 4 and dtype.compute is dtype else "value"
    body = f"""\
static __device__ {ctype} {name}({ctype} value)
{{
    for (int distance = 16; distance > 0; distance /= 2) {{
        const {ctype} other = __shfl_xor_sync(0xffffffffu, {shuffled}, distance);
        value = {combined(reducer, "value", "other")};
    }}
"""
    if lanes > 32:
        body += f"""\
    __shared__ {ctype} of_warp[{lanes // 32}];
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < {lanes // 32}; ++warp) {{
        const {ctype} other = of_warp[warp];
        value = {combined(reducer, "value", "other")};
    }}
"""
    return name, body + "    return value;\n}\n"


def scan_function(reducer: str, dtype: DType, lanes: int) -> tuple[str, str]:
    """The name and the text of the function that combines the values of all earlier lanes of a row.

    Every lane gets that of the lanes before it, and in place of its own value that of all lanes.
    Neighbouring groups of lanes exchange what they have, and double in size each time; then each
    lane combines what the warps have in turn.
    """
    name = f"before_{reducer}_{dtype.name}"
    ctype, start = compute_type(dtype), identity(reducer, dtype)
    shuffled = "(int)value" if dtype.itemsize < 4 and dtype.compute is dtype else "value"
    body = f"""\
static __device__ {ctype} {name}({ctype}& value)
{{
    {ctype} before = {start};
    for (int distance = 1; distance < 32; distance *= 2) {{
        const {ctype} other = __shfl_xor_sync(0xffffffffu, {shuffled}, distance);
        if (threadIdx.x & distance) {{
            before = {combined(reducer, "other", "before")};
            value = {combined(reducer, "other", "value")};
        }} else {{
            value = {combined(reducer, "value", "other")};
        }}
    }}
"""
    if lanes > 32:
        body += f"""\
    __shared__ {ctype} of_warp[{lanes // 32}];
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    {ctype} outside = value = {start};
    for (int warp = 0; warp < {lanes // 32}; ++warp) {{
        const {ctype} other = of_warp[warp];
        if (warp == threadIdx.x / 32) outside = value;
        value = {combined(reducer, "value", "other")};
    }}
    before = {combined(reducer, "outside", "before")};
"""
    return name, body + "    return before;\n}\n"


# --- atomic updates -------------------------------------------------------------------------------

# The type that atomicAdd knows for an element type; the rest loops over compare-and-swap. The first
# read is volatile, since other threads change the word: a plain one would be a data race with them.
_ATOMIC_ADD = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "unsigned long long",
}


def update_function(reducer: str, dtype: DType) -> tuple[str, str]:
    """The name and the text of the function that combines a value into memory atomically."""
    name = f"update_{reducer}_{dtype.name}"
    parameters = f"{storage_type(dtype)}* target, {compute_type(dtype)} value"
    head = f"static __device__ void {name}({parameters})"
    if reducer == "add" and dtype.name in _ATOMIC_ADD:
        known = _ATOMIC_ADD[dtype.name]
        return name, f"{head}\n{{\n    atomicAdd(({known}*)target, ({known})value);\n}}\n"
    if dtype.itemsize < 4:
        return name, f"{head}\n{_part_of_word(reducer, dtype)}"
    return name, f"{head}\n{_whole_word(reducer, dtype)}"


_AS_BITS = {
    "float32": ("__float_as_int({})", "__int_as_float({})"),
    "float64": ("__double_as_longlong({})", "__longlong_as_double({})"),
}


def _whole_word(reducer: str, dtype: DType) -> str:
    word = "unsigned" if dtype.itemsize == 4 else "unsigned long long"
    ctype = storage_type(dtype)
    to_bits, from_bits = _AS_BITS.get(dtype.name, ("{}", f"({ctype}){{}}"))
    return f"""\
{{
    {word}* const word = ({word}*)target;
    {word} seen = *(volatile {word}*)word, expected;
    do {{
        expected = seen;
        const {ctype} old = {from_bits.format("seen")};
        const {ctype} next = {combined(reducer, "old", "value")};
        seen = atomicCAS(word, expected, ({word}){to_bits.format("next")});
    }} while (seen != expected);
}}
"""


def _part_of_word(reducer: str, dtype: DType) -> str:
    """The compare-and-swap of an element that is a part of an aligned 32-bit word."""
    ctype = compute_type(dtype)
    mask = (1 << (8 * dtype.itemsize)) - 1
    if is_narrow_float(dtype):
        stored = storage_type(dtype)
        old = f"to_float({stored}{{(unsigned short)(seen >> shift)}})"
        bits = f"(unsigned)to_{stored}(next).bits"
    else:
        old = f"({ctype})((seen >> shift) & {mask:#x}u)"
        bits = f"((unsigned)next & {mask:#x}u)"
    return f"""\
{{
    unsigned* const word = (unsigned*)((unsigned long long)target & ~3ull);
    const unsigned shift = 8 * ((unsigned long long)target & 3ull);
    unsigned seen = *(volatile unsigned*)word, expected;
    do {{
        expected = seen;
        const {ctype} old = {old};
        const {ctype} next = {combined(reducer, "old", "value")};
        seen = atomicCAS(word, expected, (seen & ~({mask:#x}u << shift)) | ({bits} << shift));
    }} while (seen != expected);
}}
"""
