"""Pictures of the pending computation of tensors, at every stage of the compiler."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.nest.show import show_nest
from metaop.codegen.schedule import Schedule, Stage
from metaop.compiler import PASSES, Compilation
from metaop.errors import ArgumentError
from metaop.execution.compilations import compilations_of
from metaop.fusion.kernel import Kernel, box_axes
from metaop.fusion.storage import Storage
from metaop.inspect.diagram import Box, Diagram, svg
from metaop.inspect.texts import pending_of
from metaop.tensor.core import Tensor
from metaop.unified_graph.node import Constant, Index, Input, Node, topological

# Maximum characters of an operator in its box, and lines of a nest in its tooltip.
_WIDTH, _TOOLTIP = 44, 40
# Maximum operators in a box.
_MEMBERS = 16
_STAGES = ("expand", *(one.name for one in PASSES))


@dataclass(frozen=True)
class Picture:
    """A drawn graph: its `stage` and the document `svg`; notebooks display it.

    `save(path)` writes it.

    >>> metaop.inspect.picture(metaop.ones(2).exp()).stage
    'expand'
    """

    stage: str
    svg: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture. Raises ArgumentError unless the name ends in .svg."""
        if Path(path).suffix != ".svg":
            raise ArgumentError(f"graphs are drawn as SVG, not {path}", fix="name it ….svg")
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def picture(
    *tensors: Tensor, stage: str = "expand", backend: str | None = None, limit: int = 300
) -> Picture:
    """Draws the graph that computes the tensors after a compiler stage, from top to bottom.

    `stage` is "expand", the meta-operators as recorded, or the name of a pass in
    `metaop.compiler.PASSES`. Before "group" boxes are meta-operators; then kernels with their
    meta-operators inside and buffers between them; from "lower" on launches and their memory. Names
    are those of `metaop.inspect.passes`, and tooltips tell what has no room in a box. `backend` is
    that of `metaop.inspect.kernels`. Of global tensors, it shows what the first rank runs.

    A graph of more than `limit` boxes is condensed: a meta-operator with a single reader shares a
    box with it, and kernels are drawn empty. Results have a thick border. Raises ArgumentError for
    unknown stages, for stages that the backend does not have, and when nothing is pending.

    >>> metaop.inspect.picture(metaop.ones(2).exp(), stage="group").svg[:4]
    '<svg'
    """
    if stage not in _STAGES:
        raise ArgumentError(f"there is no stage {stage!r}", fix=f"pass one of {', '.join(_STAGES)}")
    if limit < 1:
        raise ArgumentError(f"limit must be at least 1, not {limit}", fix="pass limit=300")
    found = [_stage(one, stage).schedule for one in compilations_of(pending_of(tensors), backend)]
    whole = Diagram()
    for part, schedule in enumerate(found):
        inside = _diagram(schedule, limit)
        if len(found) == 1:
            whole = inside
            break
        name = f"part {part}"
        title = f"{name}: what the first rank runs before collectives, or after the last"
        whole.add(Box(name, "kernel", [name], title, inside))
        if part:
            whole.connect(f"part {part - 1}", name)
    return Picture(stage, svg(whole))


def _stage(compilation: Compilation, name: str) -> Stage:
    for stage in compilation.stages:
        if stage.name == name:
            return stage
    raise ArgumentError(
        f"there is no stage {name!r}: the reference backend runs no passes",
        fix='pass stage="expand", or backend="llvm"',
    )


def _diagram(schedule: Schedule, limit: int) -> Diagram:
    if not schedule.kernels and not schedule.launches:
        nodes = topological(schedule.outputs)
        names = _numbered(nodes)
        if len(nodes) > limit:
            return _trees(nodes, names, set(schedule.outputs))
        return _operators(nodes, names, set(schedule.outputs), ())
    roots = [root for kernel in schedule.kernels for root in kernel.roots]
    names = _numbered(topological([*roots, *schedule.outputs]))
    if schedule.launches:
        units = [_launch(k, launch, limit) for k, launch in enumerate(schedule.launches)]
    else:
        units = [
            _kernel(k, kernel, schedule, names, limit) for k, kernel in enumerate(schedule.kernels)
        ]
    if len(units) + sum(unit.count for unit in units) > limit:
        for unit in units:
            if unit.box.inside is not None:
                unit.box.lines.append(f"{unit.count} {unit.what}")
                unit.box.inside = None
    return _connected(units, names, schedule)


