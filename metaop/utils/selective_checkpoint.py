"""Checkpointing that remembers the results of chosen operators."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from metaop.errors import ArgumentTypeError, GradientError
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import Call, part, save_part, watched


class CheckpointPolicy(enum.Enum):
    """What a selective checkpoint does with the results of an operator, of any shape.

    It keeps them (`SAVE`), computes them again in backward (`RECOMPUTE`), or keeps them in the
    memory of the host (`CPU_OFFLOAD`). `MUST` and `PREFER` mean the same here.

    >>> metaop.utils.checkpoint.CheckpointPolicy.MUST_SAVE.value
    0
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
_KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, *_OFFLOADED)


class SelectiveCheckpointContext:
    """What a policy is told besides the operator and its arguments.

    `op_output` is the result, or the tuple of results; its shape is known, its value may not be
    computed yet. `is_recompute` is False: policies decide in the first run only.

    >>> metaop.utils.checkpoint.SelectiveCheckpointContext(is_recompute=False).op_output is None
    True
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any],
    allow_cache_entry_mutation: bool = False,
) -> tuple[Any, Any]:
    """Two contexts for the runs of a checkpointed function: the second takes what the first kept.

    A policy is called as `policy(context, op, *args)` for every operator that the first run
    records; `op` is its name, as `metaop.inspect.calls` shows it: "linear", "matmul", "attention".
    It returns a `CheckpointPolicy`, or True to keep the result. A list of names keeps those.

    Raises GradientError for a second backward pass through the same region, where the second run
    records other operators than the first, and, unless `allow_cache_entry_mutation`, where a
    result that was kept has been written in place. Raises ArgumentTypeError for other lists.

    >>> from functools import partial
    >>> from metaop.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> keep = partial(create_selective_checkpoint_contexts, ["matmul"])
    >>> x = metaop.ones(2, 2, requires_grad=True)
    >>> y = checkpoint(lambda x: (x @ x).exp(), x, use_reentrant=False, context_fn=keep)
    """
    policy = policy_fn_or_list
    if not callable(policy):
        names = frozenset(policy)
        if not all(isinstance(name, str) for name in names):
            raise ArgumentTypeError(
                "create_selective_checkpoint_contexts: operators are named by strings",
                fix='pass names as metaop.inspect.calls shows them, for example ["matmul"]',
            )

        def policy(context: Any, op: str, *args: Any) -> bool:
            return op in names

    kept: dict[str, dict[int, Any]] = defaultdict(dict)
    return _Keeping(policy, kept), _Taking(kept, allow_cache_entry_mutation)


class _Watching:
    """A context that observes every recorded call."""

    def __init__(self, kept: dict[str, dict[int, Any]]) -> None:
        self._kept = kept
        self._counts: dict[str, int] = defaultdict(int)

    def __enter__(self) -> None:
        self._counts.clear()
        self._before = watched.locations, watched.on_record
        watched.locations, watched.on_record = True, self._observe

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        watched.locations, watched.on_record = self._before

    def _observe(self, call: Call) -> None:
        name = call.signature.composite.name  # type: ignore[union-attr]
        if name == "alias":  # a value itself, of which the two runs make different numbers
            return
        place = self._counts[name]
        self._counts[name] += 1
        # What a policy or a transfer records is none of the function's.
        watched.on_record = self._before[1]
        try:
            self._found(name, place, call)
            if self._before[1] is not None:
                self._before[1](call)
        finally:
            watched.on_record = self._observe

    def _found(self, name: str, place: int, call: Call) -> None:
        raise NotImplementedError


_RECOMPUTED = object()


def _results(call: Call) -> tuple[Tensor, ...]:
    count = call.signature.result_count  # type: ignore[union-attr]
    return tuple(wrap(part(call, k)) for k in range(count))


class _Keeping(_Watching):
    """The first run: keeps the results that a policy chooses."""

    def __init__(self, policy: Callable[..., Any], kept: dict[str, dict[int, Any]]) -> None:
        super().__init__(kept)
        self._policy = policy

    def _found(self, name: str, place: int, call: Call) -> None:
        results = _results(call)
        context = SelectiveCheckpointContext(
            is_recompute=False, op_output=results if len(results) > 1 else results[0]
        )
        arguments = (*map(wrap, call.inputs), *call.signature.attributes)  # type: ignore[union-attr]
        policy = self._policy(context, name, *arguments)
        if policy is True or policy in _KEPT:
            values = [one.detach() for one in results]
            if policy in _OFFLOADED:
                values = [one.cpu() for one in values]  # type: ignore[attr-defined]
            self._kept[name][place] = values
        else:
            self._kept[name][place] = _RECOMPUTED


class _Taking(_Watching):
    """The second run: gives calls the values that the first run kept."""

    def __init__(self, kept: dict[str, dict[int, Any]], allow_writes: bool) -> None:
        super().__init__(kept)
        self._allow_writes = allow_writes

    def _found(self, name: str, place: int, call: Call) -> None:
        values = self._kept.get(name, {}).get(place)
        if values is None:
            raise GradientError(
                f"{name} number {place} is recorded in backward, but was not in the first run",
                fix="let the checkpointed function do the same both times",
            )
        if values is _RECOMPUTED:
            return
        if isinstance(values, GradientError):
            raise values
        for index, value in enumerate(values):
            self._require_unwritten(name, value)
            one = part(call, index)
            one.buffer = value.to(one.type.device).buffer()
            if index:
                save_part(call, one)
        self._kept[name][place] = GradientError(
            "Trying to backward an extra time. You are only allowed to backward once on any "
            "region computed under selective activation checkpoint.",
            fix="record the region again",
        )

    def _require_unwritten(self, name: str, value: Tensor) -> None:
        epoch = value.call.epoch
        if epoch is not None and epoch.ended_by is not None and not self._allow_writes:
            raise GradientError(
                f"the result of {name}, kept by a selective checkpoint, was written by "
                f"{epoch.ended_by}",
                fix="pass allow_cache_entry_mutation=True; the value from before is used",
            )
