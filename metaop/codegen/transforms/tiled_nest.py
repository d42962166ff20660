"""The nest of a group: for each slice of the tasks, the nests of its launches in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.base.tasks import DEPTH_BLOCK
from metaop.codegen.nest import ir
from metaop.codegen.nest.in_place import exact_pairs
from metaop.unified_graph.node import Node

# The axes of slices and of their blocks; where forms name buffers, each with the offset into it.
_SLICE, _BLOCK = "slice", "block"
_BUFFERS: dict[type, tuple[tuple[str, str | None], ...]] = {
    ir.Load: (("buffer", "offset"),),
    ir.Store: (("buffer", "offset"),),
    ir.Update: (("buffer", "offset"),),
    ir.Prefetch: (("buffer", "offset"),),
    ir.Ahead: (("buffer", "offset"),),
    ir.Alloc: (("buffer", None),),
    ir.MicroKernel: (
        ("left", "left_offset"),
        ("right", "right_offset"),
        ("target", "target_offset"),
    ),
    ir.ForeignCall: (("buffers", None),),
}


class InnerLoop(NamedTuple):
    """A loop inside of the tasks that can be cut; in one that sums, results of parts are added."""

    axis: str
    extent: int
    sums: bool


@dataclass(frozen=True)
class TiledGroup:
    """Some launches in order, the number of slices, and the nodes that are private to the group.

    Launches that only prepare something run `ahead`. A slice may consist of blocks, which run one
    after another. Each block takes its part of a launch's tasks in the slice, or, if `inner` names
    a loop for the launch, its part of that loop for all of them.
    """

    ahead: tuple[LoweredKernel, ...]
    launches: tuple[LoweredKernel, ...]
    slices: int
    private: frozenset[Node]
    blocks: int
    inner: tuple[InnerLoop | None, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that need no longer be in memory."""
        return sum(node.nbytes for node in self.private)