def _numbered(nodes: Iterable[Node]) -> dict[Node, str]:
    return {node: f"%{number}" for number, node in enumerate(nodes)}


# --- meta-operators -------------------------------------------------------------------------------


def _operators(
    nodes: Sequence[Node], names: dict[Node, str], results: set[Node], read: Iterable[Node]
) -> Diagram:
    """The nodes and their edges; nodes in `read` already exist in buffers."""
    diagram, buffers = Diagram(), set(read)
    for node in nodes:
        if node in buffers:
            line = f"{names[node]} {_type(node)}"
            diagram.add(Box(names[node], "buffer", [line], f"{line}\nread from memory"))
            continue
        lines = [_short(f"{names[node]} {node.op.describe(node)}"), _type(node)]
        title = _full(node, names)
        diagram.add(Box(names[node], _kind(node), lines, title, None, node in results))
        for source in node.inputs:
            diagram.connect(names[source], names[node])
    return diagram


def _trees(nodes: Sequence[Node], names: dict[Node, str], results: set[Node]) -> Diagram:
    """The nodes as boxes; a node with a single reader joins the box of its reader.

    A box ends at a reduction, or after `_MEMBERS` nodes.
    """
    readers: dict[Node, set[Node]] = {node: set() for node in nodes}
    for node in nodes:
        for source in node.inputs:
            readers[source].add(node)
    members: dict[Node, list[Node]] = {}
    for node in nodes:
        whole = members[node] = [node]
        for source in dict.fromkeys(node.inputs):
            ends = len(readers[source]) > 1 or _kind(source) == "reduce"
            is_large = isinstance(source.op, Input) and source.ndim
            if ends or is_large or len(whole) + len(members[source]) > _MEMBERS:
                continue
            whole += members[source]
            members.update((member, whole) for member in members[source])
    # A node without inputs that several nodes of a single box read joins that box.
    for node in nodes:
        homes = {id(members[reader]): members[reader] for reader in readers[node]}
        if isinstance(node.op, Constant | Index) and len(homes) == 1:
            (members[node],) = homes.values()
            members[node].append(node)
    numbers = {node: number for number, node in enumerate(nodes)}
    diagram = Diagram()
    for node in nodes:
        whole = members[node]
        if whole[0] is not node:
            continue
        inside = sorted(set(whole), key=numbers.__getitem__)
        lines = [_short(f"{names[one]} {one.op.describe(one)}") for one in inside]
        title = "\n".join(_full(one, names) for one in inside)
        lines.append(_type(node))
        is_result = not results.isdisjoint(inside)
        diagram.add(Box(names[node], _kind(node), lines, title, None, is_result))
    for node in nodes:
        for source in node.inputs:
            if members[source] is not members[node]:
                diagram.connect(names[members[source][0]], names[members[node][0]])
    return diagram


def _kind(node: Node) -> str:
    if isinstance(node.op, Input | Constant | Index):
        return "input"
    name = "elementwise" if node.op.is_pointwise else node.op.name
    return name if name in ("elementwise", "reindex", "reduce") else "other"


def _type(node: Node) -> str:
    return f"{node.dtype.name}{list(node.shape)}"


def _full(node: Node, names: dict[Node, str]) -> str:
    sources = " ".join(names[source] for source in node.inputs)
    return f"{names[node]} = {node.op.describe(node)} {sources}".rstrip() + f" {_type(node)}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


# --- kernels and launches -------------------------------------------------------------------------


@dataclass
class _Unit:
    """A unit of execution, the buffers it reads and writes, and how many of `what` it holds."""

    box: Box
    reads: list[Node]
    writes: list[Node]
    count: int = 0
    what: str = "operators"


