"""Styles that only lay out what a module takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaop.distributed.tensor.parallel.style import ParallelStyle, laid_out
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.tensor.sharded.device_mesh import DeviceMesh
from metaop.tensor.sharded.mesh_placements import MeshPlacement

Layouts = MeshPlacement | Sequence[MeshPlacement | None] | None
Named = Mapping[str, MeshPlacement | None]


class PrepareModuleInput(ParallelStyle):
    """Makes the inputs of a module global and lays them out.

    `input_layouts` say how local inputs lie, one for each positional input (None leaves it as it
    is), and `desired_input_layouts` how the module gets them; `input_kwarg_layouts` and
    `desired_input_kwarg_layouts` say it by name. With `use_local_output`, the module gets this
    rank's parts, in their shapes. Raises ArgumentError for lists of different lengths.

    >>> tensor, mesh = metaop.distributed.tensor, metaop.distributed.init_device_mesh("cpu", (1,))
    >>> style = tensor.parallel.PrepareModuleInput(
    ...     input_layouts=tensor.Shard(0), desired_input_layouts=tensor.Replicate()
    ... )
    >>> layer = tensor.parallel.parallelize_module(nn.ReLU(), mesh, style)
    >>> layer(metaop.ones(2, 3)).device_mesh
    DeviceMesh((1), 'cpu', ranks=[0])
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Named | None = None,
        desired_input_kwarg_layouts: Named | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _listed(input_layouts)
        self.desired_input_layouts = _listed(desired_input_layouts)
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            _check_lengths("input_layouts", self.input_layouts, self.desired_input_layouts)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise ArgumentError(
                f"PrepareModuleInput got layouts of {sorted(self.input_kwarg_layouts)}, and "
                f"desired ones of {sorted(self.desired_input_kwarg_layouts)}",
                fix="name the same keywords in both",
            )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(_: Module, args: tuple, kwargs: dict[str, Any]) -> tuple:
            if self.input_layouts is not None:
                args = self._positional(args, device_mesh)
            named = {
                name: self._one(
                    value,
                    device_mesh,
                    self.input_kwarg_layouts.get(name),
                    self.desired_input_kwarg_layouts.get(name),
                )
                for name, value in kwargs.items()
            }
            return args, named

        module.register_forward_pre_hook(prepare, with_kwargs=True)
        return module

    def _positional(self, args: tuple, mesh: DeviceMesh) -> tuple:
        given, wanted = self.input_layouts or (), self.desired_input_layouts or ()
        _check_lengths("input_layouts", given, args, "inputs")
        return tuple(self._one(*each) for each in zip(args, (mesh,) * len(args), given, wanted))

    def _one(
        self,
        value: Any,
        mesh: DeviceMesh,
        given: MeshPlacement | None,
        wanted: MeshPlacement | None,
    ) -> Any:
        return _prepared(value, mesh, given, wanted, self.use_local_output)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, "
            f"desired_input_layouts={self.desired_input_layouts}, "
            f"input_kwarg_layouts={self.input_kwarg_layouts}, "
            f"desired_input_kwarg_layouts={self.desired_input_kwarg_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class PrepareModuleOutput(ParallelStyle):
    """Makes the outputs of a module global and lays them out.

    `output_layouts` say how local outputs lie, one for each (None leaves it as it is), and
    `desired_output_layouts` how they are returned; with `use_local_output`, as this rank's parts,
    in their shapes. Raises ArgumentError for lists of different lengths.

    >>> tensor, mesh = metaop.distributed.tensor, metaop.distributed.init_device_mesh("cpu", (1,))
    >>> style = tensor.parallel.PrepareModuleOutput(
    ...     output_layouts=tensor.Shard(0),
    ...     desired_output_layouts=tensor.Replicate(),
    ...     use_local_output=False,
    ... )
    >>> layer = tensor.parallel.parallelize_module(nn.ReLU(), mesh, style)
    >>> layer(metaop.ones(2, 3)).placements
    (Replicate(),)
    """

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _listed(output_layouts) or ()
        self.desired_output_layouts = _listed(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        _check_lengths("output_layouts", self.output_layouts, self.desired_output_layouts)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(_: Module, __: Any, result: Any) -> Any:
            values = result if isinstance(result, tuple) else (result,)
            _check_lengths("output_layouts", self.output_layouts, values, "outputs")
            prepared = [
                _prepared(value, device_mesh, given, wanted, self.use_local_output)
                for value, given, wanted in zip(
                    values, self.output_layouts, self.desired_output_layouts
                )
            ]
            return prepared[0] if len(prepared) == 1 else tuple(prepared)

        module.register_forward_hook(prepare)
        return module

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_layouts={self.output_layouts}, "
            f"desired_output_layouts={self.desired_output_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class PrepareModuleInputOutput(ParallelStyle):
    """A `PrepareModuleInput` and a `PrepareModuleOutput` of one module, with their arguments.

    `use_local_input` is the `use_local_output` of the first. Raises ArgumentError as they do, for
    lists of different lengths.

    >>> tensor, mesh = metaop.distributed.tensor, metaop.distributed.init_device_mesh("cpu", (1,))
    >>> style = tensor.parallel.PrepareModuleInputOutput(
    ...     input_layouts=tensor.Shard(0),
    ...     desired_input_layouts=tensor.Replicate(),
    ...     output_layouts=tensor.Replicate(),
    ...     desired_output_layouts=tensor.Shard(0),
    ... )
    >>> layer = tensor.parallel.parallelize_module(nn.ReLU(), mesh, style)
    >>> layer(metaop.ones(2, 3)).shape
    metaop.Size([2, 3])
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Named | None = None,
        desired_input_kwarg_layouts: Named | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        both = f"{self.prepare_module_input}, {self.prepare_module_output}"
        return f"{type(self).__name__}({both})"


def _prepared(
    value: Any,
    mesh: DeviceMesh,
    given: MeshPlacement | None,
    wanted: MeshPlacement | None,
    local: bool,
) -> Any:
    """A value as `wanted` says, or as it is if nothing is said of it."""
    if given is None:
        return value
    result = laid_out(value, mesh, given, wanted)
    return result.to_local() if local else result


def _listed(layouts: Layouts) -> tuple[MeshPlacement | None, ...] | None:
    if layouts is None or isinstance(layouts, MeshPlacement):
        return None if layouts is None else (layouts,)
    return tuple(layouts)


def _check_lengths(
    name: str, layouts: Sequence[Any], others: Sequence[Any] | None, what: str = ""
) -> None:
    if len(layouts) != len(others or ()):
        raise ArgumentError(
            f"{len(layouts)} {name} for {len(others or ())} {what or f'desired_{name}'}",
            fix="give one for each; None leaves a value as it is",
        )
