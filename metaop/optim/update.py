"""Update rules: optimizers whose step is one formula per parameter.

A rule is written on nodes for a single parameter; this module applies it to all parameters of a
group in one composite call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from metaop.codegen.memory.buffers import allocate
from metaop.elementwise.meta_op import cast
from metaop.errors import ArgumentError
from metaop.execution.executor import realize
from metaop.nn.counter import count_of, show_count
from metaop.optim.optimizer import Group, Optimizer, refuse_sparse
from metaop.optim.rows import rows_composite
from metaop.reindex.reinterpret import as_numbers, as_pairs
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import full_like
from metaop.tensor.shared_storage import settle
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import Call, leaf, modes, record, results, scalar_leaf
from metaop.unified_graph.tensor_type import CPU, Device
from metaop.unified_graph.tracing import refuse, repeated, state

Numbers = dict[str, float]
Rule = Callable[..., tuple[Node, ...]]
# A parameter that is updated in a step: itself, its gradient, its state.
Member = tuple[Tensor, Tensor, dict[str, Any]]
# Device, dtype, whether this is the first step, the counters, and the index of a parameter with a
# sparse gradient: each such parameter is a separate bucket.
Key = tuple[Device, DType, bool, tuple[float, ...], int | None]
_NO_STATE: dict[str, Any] = {}


def update_composite(name: str, rule: Rule) -> Composite:
    """The composite that applies `rule` to many parameters.

    Its inputs are all parameters, all gradients, then every state tensor for all parameters, then
    the numbers. Its results are the new parameters, then the new states. 16-bit parameters are
    updated in float32. The two parts of complex parameters are updated like separate parameters.
    """

    def expansion(
        inputs: tuple[Node, ...], count: int, names: tuple[str, ...], flags: tuple[str, ...]
    ) -> tuple[Node, ...]:
        stop = len(inputs) - len(names)
        columns = [inputs[start : start + count] for start in range(0, stop, count)]
        results = []
        for whole in zip(*columns):
            row = [as_pairs(node) if node.dtype.is_complex else node for node in whole]
            compute = row[0].dtype.compute
            numbers = {k: cast(v, compute) for k, v in zip(names, inputs[stop:])}
            x, gradient, *state = (cast(node, compute) for node in row)
            if "maximize" in flags:
                gradient = -gradient
            updated = rule(x, gradient, tuple(state), numbers, flags)
            before = (whole[0], *whole[2:])
            results.append([_as_before(new, old) for new, old in zip(updated, before)])
        return tuple(node for column in zip(*results) for node in column)

    return Composite(name, expansion, variadic=True, differentiable=False)


def _as_before(new: Node, old: Node) -> Node:
    """A new value in the dtype of the old one."""
    found = cast(new, old.dtype.part)
    return as_numbers(found) if old.dtype.is_complex else found


class UpdateRule(Optimizer):
    """An optimizer defined by `rule` and by the numbers that the host computes for it.

    `rule(x, gradient, state, numbers, flags)` returns the new parameter and the new states.
    `counters` are state values on the host (with their initial values); only `advance` reads
    them.
    """

    counters: ClassVar[tuple[str, ...]] = ("step",)
    rule: ClassVar[Rule]
    _composite: ClassVar[Composite]
    _composite_of_rows: ClassVar[Composite]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "rule" in cls.__dict__:
            name = cls.__name__.lower()
            cls._composite = update_composite(f"{name}_update", cls.rule)
            cls._composite_of_rows = rows_composite(f"{name}_update_of_rows", cls.rule)

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        # Initial values are computed now, so that the first step compiles the program for all.
        realize(*(p.call for group in self.param_groups for p in group["params"]))

    # --- what subclasses define -------------------------------------------------------------

    def state_names(self, group: Group) -> tuple[str, ...]:
        """The state tensors that have the shape of the parameter."""
        raise NotImplementedError

    def first_value(self, name: str, group: Group) -> float:
        """The initial contents of a new state tensor or counter."""
        return 0.0

    def flags(self, group: Group) -> tuple[str, ...]:
        """The settings that are compile-time constants of the program."""
        return tuple(name for name in ("maximize", "weight_decay") if group.get(name))

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        """The numbers that the rule reads in this step, and the counters after it.

        `fresh` is true in the first step of the parameters.
        """
        raise NotImplementedError

    def _taken(self, gradient: Any, group: Group) -> Any:
        """The gradient in the form that the rule reads: sparse or dense.

        Raises GradientError if the rule changes elements that a sparse gradient omits; most do.
        """
        if gradient.is_sparse:
            refuse_sparse(self)
        return gradient

    # --- the step ---------------------------------------------------------------------------

    @property
    def _numbers(self) -> dict[tuple, dict[str, Call]]:
        return self.__dict__.setdefault("_number_cache", {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient.

        `closure` recomputes the loss and returns it; `step` then returns that loss.
        """
        loss = None if closure is None else run_closure(closure)
        for position, group in enumerate(self.param_groups):
            parameters = group["params"]
            is_simple = not self._repeats_parameters and all(p._cell is None for p in parameters)
            for turn in (parameters,) if is_simple else _turns(parameters):
                for number, (key, members) in enumerate(self._buckets(group, turn).items()):
                    self._update(group, (position, number), key, members)
        return loss

    def _buckets(self, group: Group, parameters: Sequence[Tensor]) -> dict[Key, list[Member]]:
        """Parameters with a gradient, grouped by what their numbers depend on: usually one bucket.

        Sparse buckets come first: their indices are checked before any parameter is overwritten.
        """
        names = self.state_names(group)
        counters = self.counters
        count = len(names) + len(counters)
        all_states = self.state
        buckets: dict[Key, list[Member]] = {}
        for place, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            gradient = self._taken(gradient, group)
            state = all_states[parameter] if count else _NO_STATE
            fresh = len(state) < count and self._begin(parameter, state, group, names)
            counts = tuple([count_of(state[name]) for name in counters])
            kind = parameter._call.type
            key = (kind.device, kind.dtype, fresh, counts, place if gradient.is_sparse else None)
            members = buckets.get(key)
            if members is None:
                buckets[key] = [(parameter, gradient, state)]
            else:
                members.append((parameter, gradient, state))
        return dict(sorted(buckets.items(), key=lambda item: item[0][-1] is None))

    def _begin(
        self, parameter: Tensor, state: dict[str, Any], group: Group, names: Sequence[str]
    ) -> bool:
        """Creates missing state; returns whether there was none."""
        fresh = not any(name in state for name in names)
        for name in self.counters:
            if name not in state:
                value = self.first_value(name, group)
                state[name] = wrap(scalar_leaf(value, dtypes.float32))
        for name in names:
            if name not in state:
                state[name] = constant_like(parameter, self.first_value(name, group))
        return fresh

    def _update(
        self, group: Group, place: tuple[int, int], key: Key, members: list[Member]
    ) -> None:
        device, dtype, fresh, counts, rows = key
        numbers, counted = self.advance(group, counts, fresh)
        targets = [member[0] for member in members]
        inputs = [parameter.call for parameter in targets]
        if rows is None:
            inputs += [member[1].call for member in members]
        else:
            inputs += members[0][1].as_unsummed()[:2]  # type: ignore[attr-defined]
        for name in self.state_names(group):
            tensors = [member[2][name] for member in members]
            inputs += [tensor.call for tensor in tensors]
            targets += tensors
        number_calls = self._number_calls((place, device, dtype), numbers)
        inputs += number_calls
        attributes = (len(members), tuple(numbers), self.flags(group))
        if state.trace is not None:
            self._announce(group, members, attributes, number_calls, fresh)
        composite = self._composite if rows is None else self._composite_of_rows
        update = record(composite, inputs, attributes)
        for target, call in zip(targets, results(update)):
            target._assign(call, "step")
        settle()
        self._count(members, counted)

    def _count(self, members: list[Member], counted: tuple[float, ...]) -> None:
        for name, value in zip(self.counters, counted):
            call = scalar_leaf(value, dtypes.float32)
            for member in members:
                show_count(member[2][name], call)

    def _announce(
        self,
        group: Group,
        members: list[Member],
        attributes: tuple[Any, ...],
        number_calls: list[Call],
        fresh: bool,
    ) -> None:
        """Tells the trace of a captured function how to advance the numbers of this update."""
        if fresh:
            refuse("the optimizer created its state")
        states, groups, parameters = self.state, self.param_groups, len(group["params"])
        # Do not keep the gradients of the traced call alive.
        owners = [(target, target, own) for target, _, own in members]
        first = members[0][2]

        def check() -> bool:
            same = self.state is states and any(one is group for one in self.param_groups)
            if not same or groups is not self.param_groups or parameters != len(group["params"]):
                return False
            counts = tuple([count_of(first[name]) for name in self.counters])
            numbers, _ = self.advance(group, counts, False)
            return (len(owners), tuple(numbers), self.flags(group)) == attributes

        def run() -> tuple[float, ...]:
            # A schedule may have stepped in the captured function since the check.
            counts = tuple([count_of(first[name]) for name in self.counters])
            numbers, counted = self.advance(group, counts, False)
            self._count(owners, counted)
            return tuple(numbers.values())

        repeated(run, number_calls, check)

    def _number_calls(self, place: tuple, numbers: Numbers) -> list[Call]:
        """The numbers as arguments; an unchanged number keeps its call."""
        cache = self._numbers.setdefault(place, {})
        calls = []
        for name, value in numbers.items():
            known = cache.get(name)
            if known is None or known.scalar != value:
                _, device, dtype = place
                known = cache[name] = scalar_leaf(value, dtype.compute, device)
            calls.append(known)
        return calls