def _kernel(
    number: int, kernel: Kernel, schedule: Schedule, names: dict[Node, str], limit: int
) -> _Unit:
    """A kernel with all that it computes; values of a root without a buffer are inlined."""
    storage, step = schedule.storage, schedule.steps.get(kernel.roots[0])
    assert storage is not None
    roots = set(kernel.roots)
    stops = {
        node for node in topological(kernel.roots) if node not in roots and storage.has_buffer(node)
    }
    nodes = topological(kernel.roots, stops)
    computed = set(nodes)
    read = {source: None for node in nodes for source in node.inputs if source in stops}
    inside = _operators([*read, *nodes], names, roots, read)
    if step is not None:
        inside.add(
            Box("step", "kernel", ["one step"], "one step of the loop", _diagram(step, limit))
        )
        for root in kernel.roots:
            inside.connect("step", names[root])
    name = f"kernel {number}"
    over = f"{kernel.kind} over {list(kernel.shape)}"
    reduced = f" reducing axes {sorted(kernel.reduced)}" if kernel.reduced else ""
    title = f"{name}: {over}{reduced}\nmakes " + ", ".join(names[root] for root in kernel.roots)
    box = Box(name, "kernel", [name, over], title, inside)
    reads = [_places(storage, node)[0] for node in read]
    writes = [
        w for root in kernel.roots if root not in kernel.private for w in _places(storage, root)
    ]
    return _Unit(box, reads, writes, len(computed))


def _places(storage: Storage, node: Node) -> list[Node]:
    return [buffer for buffer, _ in storage.places(node, box_axes(node.shape))]


def _launch(number: int, launch: LoweredKernel, limit: int) -> _Unit:
    name, nest = f"kernel {number}", launch.nest
    lines = [name, _short(nest.name), f"{nest.tasks} tasks"]
    if launch.is_rerun:
        lines.append("runs again")
    text = show_nest(nest).splitlines()
    more = [f"… {len(text) - _TOOLTIP} more lines"] if len(text) > _TOOLTIP else []
    inside, count = None, 0
    if launch.repetition is not None:
        inside = _diagram(launch.repetition.step, limit)
        count = len(launch.repetition.step.launches)
    return _Unit(
        Box(name, "kernel", lines, "\n".join([*text[:_TOOLTIP], *more]), inside),
        launch.read,
        launch.written,
        count,
        "kernels in a step",
    )


def _connected(units: Sequence[_Unit], names: dict[Node, str], schedule: Schedule) -> Diagram:
    """Units and the buffers between them.

    A buffer that is written in parts, and read in between, has one box per write.
    """
    diagram, offsets = Diagram(), dict(zip(schedule.temporaries, schedule.offsets))
    present: dict[Node, str] = {}
    read: set[str] = set()

    def buffer(node: Node, name: str) -> str:
        what = _short(node.op.describe(node)) if isinstance(node.op, Input) else ""
        lines = [f"{names[node]} {_type(node)}", *([what] if what else [])]
        if node in offsets:
            lines.append(f"at {offsets[node]}")
        title = f"{_full_or_type(node, names)}\n{node.nbytes} bytes"
        kind = "input" if isinstance(node.op, Input) else "buffer"
        diagram.add(Box(name, kind, lines, title, None, node in schedule.outputs))
        present[node] = name
        return name

    for unit in units:
        for node in [*unit.reads, *unit.writes]:
            # Values that exist only between launches are unnamed in the graph.
            names.setdefault(node, f"%{len(names)}")
        diagram.add(unit.box)
        for node in unit.reads:
            if node in present or node not in unit.writes:
                source = present.get(node) or buffer(node, names[node])
                diagram.connect(source, unit.box.name)
                read.add(source)
        for node in dict.fromkeys(unit.writes):
            before = present.get(node)
            if before is None or before in read:
                if before is not None:
                    diagram.connect(before, unit.box.name)
                buffer(node, names[node] if before is None else before + "'")
            diagram.connect(unit.box.name, present[node])
    for node in schedule.outputs:
        if node not in present:
            buffer(node, names.setdefault(node, f"%{len(names)}"))
    return diagram


def _full_or_type(node: Node, names: dict[Node, str]) -> str:
    known = all(source in names for source in node.inputs)
    return _full(node, names) if known else f"{names[node]} = {node.op.name} {_type(node)}"
