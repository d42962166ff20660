"""`vmap`: a function of one element, computed for a whole batch at once.

The function runs once, on the first element, and records calls. These are recorded again with one
more axis (see `metaop.batching`). A function that reads a value cannot be treated so, because what
it does may depend on the element: it runs once for each of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from metaop.batching.calls import depending, record_batched
from metaop.errors import ArgumentError, UnsupportedError
from metaop.operators.random import seeds
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import zeros
from metaop.tensor.functions.joining import cat, stack
from metaop.tensor.functions.shaping import expand, movedim, narrow, select, unsqueeze
from metaop.tensor.generator import default_generator
from metaop.trees import TreeSpec, tree_flatten, tree_unflatten
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.tracing import Trace, state

_RANDOMNESS = ("error", "different", "same")


class _ValueRead(BaseException):
    """Raised through the user's function, past its `except Exception`, when it reads a value."""


def _stop() -> None:
    raise _ValueRead


class _Batch(NamedTuple):
    """The arguments as flat leaves, the mapped dimension of each (None: not mapped), the size."""

    leaves: list[Any]
    structure: TreeSpec
    dims: list[int | None]
    size: int

    def arguments(self, choose: Callable[[Tensor, int], Any]) -> Any:
        """The arguments with `choose(leaf, dimension)` for every mapped leaf."""
        chosen = [
            leaf if dim is None else choose(leaf, dim) for leaf, dim in zip(self.leaves, self.dims)
        ]
        return tree_unflatten(chosen, self.structure)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` for all elements along dimension `in_dims` of the arguments (None: not mapped).

    `in_dims` is one number, or a nest of numbers as the arguments are nested; the results have the
    batch at `out_dims`. Random numbers are an error, "different" or the "same" for each element. At
    most `chunk_size` elements are computed at once.

    >>> dots = metaop.vmap(metaop.dot, in_dims=(0, None))
    >>> dots(metaop.tensor([[1.0, 2.0], [3.0, 4.0]]), metaop.tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    if randomness not in _RANDOMNESS:
        raise ArgumentError(
            f"vmap: randomness is {randomness!r}", fix=f"use one of {', '.join(_RANDOMNESS)}"
        )

    @wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        batch = _batch_of(args, in_dims)
        parts = []
        step = chunk_size or max(batch.size, 1)
        for start in range(0, max(batch.size, 1), step):
            length = min(step, batch.size - start)
            part = batch if length == batch.size else _narrowed(batch, start, length)
            parts.append(_mapped(func, part, kwargs, out_dims, randomness))
        return parts[0] if len(parts) == 1 else _joined(parts, out_dims, cat)

    return function


def _batch_of(args: tuple[Any, ...], in_dims: Any) -> _Batch:
    leaves, structure = tree_flatten(args)
    given = _spread(in_dims, structure, "in_dims")
    dims: list[int | None] = []
    for leaf, dim in zip(leaves, given):
        if dim is None or not isinstance(leaf, Tensor):
            if dim is not None and in_dims != 0:
                raise ArgumentError(
                    f"vmap: in_dims is {dim} for an argument of type {type(leaf).__name__}",
                    fix="pass a tensor, or None in in_dims",
                )
            dims.append(None)
        else:
            dims.append(wrap_dim(dim, leaf.ndim))
    sizes = {leaf.shape[dim] for leaf, dim in zip(leaves, dims) if dim is not None}
    if len(sizes) != 1:
        problem = f"the mapped dimensions have sizes {sorted(sizes)}" if sizes else "nothing to map"
        raise ArgumentError(f"vmap: {problem}", fix="make the sizes equal, and map an argument")
    return _Batch(leaves, structure, dims, sizes.pop())


def _spread(dims: Any, structure: TreeSpec, name: str) -> list[int | None]:
    """A number, or a nest of numbers, as one for each leaf of a nest."""
    if dims is None or isinstance(dims, int):
        return [dims] * structure.num_leaves
    opened = list(dims.values()) if isinstance(dims, dict) else list(dims)
    if len(opened) != len(structure.children_specs):
        raise ArgumentError(
            f"vmap: {name} has {len(opened)} entries for {len(structure.children_specs)} values",
            fix="nest it as the values are nested",
        )
    children = zip(opened, structure.children_specs)
    return [dim for one, child in children for dim in _spread(one, child, name)]


def _narrowed(batch: _Batch, start: int, length: int) -> _Batch:
    leaves = [
        leaf if dim is None else narrow(leaf, dim, start, length)
        for leaf, dim in zip(batch.leaves, batch.dims)
    ]
    return batch._replace(leaves=leaves, size=length)


def _mapped(
    func: Callable[..., Any], batch: _Batch, kwargs: Any, out_dims: Any, randomness: str
) -> Any:
    draws = default_generator.position
    found = _at_once(func, batch, kwargs, out_dims, randomness)
    if found is None:
        found = _one_by_one(func, batch, kwargs, out_dims, randomness)
    if randomness == "error" and default_generator.position != draws:
        raise UnsupportedError(
            "vmap: called random operation while in randomness error mode",
            fix='pass randomness="same" or randomness="different"',
        )
    return found


# --- all at once ----------------------------------------------------------------------------


def _at_once(
    func: Callable[..., Any], batch: _Batch, kwargs: Any, out_dims: Any, randomness: str
) -> Any:
    """The results by one more axis; None when the function has to run for each element."""
    outer, trace = state.trace, Trace(_stop)
    firsts: list[Tensor] = []
    elements: dict[Call, Call] = {}

    def first(leaf: Tensor, dim: int) -> Tensor:
        element = _first_element(leaf, dim, batch.size)
        firsts.append(element)
        elements[element.call] = movedim(leaf, dim, 0).call
        return element

    arguments = batch.arguments(first)
    state.trace = trace
    try:
        result = func(*arguments, **kwargs)
    except _ValueRead:
        return None
    finally:
        state.trace = outer
    values, structure = tree_flatten(result)
    if randomness == "different":
        if trace.reasons:
            return None
        drawn = [call for step in trace.steps for call in step.calls]
        elements |= {call: record(seeds, (call,), (batch.size,)) for call in drawn}
    calls = [_tensor(value).call for value in values]
    written = [element.call for element in firsts]
    order = depending([*calls, *written], elements)
    if _has_own_gradients(order, elements):
        return None
    _check_writes(order, elements, [*values, *firsts], trace.started)
    if outer is not None:
        outer.steps += trace.steps
        outer.reasons += trace.reasons
    done = record_batched(order, elements)
    _write_back(batch, elements, written, done)
    dims = _spread(out_dims, structure, "out_dims")
    placed = [_placed(call, dim, done, batch.size) for call, dim in zip(calls, dims)]
    return tree_unflatten(placed, structure)


def _first_element(leaf: Tensor, dim: int, size: int) -> Tensor:
    """The value that the function records on, without the storage of the batch."""
    if size == 0:
        shape = (*leaf.shape[:dim], *leaf.shape[dim + 1 :])
        return zeros(shape, dtype=leaf.dtype, device=leaf.device)
    return wrap(select(leaf, dim, 0).call)


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ArgumentError(
            f"vmap: the function must only return Tensors, got type {type(value).__name__}",
            fix="return tensors, or tuples, lists and dicts of them",
        )
    return value


def _has_own_gradients(order: Sequence[Call], elements: dict[Call, Call]) -> bool:
    """Whether a gradient may be asked for that user code computes, for one element."""
    inside = set(order)
    outside = {source for call in order for source in call.inputs} - inside
    tracked = any(elements.get(call, call).requires_grad for call in outside)
    return tracked and any(
        call.requires_grad and call.tape is not None and call.tape.has_user_code for call in order
    )


def _check_writes(
    order: Sequence[Call], elements: dict[Call, Call], kept: Sequence[Tensor], started: int
) -> None:
    """A tensor that is not mapped cannot take the values of a batch."""
    if not _reads_overwritten(order, started):
        if not _written_elsewhere(elements, kept, started):
            return
        # What only cycles hold is not alive.
        gc.collect()
        if not _written_elsewhere(elements, kept, started):
            return
    raise UnsupportedError(
        "vmap: the function writes a tensor that is not mapped",
        fix="write a clone, or return the value",
    )


def _reads_overwritten(order: Sequence[Call], started: int) -> bool:
    """Whether a value from before the function ran was replaced by one that came from it."""
    epochs = [
        source.epoch
        for call in order
        for source in call.inputs
        if source.sequence < started and source.epoch is not None
    ]
    return any(epoch.ended_at > started for epoch in epochs)


def _written_elsewhere(elements: dict[Call, Call], kept: Sequence[Tensor], started: int) -> bool:
    """Whether a tensor that is not a result took a value that varies, and is alive."""
    known = {id(storage) for tensor in kept for storage in (tensor, tensor._base, tensor._cell)}
    handles = [reference() for reference in recorder.own.handles]
    written = [
        handle._call
        for handle in handles
        if isinstance(handle, Tensor) and handle._writes > 0 and id(handle) not in known
    ]
    recent = [call for call in written if call.sequence > started]
    return not set(depending(recent, elements)).isdisjoint(recent)


def _write_back(
    batch: _Batch, elements: dict[Call, Call], written: Sequence[Call], done: dict[Call, Call]
) -> None:
    """What the function wrote into its arguments is written into the batches."""
    mapped = [(leaf, dim) for leaf, dim in zip(batch.leaves, batch.dims) if dim is not None]
    for (leaf, dim), call, start in zip(mapped, written, elements):
        if call is not start:
            movedim(leaf, dim, 0).copy_(wrap(done.get(call, call)))  # type: ignore[attr-defined]


def _placed(call: Call, dim: int | None, done: dict[Call, Call], size: int) -> Tensor:
    """A result with the batch at `dim`; the same for all elements where it does not vary.

    It lies in memory in the order of its own dimensions, like one that is joined from elements, so
    any view of it is possible.
    """
    if call not in done:
        alone = wrap(call)
        if dim is None:
            return alone
        result = expand(unsqueeze(alone, 0), (size, *call.type.shape))
    elif dim is None:
        raise ArgumentError(
            "vmap: out_dims is None for a result that varies in the batch", fix="pass a dimension"
        )
    else:
        result = wrap(done[call])
    return result if dim == 0 else movedim(result, 0, dim).contiguous()


# --- one by one -----------------------------------------------------------------------------


def _one_by_one(
    func: Callable[..., Any], batch: _Batch, kwargs: Any, out_dims: Any, randomness: str
) -> Any:
    results = []
    start = default_generator.get_state()
    for position in range(batch.size):
        if randomness == "same":
            default_generator.set_state(start)
        arguments = batch.arguments(lambda leaf, dim, k=position: select(leaf, dim, k))  # type: ignore
        results.append(func(*arguments, **kwargs))
    if not results:
        raise UnsupportedError("vmap: a function that reads values has no batch without elements")
    return _joined(results, out_dims, lambda column, dim: stack([_tensor(x) for x in column], dim))


def _joined(parts: Sequence[Any], out_dims: Any, join: Callable[[Any, int], Tensor]) -> Any:
    """The results of elements or of chunks, in one nest whose tensors are joined."""
    flat = [tree_flatten(part) for part in parts]
    structure = flat[0][1]
    dims = _spread(out_dims, structure, "out_dims")
    columns = zip(*(values for values, _ in flat))
    joined = [column[0] if dim is None else join(column, dim) for column, dim in zip(columns, dims)]
    return tree_unflatten(joined, structure)
