"""A program between two passes as stable, readable text."""

from __future__ import annotations

from textwrap import indent

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.nest.show import show_nest
from metaop.codegen.schedule import Schedule
from metaop.fusion.explain import show_decisions
from metaop.fusion.kernel import Kernel
from metaop.unified_graph.node import Node, topological
from metaop.unified_graph.show import show_graph


def show_schedule(schedule: Schedule) -> str:
    """What the passes have made: the graph, then its kernels, then loop nests and their memory."""
    if schedule.launches:
        nests = [_show_launch(launch) for launch in schedule.launches]
        return "\n".join([*nests, _show_memory(schedule)])
    if schedule.kernels:
        return _show_kernels(schedule)
    return show_graph(schedule.outputs)


def _show_launch(launch: LoweredKernel) -> str:
    """The nest of a launch; of a loop, what one step launches as well."""
    text = show_nest(launch.nest)
    if launch.repetition is None:
        return text
    return text + indent(show_schedule(launch.repetition.step), "    ")


def _show_kernels(schedule: Schedule) -> str:
    roots = [root for kernel in schedule.kernels for root in kernel.roots]
    numbers = {node: f"%{number}" for number, node in enumerate(topological(roots))}
    lines = [_show_kernel(kernel, numbers) for kernel in schedule.kernels]
    text = show_graph(roots) + "\n" + "\n".join(lines) + "\n"
    return f"{text}\n{show_decisions(schedule.decisions)}"


def _show_kernel(kernel: Kernel, numbers: dict[Node, str]) -> str:
    reduced = f" reducing axes {sorted(kernel.reduced)}" if kernel.reduced else ""
    roots = ", ".join(numbers[root] for root in kernel.roots)
    return f"{kernel.kind} kernel over {list(kernel.shape)}{reduced}: {roots}"


def _show_memory(schedule: Schedule) -> str:
    lines = [f"{len(schedule.launches)} kernels, {schedule.arena_bytes} bytes of temporary memory"]
    lines += [
        f"  {node.dtype.name}{list(node.shape)} at {offset}"
        for node, offset in zip(schedule.temporaries, schedule.offsets)
    ]
    return "\n".join(lines) + "\n"
