"""Control flow in the graph: loops and conditionals whose functions run once as Python.

A function becomes the graph of one step, which the program repeats: neither its size nor its
compilation time grows with the number of steps. Names, arguments and semantics are those of JAX's
`lax` and of PyTorch's higher-order operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.control_flow.associative import combined
from metaop.control_flow.tracing import Step, flattened, traced
from metaop.errors import ArgumentError, ArgumentTypeError, ControlFlowError, ShapeError
from metaop.operators.repetition import choose, repeat
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.shaping import movedim
from metaop.tensor.grad_mode import no_grad
from metaop.trees import TreeSpec, tree_flatten, tree_unflatten
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.loop import ENDLESS, can_repeat
from metaop.unified_graph.recording import record, results
from metaop.unified_graph.tensor_type import TensorType

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "while_loop"]


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """`true_fn(*operands)` if `pred` holds, else `false_fn(*operands)`; only one is computed.

    `pred` is a bool, or a tensor of one element, which is not read. Both functions run once as
    Python, and return nests of tensors of the same shapes and types; they may close over tensors.
    Raises ControlFlowError if the results differ in structure, or if a function has side effects.

    >>> x = metaop.tensor([-1.0, 2.0])
    >>> metaop.cond(x.sum() > 0, lambda x: x * 10, lambda x: -x, (x,))
    tensor([-10.,  20.])
    """
    if not isinstance(operands, (tuple, list)):
        raise ArgumentTypeError(
            f"cond: operands are a {type(operands).__name__}, not a tuple", fix="pass (x,)"
        )
    if isinstance(pred, (bool, int, float)):
        return (true_fn if pred else false_fn)(*operands)
    if not isinstance(pred, Tensor) or pred.numel() != 1:
        found = (
            f"shape {list(pred.shape)}" if isinstance(pred, Tensor) else f"{type(pred).__name__}"
        )
        raise ArgumentError(
            f"cond: expected a bool or a tensor with a single element as pred, got {found}",
            fix="reduce it with .any() or .all(), or choose elements with metaop.where",
        )
    given, structure = flattened("cond: operands", tuple(operands))
    types = [x.call.type for x in given]
    steps = [
        traced(f"cond: {name}", function, types, structure)
        for name, function in (("true_fn", true_fn), ("false_fn", false_fn))
    ]
    _check_alike(*steps)
    closed = list(dict.fromkeys([*steps[0].closed, *steps[1].closed]))
    flag = pred.reshape(()).to(dtypes.bool_).call  # type: ignore[attr-defined]
    rest = [*(x.call for x in given), *closed]
    call = record(choose, [flag, *rest], tuple(step.graph(closed) for step in steps))
    return tree_unflatten([wrap(one) for one in results(call)], steps[0].structure)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Any,
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """Runs `body_fn` on its own last result, as long as `cond_fn` of that result is true.

    Both are called with the elements of the tuple `carried_inputs` and then those of
    `additional_inputs`; any other nest is one argument. The result of `body_fn` has the structure,
    shapes and types of `carried_inputs`. Both run once as Python, and no value is read: the program
    itself ends the loop. On GPUs and for global tensors both run as Python for every step, and the
    condition is read. There is no gradient, because the number of steps is unbounded.

    >>> metaop.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, (metaop.tensor([1.0, 2.0]),))
    (tensor([ 64., 128.]),)
    """
    is_tuple = isinstance(carried_inputs, (tuple, list))
    first = tuple(carried_inputs) if is_tuple else (carried_inputs,)
    count = len(first)
    carried, structure = flattened("while_loop: carried_inputs", first)
    further, _ = flattened("while_loop: additional_inputs", tuple(additional_inputs))
    _, whole = tree_flatten((*first, *additional_inputs))

    def step(*arguments: Any) -> Any:
        new = body_fn(*arguments)
        values = tuple(new) if is_tuple and isinstance(new, (tuple, list)) else (new,)
        return _flag(cond_fn(*values, *arguments[count:])), values

    begin = _flag(cond_fn(*tree_unflatten([*carried, *further], whole)))
    found = traced("while_loop: body_fn", step, [x.call.type for x in (*carried, *further)], whole)
    _, expected = tree_flatten((0, tree_unflatten(carried, structure)))
    kinds = [begin.call.type, *(x.call.type for x in carried)]
    _check_carried(found, kinds, expected, len(kinds))
    calls = [begin.call, *(x.call for x in (*carried, *further)), *found.closed]
    first = tree_unflatten(carried, structure)
    if all(can_repeat(call.type.device) for call in calls):
        alike = (False,) * (len(calls) - len(kinds))
        attributes = (found.graph(found.closed), 2, alike, ENDLESS, False, True, False)
        _, *last = results(record(repeat, calls, attributes))
        values = tree_unflatten([wrap(one) for one in last], structure)
    else:
        values = _ended_by_reads(begin, first, lambda *now: step(*now, *additional_inputs))
    return type(carried_inputs)(values) if is_tuple else values[0]


def _ended_by_reads(going: Tensor, values: Any, step: Callable[..., Any]) -> Any:
    """What is carried after all steps, each of which says whether there is another one."""
    with no_grad():
        while going.item():  # type: ignore[attr-defined]
            going, values = step(*values)
    return values


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Tensor, Any], Any],
    init_val: Any,
    *,
    recompute: bool = False,
) -> Any:
    """`init_val` after `value = body_fun(i, value)` for i from `lower` to `upper - 1`.

    `i` is an int64 tensor; `value` is a nest of tensors whose structure, shapes and types do not
    change. With integers as bounds, the loop has a gradient, for which it keeps the input of every
    step and, without `recompute`, values that are expensive to compute. Bounds that are tensors are
    not read, and the loop then has no gradient.

    >>> metaop.fori_loop(0, 10, lambda i, x: x / 2 + i, metaop.zeros(2))
    tensor([16.0039, 16.0039])
    """
    first, structure = flattened("fori_loop: init_val", init_val)
    if isinstance(lower, Tensor) or isinstance(upper, Tensor):

        def step(i: Tensor, end: Tensor, *values: Tensor) -> Any:
            new, found = flattened("fori_loop: body_fun", body_fun(i, _nest(values, structure)))
            if found != structure:
                raise _other_structure("fori_loop: body_fun", structure, found)
            return (i + 1, end, *new)

        bounds = [_integer(lower), _integer(upper)]
        ended = while_loop(lambda i, end, *_: i < end, step, (*bounds, *first))
        return _nest(ended[2:], structure)
    if not all(isinstance(one, int) for one in (lower, upper)):
        raise ArgumentTypeError("fori_loop: the bounds must be integers", fix="pass int(bound)")
    length = max(upper - lower, 0)

    def counted(i: Tensor, value: Any, start: Tensor) -> Any:
        return body_fun(i + start, value)

    start = _integer(lower)
    kinds = [x.call.type for x in first]
    _, nested = tree_flatten((start, init_val, start))
    types = [start.call.type, *kinds, start.call.type]
    found = traced("fori_loop: body_fun", counted, types, nested)
    _check_carried(found, kinds, structure, len(kinds))
    calls = [*(x.call for x in first), start.call, *found.closed]
    alike = (False,) * (1 + len(found.closed))
    attributes = (found.graph(found.closed), 0, alike, length, False, False, recompute)
    last = results(record(repeat, calls, attributes))
    return _nest([wrap(one) for one in last], structure)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    dim: int = 0,
    reverse: bool = False,
    recompute: bool = False,
) -> tuple[Any, Any]:
    """The last carry, and all outputs stacked along `dim`, of `carry, y = combine_fn(carry, x)`.

    The carry starts as `init` and keeps its structure, shapes and types; `x` are the slices of the
    nest `xs` along `dim`. If `xs` is None, `length` is the number of steps. With `reverse`, the
    last slice comes first, and outputs keep the positions of their slices. The gradient runs the
    steps backwards. Values that are expensive to compute are kept for it; with `recompute`, only
    the carry of every step is.

    >>> total, sums = metaop.scan(lambda c, x: (c + x, c + x), metaop.zeros(()), metaop.arange(4.0))
    >>> total, sums
    (tensor(6.), tensor([0., 1., 3., 6.]))
    """
    carry, structure = flattened("scan: init", init)
    stacks = [] if xs is None else flattened("scan: xs", xs)[0]
    steps = _length(stacks, length, dim)
    moved = [movedim(x, wrap_dim(dim, x.ndim), 0) for x in stacks]
    kinds = [x.call.type for x in carry]
    elements = [_element(x.call.type) for x in moved]
    nested = tree_flatten((init, xs))[1]
    filled = [*kinds, *elements]
    if xs is None:
        filled, nested = kinds, tree_flatten((init,))[1]

    def step(first: Any, x: Any = None) -> Any:
        made = combine_fn(first, x)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise ControlFlowError(
                "scan: combine_fn must return the next carry and an output",
                fix="return (carry, y), with y = None where there is none",
            )
        after, output = made
        _check_structure("scan: combine_fn", structure, after)
        return after, () if output is None else (output,)

    found = traced("scan: combine_fn", step, filled, nested)
    _check_carried(found, kinds, None, len(kinds))
    calls = [*(x.call for x in carry), *(x.call for x in moved), *found.closed]
    flags = (True,) * len(moved) + (False,) * len(found.closed)
    if not calls or not found.results:
        return init, None
    attributes = (found.graph(found.closed), 1, flags, steps, reverse, False, recompute)
    made = [wrap(one) for one in results(record(repeat, calls, attributes))]
    ys = [movedim(y, 0, wrap_dim(dim, y.ndim)) for y in made[len(kinds) :]]
    # The outputs, which follow the carry, are a tuple of none or one.
    _, after = tree_unflatten([*made[: len(kinds)], *ys], found.structure)
    return _nest(made[: len(kinds)], structure), after[0] if after else None


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for every slice `x` of the nest `xs` along dimension 0, stacked.

    Slices are computed one after the other, with the memory of one; `metaop.vmap` computes all at
    once.

    >>> metaop.map(lambda row: row.sum(), metaop.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([3., 7.])
    """
    return scan(lambda carry, x: (carry, f(x, *args)), (), xs)[1]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int = 0,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """The prefix results of an associative function: `y[i]` combines elements 0 … i along `dim`.

    `combine_fn` takes two nests like `xs` and combines their elements pairwise; it is called
    O(log n) times for n elements, on many at once. With `reverse`, `y[i]` combines the elements
    from `i` to the last one. `combine_mode` is "pointwise", or "generic" for a function of whole
    slices, without dimension `dim`.

    >>> metaop.associative_scan(lambda a, b: a * b, metaop.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 2., 6.])
    """
    return combined(combine_fn, xs, dim, reverse, combine_mode)


