"""The functions of `torch.jit`, which leave what functions and modules compute unchanged.

PyTorch scripts and traces models to compile them; metaop compiles everything that it runs.
`metaop.jit` is something else: it captures whole steps. `save` and `load` write and read programs,
as `metaop.export` does: a traced module or function is exported with its example inputs.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Mapping
from types import UnionType, new_class
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

from metaop.errors import ArgumentError
from metaop.export.dimensions import Dim
from metaop.export.exported import ProgramModule
from metaop.export.program import load_program
from metaop.nn.module import Module as ScriptModule
from metaop.serialization.files import File, MapLocation, placement_of
from metaop.tensor.core import Tensor
from metaop.unified_graph.tracing import state

__all__ = [
    "Error",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
]

_Anything = TypeVar("_Anything")

ScriptFunction = Callable


class Error(RuntimeError):
    """What PyTorch's scripts raise; functions here raise errors of their own."""


class TracerWarning(Warning):
    """What tracing warns of in PyTorch; nothing here does."""


def is_scripting() -> bool:
    """Returns False: metaop never scripts code."""
    return False


def is_tracing() -> bool:
    """Returns False: shapes and numbers are always those of the current run."""
    return False


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether a value is of a type that `typing` writes, such as `Dict[str, List[Tensor]]`.

    A tuple of types stands for any of them. Empty lists and dictionaries are of every such type.
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    kind, inner = get_origin(target_type), get_args(target_type)
    if kind in (Union, UnionType):
        return any(isinstance(obj, one) for one in inner)
    if kind is None:
        return builtins.isinstance(obj, type(None) if target_type is None else target_type)
    if not builtins.isinstance(obj, kind):
        return False
    if kind is dict:
        return all(isinstance(k, inner[0]) and isinstance(obj[k], inner[1]) for k in obj)
    if kind is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(one, inner[0]) for one in obj)


def _are_transforms_active() -> bool:
    """Whether `vmap` or `jit` records the current run, so that no value can be read."""
    return state.trace is not None


def _is_fake(x: object) -> bool:
    """Returns False: there are no tensors without values."""
    return False


def _get_tracing_state() -> None:
    """None: nothing is being traced."""


class _Examples(NamedTuple):
    """The inputs with which a traced function is exported."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def script(obj: _Anything, *_options: Any, **_more: Any) -> _Anything:
    """Returns the function or class unchanged, and a module with a method `save`.

    It asks for `trace`, which keeps example inputs. The options have no effect.
    """
    if not builtins.isinstance(obj, ScriptModule) or hasattr(obj, "_examples"):
        return obj
    return _with_save(obj, None)


def trace(
    func: Any,
    example_inputs: Any = None,
    *_options: Any,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    **_more: Any,
) -> Any:
    """Returns the function or module with a method `save`, without running it on the examples.

    The result computes what `func` computes: a traced module shares all of its state with the
    module, and is of its class. The example inputs are kept for `save`; further options have no
    effect.

    >>> traced = metaop.scripting.trace(nn.Linear(2, 1), metaop.ones(1, 2))
    >>> traced(metaop.ones(3, 2)).shape
    metaop.Size([3, 1])
    """
    if example_inputs is None and example_kwarg_inputs is None:
        return script(func)
    owner = getattr(func, "__self__", None)
    whole = builtins.isinstance(owner, ScriptModule) and func.__name__ == "forward"
    one = builtins.isinstance(example_inputs, (Tensor, Mapping))
    args = (example_inputs,) if one else tuple(example_inputs or ())
    return _with_save(owner if whole else func, _Examples(args, example_kwarg_inputs or {}))


def _with_save(func: Any, examples: _Examples | None) -> Any:
    """The function or module with a method `save`; a module keeps its state and its class."""
    if not builtins.isinstance(func, ScriptModule):
        function: Any = functools.update_wrapper(functools.partial(func), func)
        function._examples, function.save = examples, functools.partial(save, function)
        return function
    kind = type(func)
    members = {
        **{name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")},
        "_class_in_files": getattr(func, "_class_in_files", kind),
        "_examples": examples,
        "__reduce_ex__": _reduced,
        "save": save,
    }
    own = new_class(kind.__name__, (kind,), {}, lambda body: body.update(members))
    module: Any = object.__new__(own)
    object.__setattr__(module, "__dict__", func.__dict__)
    return module


def _reduced(module: Any, protocol: int) -> tuple[Any, ...]:
    """How a module with a method `save` is copied and pickled: its class has no name of its own."""
    kind = type(module)
    plain: Any = object.__new__(kind.__mro__[1])
    object.__setattr__(plain, "__dict__", dict(module.__dict__))
    return _with_save, (plain, kind._examples)


def trace_module(
    mod: _Anything, inputs: Mapping[str, Any], *_options: Any, **_more: Any
) -> _Anything:
    """Returns the module as `trace` does, if the inputs are those of `forward` alone.

    With inputs of other methods it is as from `script`: a program in a file has one function.
    """
    return trace(mod, inputs["forward"]) if set(inputs) == {"forward"} else script(mod)


def save(m: Any, f: File) -> None:
    """Writes a traced module or function as a program, to a file of any name or a file object.

    It has the weights, and what the module computes in its current mode (see `eval`), for all
    sizes of the inputs that it can take. Raises ExportError for a function that
    `metaop.export` refuses, and ArgumentError without example inputs.

    >>> import io
    >>> file = io.BytesIO()
    >>> traced = metaop.scripting.trace(nn.ReLU(), metaop.ones(2))
    >>> traced.save(file)
    >>> file.seek(0), metaop.scripting.load(file)(metaop.tensor([-1.0, 0.0, 1.0]))
    (0, tensor([0., 0., 1.]))
    """
    if builtins.isinstance(m, ProgramModule):
        m.save(f)
        return
    examples = getattr(m, "_examples", None)
    if examples is None:
        raise ArgumentError(
            f"{getattr(m, '__name__', type(m).__name__)} has no example inputs, with which a "
            "program is recorded",
            fix="trace it: torch.jit.trace(module, example_inputs).save(file)",
        )
    # Importing the exporter is lazy: running programs needs no layers or passes.
    from metaop.export.exporter import Arguments, program_of

    given = Arguments(m, *examples)
    # PyTorch's traces take other sizes too, and examples usually have one element.
    axes = {name: [Dim.AUTO] * len(shape) for name, shape in zip(given.names, given.shapes)}
    program_of(given, axes, whole=True).write(f)


def load(f: File, map_location: MapLocation = None) -> ProgramModule:
    """Reads a program that `save` wrote, as a module; its weights are loaded to `map_location`.

    Raises CheckpointError for other files, such as those that PyTorch's `torch.jit.save` writes.
    """
    return ProgramModule(load_program(f, placement_of(map_location)("cpu")))


def annotate(the_type: Any, the_value: _Anything) -> _Anything:
    """Returns the value: no type annotation is needed."""
    return the_value


def ignore(drop: Any = False, **_options: Any) -> Any:
    """A decorator without effect; options as in `@ignore(drop=True)` are accepted."""
    return drop if callable(drop) else script


def _set_optimization(value: bool) -> bool:
    """Accepted; whatever is set, everything is compiled in one way."""
    return value


def _overload(func: _Anything) -> _Anything:
    """Returns the function unchanged: it only declares a signature."""
    return func


_overload_method = _overload
export = interface = script_if_tracing = script_method = unused = script
freeze = optimize_for_inference = script


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """Has no effect."""
    yield
