"""Creation functions that take a mesh and placements, as in `torch.distributed.tensor`.

They are those of `metaop` with `placement=` and `sbp=`, so no rank makes more than its part, and
random numbers are those of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import metaop
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh, chosen_mesh
from metaop.tensor.sharded.mesh_placements import MeshPlacement, states_of

_WORDS = """`metaop.{name}` on a mesh: a global tensor of the shape that it is asked for.

Without `placements` every rank has the whole; without `device_mesh` the mesh is that of the
innermost `with mesh:`. The other arguments are those of `metaop.{name}` without a device. Raises
ArgumentError for placements that suit neither mesh nor shape.

>>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
>>> metaop.distributed.tensor.{name}({arguments}, device_mesh=mesh).shape
metaop.Size([2, 3])
"""


def _on_mesh(function: Callable[..., Tensor], arguments: str = "2, 3") -> Callable[..., Tensor]:
    """A creation function that takes a mesh; `arguments` are those of its example."""

    @wraps(function)
    def make(
        *args: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[MeshPlacement] | None = None,
        **options: Any,
    ) -> Tensor:
        mesh = chosen_mesh(device_mesh)
        states = states_of(placements, mesh.ndim)
        return function(*args, **options, placement=mesh.placement, sbp=states)

    del make.__wrapped__  # type: ignore[attr-defined]  # which has another signature
    make.__module__ = __name__
    make.__doc__ = _WORDS.format(name=function.__name__, arguments=arguments)
    return make


zeros, ones, empty = _on_mesh(metaop.zeros), _on_mesh(metaop.ones), _on_mesh(metaop.empty)
rand, randn = _on_mesh(metaop.rand), _on_mesh(metaop.randn)
full = _on_mesh(metaop.full, "(2, 3), 7.0")