# --- what they have in common ---------------------------------------------------------------------


def _nest(leaves: Sequence[Tensor], structure: TreeSpec) -> Any:
    return tree_unflatten(list(leaves), structure)


def _flag(value: Any) -> Tensor:
    flag = flattened("while_loop: the result of cond_fn", value)[0][0]
    if flag.numel() != 1:
        raise ControlFlowError(
            f"while_loop: cond_fn returned shape {list(flag.shape)}, not a single boolean",
            fix="reduce it with .any() or .all()",
        )
    return flag.reshape(()).to(dtypes.bool_)  # type: ignore[attr-defined, no-any-return]


def _integer(value: Any) -> Tensor:
    found = flattened("fori_loop: the bounds", value)[0][0]
    if found.numel() != 1 or found.dtype.is_floating_point:
        raise ArgumentTypeError(
            f"fori_loop: a bound has shape {list(found.shape)} and type {found.dtype}",
            fix="pass an integer, or a tensor of one",
        )
    return found.reshape(()).to(dtypes.int64)  # type: ignore[attr-defined, no-any-return]


def _length(stacks: Sequence[Tensor], length: int | None, dim: int) -> int:
    for x in stacks:
        if not x.ndim:
            raise ShapeError("scan: a tensor of xs has no dimensions", fix="unsqueeze it")
    found = {x.shape[wrap_dim(dim, x.ndim)] for x in stacks}
    if length is not None:
        found.add(length)
    if len(found) != 1:
        problem = f"lengths {sorted(found)}" if found else "neither xs nor a length"
        raise ShapeError(f"scan: {problem}", fix="give all of xs the same size along dim")
    return int(found.pop())