def constant_like(parameter: Tensor, value: float) -> Tensor:
    """A new state tensor; on the host it is filled at once, so that no step computes it."""
    kind = parameter._call.type
    number = value * (1 + 1j) if kind.dtype.is_complex else value
    if kind.device is not CPU:
        return full_like(parameter, number)
    buffer = allocate(kind.nbytes)
    buffer.view(kind.shape, kind.dtype.numpy)[...] = np.asarray(number, kind.dtype.numpy)
    return wrap(leaf(kind, buffer))


def run_closure(closure: Callable[[], Any]) -> Any:
    """Calls `closure` with gradients enabled and returns its loss."""
    previous, modes.gradients = modes.gradients, True
    try:
        return closure()
    finally:
        modes.gradients = previous


def check(name: str, value: float, holds: bool) -> None:
    """Raises ArgumentError unless a setting is valid."""
    if not holds:
        raise ArgumentError(f"Invalid {name}: {value}", fix="see the optimizer's documentation")


def _turns(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """Splits parameters into rounds, in each of which they are in different memory."""
    turns: list[list[Tensor]] = []
    times: Counter[object] = Counter()
    for parameter in parameters:
        storage = parameter if parameter._cell is None else parameter._cell
        if times[storage] == len(turns):
            turns.append([])
        turns[times[storage]].append(parameter)
        times[storage] += 1
    return turns