def joined(group: TiledGroup) -> LoweredKernel:
    """One launch that runs all of a group on a slice before the next slice."""
    scratch = _scratch_numbers(group)
    parameters: dict[Node, str] = {}
    numbers = dict(scratch)
    body: list[ir.Statement] = []
    for number, node in {number: node for node, number in scratch.items()}.items():
        body.append(ir.Alloc(number, node.size // (group.slices * group.blocks), node.dtype))
    allocations = len(body)
    last = -len(scratch)
    for position, launch in enumerate(group.launches):
        for node, parameter in zip(launch.buffers, launch.nest.parameters):
            if node in scratch:
                continue
            numbers.setdefault(node, len(parameters))
            same = parameters.setdefault(node, parameter.role) == parameter.role
            inner = group.inner[position]
            is_summed = inner is not None and inner.sums and parameter.role == "write"
            parameters[node] = parameter.role if same and not is_summed else "update"
        part = _Part(launch, position, group, numbers, last)
        body += part.statements()
        last = part.last
    if group.blocks > 1:
        body[allocations:] = [ir.For(_BLOCK, group.blocks, "serial", tuple(body[allocations:]))]
    loop = ir.For(_SLICE, group.slices, "parallel", tuple(body))
    name = "_".join(["tiled", *(launch.nest.name.split("_")[0] for launch in group.launches)])
    roles = tuple(ir.Parameter(node.dtype, role) for node, role in parameters.items())
    operations = sum(launch.operations for launch in group.launches)
    return LoweredKernel(ir.LoopNest(name, roles, (), (loop,)), tuple(parameters), operations)


def _scratch_numbers(group: TiledGroup) -> dict[Node, int]:
    """The scratch buffer of each private node: a new one, or that of a node that it replaces."""
    last = {node: k for k, launch in enumerate(group.launches) for node in launch.buffers}
    numbers: dict[Node, int] = {}
    given: set[Node] = set()
    for position, launch in enumerate(group.launches):
        times = Counter(launch.buffers)
        roles = [parameter.role for parameter in launch.nest.parameters]
        # Several results are computed before one is stored, but as elements of several buffers.
        pairs = exact_pairs(launch.nest) if len(roles) - roles.count("read") == 1 else []
        for written, read in pairs:
            new, old = launch.buffers[written], launch.buffers[read]
            is_free = old in numbers and old not in given and last[old] == position
            is_alike = (old.size, old.dtype) == (new.size, new.dtype) and times[old] == 1
            if new in group.private and new not in numbers and is_free and is_alike:
                numbers[new] = numbers[old]
                given.add(old)
        for node in launch.buffers:
            if node in group.private and node not in numbers:
                numbers[node] = -1 - len(numbers)
    return numbers


class _Part:
    """A launch of a group: its statements for the tasks of one slice."""

    def __init__(
        self,
        launch: LoweredKernel,
        position: int,
        group: TiledGroup,
        numbers: Mapping[Node, int],
        last: int,
    ) -> None:
        self.nest = launch.nest
        self.position = position
        self.blocks = group.blocks
        self.inner = group.inner[position]
        self.is_summed = self.inner is not None and self.inner.sums
        self.share = launch.nest.tasks // group.slices
        self.numbers = {k: numbers[node] for k, node in enumerate(launch.buffers)}
        self.sizes = {
            k: node.size // (group.slices * group.blocks)
            for k, node in enumerate(launch.buffers)
            if node in group.private
        }
        self.last = last
        loop = launch.nest.body[-1]
        assert isinstance(loop, ir.For)
        self._task = ir.LoopIndex(loop.axis)
        self._done: dict[int, tuple[Any, Any]] = {}

    def statements(self) -> tuple[ir.Statement, ...]:
        """The body of the nest, whose parallel loop runs over the tasks of the slice."""
        body: tuple[ir.Statement, ...] = self._changed(self.nest.body)
        return body

    def _renumbered(self, buffer: Any) -> Any:
        """The number of a buffer in the group, or of several; scratch memory gets new numbers."""
        if isinstance(buffer, tuple):
            return tuple(map(self._renumbered, buffer))
        if buffer not in self.numbers:
            self.last -= 1
            self.numbers[buffer] = self.last
        return self.numbers[buffer]

    def _changed(self, part: Any) -> Any:
        """A part of the nest, with the group's buffer numbers, and tasks counted from its slice."""
        if not isinstance(part, tuple):
            return part
        known = self._done.get(id(part))
        if known is None:
            # The part is kept, so that no other gets its identity.
            known = self._done[id(part)] = part, self._rebuilt(part)
        return known[1]

    def _rebuilt(self, part: Any) -> Any:
        if isinstance(part, ir.Sum):
            return self._sum(part)
        if isinstance(part, ir.For) and part.kind == "parallel":
            share = self.share if self.inner else self.share // self.blocks
            part = part._replace(extent=share, kind="serial")
        elif isinstance(part, ir.For) and self.inner and part.axis == self.inner.axis:
            part = part._replace(extent=self.inner.extent // self.blocks)
        fields = getattr(part, "_fields", None)
        if fields is None:
            return tuple(self._changed(item) for item in part)
        changed: dict[str, Any] = {name: self._changed(item) for name, item in zip(fields, part)}
        if "name" in changed:
            # Names are bound once in a nest.
            changed["name"] = f"{part.name}_{self.position}"
        for name, offset in _BUFFERS.get(type(part), ()):
            if offset is not None and changed[name] in self.sizes:
                size = self.sizes[changed[name]]
                changed[offset] = self._plus(changed[offset], -size * self.blocks, -size)
            changed[name] = self._renumbered(changed[name])
        if self.is_summed and isinstance(part, ir.MicroKernel):
            changed["accumulate"] = ir.Sum((), 0)
        if self.is_summed and isinstance(part, ir.Store) and part.buffer >= 0:
            changed["value"] = self._with_earlier_blocks(changed)
        return type(part)(**changed)

    def _with_earlier_blocks(self, store: Mapping[str, Any]) -> ir.Expr:
        """The value of a store, accumulated onto what earlier blocks have stored."""
        later = ir.InBounds(ir.Sum(((ir.LoopIndex(_BLOCK), 1),), -1), self.blocks - 1)
        dtype, conditions = store["value"].dtype, (*store["conditions"], later)
        before = ir.Load(store["buffer"], store["offset"], dtype, conditions)
        return ir.Apply("add", (before, store["value"]), dtype, dtype)

    def _sum(self, index: ir.Sum) -> ir.Sum:
        """An index in which the tasks of the slice, or of its block, are counted from the first."""
        terms = tuple((self._changed(factor), times) for factor, times in index.terms)
        found = ir.Sum(terms, index.constant)
        for factor, times in index.terms:
            if factor == self._task:
                assert not isinstance(times, ir.Argument)
                of_block = 0 if self.inner else times * self.share // self.blocks
                found = self._plus(found, times * self.share, of_block)
            elif self.inner and factor == ir.LoopIndex(self.inner.axis):
                assert not isinstance(times, ir.Argument)
                found = self._plus(found, 0, times * self.inner.extent // self.blocks)
        return found

    def _plus(self, index: ir.Sum, slices: int, blocks: int) -> ir.Sum:
        """The sum plus multiples of the numbers of the slice and, if any, of its block."""
        terms = dict(index.terms)
        for axis, times in ((_SLICE, slices), (_BLOCK, blocks if self.blocks > 1 else 0)):
            terms[ir.LoopIndex(axis)] = terms.get(ir.LoopIndex(axis), 0) + times  # type: ignore
        return ir.Sum(tuple(term for term in terms.items() if term[1] != 0), index.constant)


def inner_loop(nest: ir.LoopNest) -> InnerLoop | None:
    """The loop inside of a nest's tasks that can be cut into parts; None if there is none.

    It is the whole task; or it runs over the blocks of a contraction's depth, if only tiles carry
    over from block to block and the contraction has no epilogue.
    """
    tasks = nest.body[-1] if len(nest.body) == 1 else None
    if not isinstance(tasks, ir.For) or tasks.kind != "parallel":
        return None
    loops = [one for one in tasks.body if isinstance(one, ir.For)]
    if not loops:
        return None
    loop, behind = loops[0], loops[1:]
    is_all = not behind and not loop.accumulators and loop is tasks.body[-1]
    sums = loop.axis == DEPTH_BLOCK and _adds_up(loop) and _stores_sums(behind)
    if not isinstance(loop.extent, int) or not (is_all or sums):
        return None
    return InnerLoop(loop.axis, loop.extent, sums)


def _adds_up(blocks: ir.For) -> bool:
    """Whether blocks only pack panels and accumulate their products in tiles."""
    from_second = ir.Sum(((ir.LoopIndex(DEPTH_BLOCK), 1),), 0)
    for one in ir.simple_statements(blocks.body):
        if isinstance(one, ir.MicroKernel) and one.accumulate == from_second:
            continue
        packs = isinstance(one, ir.Store) and one.buffer < 0
        if not packs and not isinstance(one, (ir.Let, ir.Prefetch)):
            return False
    return True


def _stores_sums(loops: Sequence[ir.For]) -> bool:
    """Whether loops only store tiles of scratch memory."""
    names: dict[str, ir.Expr] = {}
    stores: list[ir.Store] = []
    for one in ir.simple_statements(loops):
        if isinstance(one, ir.Let):
            names[one.name] = one.value
        elif isinstance(one, ir.Store):
            stores.append(one)
        else:
            return False
    if len(stores) != 1:
        return False
    value = stores[0].value
    value = names.get(value.name, value) if isinstance(value, ir.Name) else value
    return isinstance(value, ir.Load) and value.buffer < 0