def _element(kind: TensorType) -> TensorType:
    return TensorType(kind.shape[1:], kind.dtype, kind.device)


def _check_structure(name: str, expected: TreeSpec, value: Any) -> None:
    _, found = tree_flatten(value)
    if found != expected:
        raise _other_structure(name, expected, found)


def _other_structure(name: str, expected: TreeSpec, found: TreeSpec) -> ControlFlowError:
    return ControlFlowError(
        f"{name} returned a nest of {found.num_leaves} values where it was given another one of "
        f"{expected.num_leaves}",
        fix="return what is carried as it was given: the same tuples, lists and dicts",
    )


def _check_carried(
    step: Step, kinds: Sequence[TensorType], expected: TreeSpec | None, count: int
) -> None:
    """Raises an error unless the first results of a step have the types of the carried values."""
    if expected is not None and step.structure != expected:
        raise _other_structure(step.name, expected, step.structure)
    for number, (kind, found) in enumerate(zip(kinds, step.types[:count])):
        if (kind.shape, kind.dtype) != (found.shape, found.dtype):
            raise ControlFlowError(
                f"{step.name}: carried value {number} begins as {kind} and becomes {found}",
                fix="begin with the shape and type that the steps make, or convert in the function",
            )


def _check_alike(first: Step, second: Step) -> None:
    if first.structure != second.structure:
        raise ControlFlowError(
            "cond: true_fn and false_fn return different structures",
            fix="return the same nest of tensors from both",
        )
    for number, (one, other) in enumerate(zip(first.types, second.types)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ControlFlowError(
                f"cond: result {number} is {one} of true_fn and {other} of false_fn",
                fix="make shapes and types equal",
            )
