"""The low-level IR: loop nests over buffers. LLVM IR and CUDA C++ are two printers of it.

Integers that shape a nest (extents, strides, offsets, bounds) are literals or arguments of the
kernel; `generalise` turns those in which two nests differ into arguments, so that one compiled
kernel serves many sizes.

    stmt  ::= For(axis, extent, kind, body, accumulators) | Let | CheckedIndex | Store | Update
            | Prefetch | Accumulate | Alloc | MicroKernel | WarpProduct | ForeignCall
    expr  ::= Load | Number | RealArgument | IndexValue | Apply | Choose | Name
    index ::= constant + sum of factor * integer        factor ::= LoopIndex | ValueIndex | // | %
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from metaop.unified_graph.dtype import DType
from metaop.unified_graph.interning import never_equal_to_others
from metaop.unified_graph.symbolic import surely_equal


class Argument(NamedTuple):
    """An integer that the kernel receives when it runs: element `position` of its scalars.

    A natural one is never negative, a wide one at least `WIDE`, a near one at most `NEAR`.
    """

    position: int
    is_natural: bool = False
    is_wide: bool = False
    is_near: bool = False

    def __repr__(self) -> str:
        return f"arg{self.position}"


Integer = int | Argument

# How many neighbours processors multiply in one step: pairs of bfloat16 (AVX-512-BF16) or of 16-bit
# integers, and four 8-bit ones (VNNI), in each lane of a vector register; a row of bfloat16 in a
# matrix register (AMX).
PAIR, QUAD, MATRIX = 2, 4, 32

# So many neighbouring lanes lie in at most two runs of a wide divisor: a vector of float32.
WIDE = 16
# Lanes are divided by divisors up to this one in single precision.
NEAR = 1 << 21

# Lanes with at most this stride are read in whole vectors, others are gathered.
LONGEST_STRIDE = 4


# --- indices --------------------------------------------------------------------------------


@never_equal_to_others
class LoopIndex(NamedTuple):
    """The variable of an enclosing loop."""

    axis: str

    def __repr__(self) -> str:
        return self.axis


@never_equal_to_others
class ValueIndex(NamedTuple):
    """An integer value bound by Let or CheckedIndex; it may differ from lane to lane."""

    name: str

    def __repr__(self) -> str:
        return f"[{self.name}]"


@never_equal_to_others
class QuotientIndex(NamedTuple):
    """`dividend // divisor` with a positive divisor; the dividend is never negative."""

    dividend: Sum
    divisor: Integer

    def __repr__(self) -> str:
        return f"({self.dividend!r} // {self.divisor})"


@never_equal_to_others
class RemainderIndex(NamedTuple):
    """`dividend % divisor` with a positive divisor; the dividend is never negative."""

    dividend: Sum
    divisor: Integer

    def __repr__(self) -> str:
        return f"({self.dividend!r} % {self.divisor})"


Factor = LoopIndex | ValueIndex | QuotientIndex | RemainderIndex


class Sum(NamedTuple):
    """`constant + Σ factor * coefficient`; int64 arithmetic."""

    terms: tuple[tuple[Factor, Integer], ...]
    constant: Integer

    def __repr__(self) -> str:
        parts = [repr(f) if surely_equal(c, 1) else f"{f!r}*{c}" for f, c in self.terms]
        if not surely_equal(self.constant, 0) or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


@never_equal_to_others
class InBounds(NamedTuple):
    """`0 <= index < extent`."""

    index: Sum  # type: ignore[assignment]  # no form is searched as a tuple
    extent: Integer

    def __repr__(self) -> str:
        return f"0 <= {self.index!r} < {self.extent}"


@never_equal_to_others
class MultipleOf(NamedTuple):
    """`index % divisor == 0`; the index may be negative."""

    index: Sum  # type: ignore[assignment]  # no form is searched as a tuple
    divisor: Integer

    def __repr__(self) -> str:
        return f"{self.index!r} % {self.divisor} == 0"


Condition = InBounds | MultipleOf


# --- expressions ----------------------------------------------------------------------------


class Number(NamedTuple):
    """A literal of a type."""

    value: Any  # a number, or a symbolic one
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.value}:{self.dtype.name}"


class RealArgument(NamedTuple):
    """A real number that the kernel receives, as the bits of a double in an argument."""

    argument: Argument
    dtype: DType

    def __repr__(self) -> str:
        return f"real {self.argument}:{self.dtype.name}"


class Load(NamedTuple):
    """Element `offset` of a buffer where all conditions hold, else `fill` (never read then).

    `around` elements before it and after it may also be read.
    """

    buffer: int
    offset: Sum
    dtype: DType
    conditions: tuple[Condition, ...] = ()
    fill: int | float | bool = 0
    around: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        text = f"b{self.buffer}[{self.offset!r}]"
        if self.conditions:
            holds = " and ".join(map(repr, self.conditions))
            text = f"({text} if {holds} else {self.fill})"
        return text


class IndexValue(NamedTuple):
    """An index as an int64 value."""

    index: Sum  # type: ignore[assignment]  # no form is searched as a tuple

    def __repr__(self) -> str:
        return f"int({self.index!r})"


class Apply(NamedTuple):
    """A row of the function table applied to operands of one type; `dtype` is the result's.

    `operand_dtype` is the type of the operands ("where" excepts its first, a bool); "cast"
    converts from it to `dtype`.
    """

    function: str
    operands: tuple[Expr, ...]
    dtype: DType
    operand_dtype: DType

    def __repr__(self) -> str:
        name = f"cast<{self.dtype.name}>" if self.function == "cast" else self.function
        return f"{name}({', '.join(map(repr, self.operands))})"


class Choose(NamedTuple):
    """`value` where all conditions hold, else `otherwise`; both are computed."""

    conditions: tuple[Condition, ...]
    value: Expr
    otherwise: Expr
    dtype: DType

    def __repr__(self) -> str:
        holds = " and ".join(map(repr, self.conditions))
        return f"({self.value!r} if {holds} else {self.otherwise!r})"


class Name(NamedTuple):
    """A value bound by Let, or the result of an accumulator after its loop."""

    name: str
    dtype: DType

    def __repr__(self) -> str:
        return self.name


Expr = Number | RealArgument | Load | IndexValue | Apply | Choose | Name


def parts_of(expr: Expr, seen: set[int] | None = None) -> Iterator[Expr]:
    """All subexpressions that are not in `seen` (by identity), each once."""
    seen = set() if seen is None else seen
    stack = [expr]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Apply):
            stack.extend(part.operands)
        elif isinstance(part, Choose):
            stack += [part.value, part.otherwise]


# --- statements -----------------------------------------------------------------------------


@never_equal_to_others
class Let(NamedTuple):
    """Binds a name to a value for the rest of the enclosing body."""

    name: str
    value: Expr


class CheckedIndex(NamedTuple):
    """Binds `name` to an int64 value that must lie in `0 … bound-1`.

    A value outside writes {1, operator, value, bound} to the kernel's error slot (first one wins)
    and counts as 0, so that no access leaves its buffer. Where `conditions` do not hold the value
    is not checked and counts as 0. `operator` is the number of a kind of faults, of which
    `metaop.unified_graph.faults` has the table. Where that is not about indices, the value is a
    truth value, of which 1 is the fault, the bound is 1, and nobody uses the name.
    """

    name: str
    value: Expr
    bound: Integer
    operator: int
    conditions: tuple[Condition, ...] = ()


class Store(NamedTuple):
    """Writes a value to a buffer where all conditions hold."""

    buffer: int
    offset: Sum
    value: Expr
    conditions: tuple[Condition, ...] = ()


class Update(NamedTuple):
    """`buffer[offset] = combine(buffer[offset], value)`, lanes one after another when they may
    collide; `atomic` when other tasks may write the same element."""

    buffer: int
    offset: Sum
    reducer: str
    value: Expr
    conditions: tuple[Condition, ...] = ()
    atomic: bool = False


class Accumulator(NamedTuple):
    """A value that a loop carries: starts at the reducer's identity, combined by Accumulate.

    In the body, behind Accumulate, the name of one that is `running` is bound to the value so far,
    in a vector loop to that of every lane.
    """

    name: str
    reducer: str
    dtype: DType
    running: bool = False


@never_equal_to_others
class Prefetch(NamedTuple):
    """A prefetch hint: an element, which need not exist, and its neighbours will be read soon.

    They are loaded to the `nearest` cache, or else to the next one.
    """

    buffer: int  # type: ignore[assignment]
    offset: Sum  # type: ignore[assignment]
    nearest: bool = False


@never_equal_to_others
class Accumulate(NamedTuple):
    """`name = combine(name, value)` for an accumulator of an enclosing loop."""

    name: str
    value: Expr


class Alloc(NamedTuple):
    """Scratch memory, private to a task, under a negative buffer number.

    `space` is "scratch", or on a GPU "shared" (by the lanes of a task) or "register" (each lane
    has its own).
    """

    buffer: int
    elements: Integer
    dtype: DType
    space: str = "scratch"


# The steps of a micro-kernel per turn of its loop; each turn makes every prefetch once.
STEPS = 4


class Ahead(NamedTuple):
    """A prefetch of a micro-kernel: an element, which need not exist, at each turn of STEPS steps.

    It is made where all conditions hold. Groups of `lanes` turns advance by `along` per turn, turns
    of a group by `across`.
    """

    buffer: int
    offset: Sum
    along: Integer
    across: Integer
    lanes: int
    conditions: tuple[Condition, ...] = ()


class MicroKernel(NamedTuple):
    """The register-tiled inner product of packed panels, added to a tile of scratch memory.

    `left` is packed [k][rows], the rows padded to `pitch_of` them, or its rows lie `left_stride`
    apart with neighbours along k;
    `right` is packed [k][columns]. With `accumulate` 0 the tile `target` [rows][stride] is
    overwritten, else added to. Offsets are in elements. There are `depth` steps, each of which
    multiplies `step` neighbours along k: 1 number; or PAIR of bfloat16, or of int16 where sums are
    int32, or QUAD of 8 bits, which are packed as one element of 32 bits; or as many as a row of a
    MATRIX register holds, where `right` is packed in pairs and `left` has a `left_stride`. Of
    a QUAD `signs` tells for both factors whether numbers are "s"igned or "u"nsigned. Meanwhile it
    asks for what is `ahead`: at each turn for one element of each whose conditions hold.
    """

    left: int
    left_offset: Sum
    right: int
    right_offset: Sum
    target: int
    target_offset: Sum
    target_stride: Integer
    rows: int
    columns: int
    depth: Sum
    accumulate: Sum
    dtype: DType
    left_stride: Integer | None = None
    step: int = 1
    ahead: tuple[Ahead, ...] = ()
    signs: str = ""

    @property
    def left_pitch(self) -> int:
        """The elements from a step of packed rows to the next one."""
        return pitch_of(self.rows)

    @property
    def packed_steps(self) -> int:
        """The packed elements of the right factor that a step multiplies."""
        return self.step // PAIR if self.step == MATRIX else 1


def pitch_of(rows: int) -> int:
    """The elements that a step of packed rows takes: whole vectors, or a part that fills one."""
    return 1 << (rows - 1).bit_length()


# The lanes of a warp, and the steps of the depth that its tensor cores multiply at once.
WARP, WARP_STEPS = 32, 16
# The rows and columns of such a product, of which each lane has as many sums in turn.
WARP_ROWS, WARP_COLUMNS, WARP_SUMS = 16, 8, 4


# Neighbours in shared memory that are moved together: 16 bytes of 16-bit floats; so many lie in
# different banks.
CHUNK, CHUNKS = 8, 8


class SharedPanel(NamedTuple):
    """A factor of a warp's product in shared memory, in lines of `length` elements.

    Lines run `along` the depth, so that each is a row or a column, or across it, so that each is a
    step. The product reads from the line at `offset` on, and from a `chunk` of each line on. Groups
    of at most CHUNKS chunks of a line are rotated, so that those of neighbouring lines lie in
    different banks: with g chunks in a group, chunk c of line l is at c + l // (CHUNKS // g) modulo
    g in its group.
    """

    buffer: int
    offset: Sum
    chunk: Sum
    length: int
    along: bool


class WarpProduct(NamedTuple):
    """The product of two panels of 16-bit floats, WARP_STEPS deep, added to a tile of a warp.

    The lanes of a warp make it together, so all must come here. The tile, `rows` by `columns` sums
    of float32, lies in register memory, in rectangles of WARP_ROWS by WARP_COLUMNS. Of each, a lane
    has WARP_SUMS: columns 2 * (lane % 4) and the next, in row lane // 4 and in the one 8 below it.
    """

    left: SharedPanel
    right: SharedPanel
    target: int
    rows: int
    columns: int
    dtype: DType


class ForeignCall(NamedTuple):
    """Calls `symbol` of a text in the language of a backend: `symbol(buffers…, task)`.

    `texts` pairs backends with texts. If the function is already machine code, it is at `address`,
    and the kernel is not stored on disk. On a GPU, `threads` threads make the call together.
    """

    symbol: str
    texts: tuple[tuple[str, str], ...]
    buffers: tuple[int, ...]
    task: Sum
    threads: int = 1
    address: Argument | None = None

    def __repr__(self) -> str:
        operands = "".join(f"b{buffer}, " for buffer in self.buffers)
        return f"call {self.symbol}({operands}{self.task!r}) threads {self.threads}"


class For(NamedTuple):
    """A loop `axis = 0 … extent-1`; a serial loop may have an extent that only the run tells.

    `kind` is "parallel" (the outermost loop: its range is split into tasks), "serial" or
    "unroll". `vector` lets lanes run side by side: the body then holds straight-line statements
    and serial loops only, iterations are independent but for the accumulators. After the loop the
    names of its accumulators are bound to their final values. Of a vector loop that is `literal`
    the lanes have known places, which decide about masks: nothing around it becomes an argument.
    """

    axis: str
    extent: Integer | ValueIndex
    kind: str
    body: tuple[Statement, ...]
    accumulators: tuple[Accumulator, ...] = ()
    vector: bool = False
    literal: bool = False


Statement = (
    Let
    | CheckedIndex
    | Store
    | Update
    | Prefetch
    | Accumulate
    | Alloc
    | MicroKernel
    | WarpProduct
    | ForeignCall
    | For
)


def simple_statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements of a body and of its loops, without the loops themselves."""
    for statement in body:
        if isinstance(statement, For):
            yield from simple_statements(statement.body)
        else:
            yield statement


class Parameter(NamedTuple):
    """A buffer argument of the kernel; `role` is "read", "write" or "update".

    A `streamed` buffer will not be read soon, so it may be written around the caches.
    """

    dtype: DType
    role: str
    streamed: bool = False


class LoopNest(NamedTuple):
    """A kernel: its buffers, the values of its integer arguments, and its statements.

    The body is a sequence of statements of which at most one, the last, is a parallel loop; with
    none the kernel is one task. A thread takes `grain` parallel iterations at a time, which follows
    from the processor and from `work`, the operations of one of them (0: each is worth a thread).
    """

    name: str
    parameters: tuple[Parameter, ...]
    arguments: tuple[int, ...]
    body: tuple[Statement, ...]
    grain: int = 1
    work: int = 0

    @property
    def tasks(self) -> int:
        """The iterations of the parallel loop (1 if there is none)."""
        last = self.body[-1] if self.body else None
        if isinstance(last, For) and last.kind == "parallel":
            extent = last.extent
            assert not isinstance(extent, ValueIndex)
            return self.arguments[extent.position] if isinstance(extent, Argument) else extent
        return 1
