"""metaop and PyTorch behind one interface, so that every workload is written once."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

# A module NAME of this repository is found as torch_twin.NAME with PyTorch in metaop's place.
_TWIN = "torch_twin."
# PyTorch's compiler for each size alone, and for sizes that change; it needs one for C++.
_COMPILED, _DYNAMIC = "torch-compile", "torch-dynamic"
MODES = ("torch", "torch-fused", _COMPILED, _DYNAMIC)


class _TwinSource(importlib.abc.SourceLoader):
    """Reads a source file with the word `metaop` replaced by `torch`.

    Errors stay those of metaop; layers of `metaop.vision.ops`, and what takes feature maps out of
    networks of `metaop.vision.models`, come from their own twins. What `metaop.jit` captures where
    it can, PyTorch calls as it is.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def get_filename(self, fullname: str) -> str:
        return self.path.replace(".py", ".torch.py")

    def get_data(self, path: str) -> bytes:
        with open(self.path) as file:
            text = re.sub(r"\bmetaop\b(?!\.errors)", "torch", file.read())
        text = re.sub(r"\btorch\.vision\.ops\b", f"{_TWIN}metaop.vision.ops.layers", text)
        text = re.sub(r"\btorch\.jit\(([\w.]+), fallback=True\)", r"\1", text)
        text = re.sub(r"\btorch\.vision\.models\b", f"{_TWIN}metaop.vision.layer_getter", text)
        return re.sub(r"\b(from|import) (models|benchmarks)\b", rf"\1 {_TWIN}\2", text).encode()


class _TwinFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not (name + ".").startswith(_TWIN):
            return None
        if name + "." == _TWIN:
            return importlib.util.spec_from_loader(name, loader=None, is_package=True)
        original = importlib.util.find_spec(name.removeprefix(_TWIN))
        if original is None or original.origin is None:
            return None
        is_package = original.submodule_search_locations is not None
        # The packages of metaop are only the way to a module in them.
        passed = is_package and original.name.split(".")[0] == "metaop"
        loader = None if passed else _TwinSource(original.origin)
        return importlib.util.spec_from_loader(name, loader, is_package=is_package)


def torch_twin(module: str) -> ModuleType:
    """A module of this repository with PyTorch in place of metaop."""
    _install_twins()
    return importlib.import_module(_TWIN + module)


class Framework:
    """A framework as workloads use it.

    `library`, `nn` and `functional` are its modules; tensors are on `device`. Weights of the first
    framework that builds a module are copied into the module that the next one builds: `weights` is
    shared by them.
    """

    name: str
    library: Any
    functional: Any
    device = "cpu"

    def __init__(self, weights: list[dict[str, np.ndarray]]) -> None:
        self._weights = weights
        self._adopted = 0

    @property
    def nn(self) -> Any:
        return self.library.nn

    def load(self, module: str) -> ModuleType:
        """A module of this repository, written for metaop, on top of this framework."""
        raise NotImplementedError

    def finish(self) -> None:
        """Computes what is pending."""

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        """A tensor with a copy of `array`."""
        result = self.library.from_numpy(array.copy())
        return result.requires_grad_() if requires_grad else result

    def normal(self, *shape: int, seed: int = 0, requires_grad: bool = False) -> Any:
        """Normally distributed float32, the same in every framework."""
        random = np.random.default_rng([seed, *shape])
        return self.tensor(random.standard_normal(shape, np.float32), requires_grad)

    def integers(self, bound: int, *shape: int, seed: int = 0) -> Any:
        """Integers in [0, bound), int64."""
        return self.tensor(np.random.default_rng([seed, *shape]).integers(0, bound, shape))

    def module(self, module: Any) -> Any:
        """The module with the weights that all frameworks share."""
        state = module.state_dict()
        if self._adopted == len(self._weights):
            self._weights.append({name: self.numpy(value) for name, value in state.items()})
        weights = self._weights[self._adopted]
        self._adopted += 1
        tensors = {name: self.library.from_numpy(array.copy()) for name, array in weights.items()}
        module.load_state_dict(tensors)
        return module

    def images(self, tensor: Any) -> Any:
        """A batch of images in this framework's preferred memory format."""
        return tensor

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as this framework runs it: compiled in some modes."""
        return function

    def captured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, captured if the framework can, so that no Python runs between kernels."""
        return self.function(function)

    def optimizer(self, name: str, parameters: Iterable[Any], **options: Any) -> Any:
        """An optimizer by name."""
        return getattr(self.library.optim, name)(parameters, **options)

    def numpy(self, value: Any) -> np.ndarray:
        """The values as a copy in NumPy."""
        return np.array(value.detach().numpy())


class MetaOp(Framework):
    """This repository."""

    name = "metaop"

    def __init__(self, weights: list[dict[str, np.ndarray]]) -> None:
        super().__init__(weights)
        import metaop
        from metaop.execution.executor import realize

        self.library = metaop
        self.functional = metaop.nn.functional
        self.finish = realize  # type: ignore[method-assign]

    def load(self, module: str) -> ModuleType:
        return importlib.import_module(module)

    def captured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.library.jit(function)


class Torch(Framework):
    """PyTorch: eager, eager with channels-last images and fused optimizers, or compiled.

    With `torch-dynamic` it is compiled for changing sizes.
    """

    def __init__(self, weights: list[dict[str, np.ndarray]], mode: str) -> None:
        super().__init__(weights)
        import torch

        self.name = mode
        self.library = torch
        self.functional = torch.nn.functional
        self._channels_last = mode == "torch-fused"

    def load(self, module: str) -> ModuleType:
        return torch_twin(module)

    def module(self, module: Any) -> Any:
        adopted = super().module(module)
        return self._formatted(adopted) if self._channels_last else adopted

    def images(self, tensor: Any) -> Any:
        return self._formatted(tensor) if self._channels_last else tensor

    def _formatted(self, value: Any) -> Any:
        return value.to(memory_format=self.library.channels_last)

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not is_compiled(self.name):
            return function
        return self.library.compile(function, dynamic=True if self.name == _DYNAMIC else None)

    def optimizer(self, name: str, parameters: Iterable[Any], **options: Any) -> Any:
        return super().optimizer(name, parameters, fused=self._channels_last or None, **options)


@functools.cache
def _install_twins() -> None:
    sys.meta_path.insert(0, _TwinFinder())


def is_compiled(mode: str) -> bool:
    """Whether PyTorch's compiler runs in a mode; it refuses some programs."""
    return mode in (_COMPILED, _DYNAMIC)


def alone(name: str) -> Framework:
    """One framework, without importing the other, for separate processes."""
    return MetaOp([]) if name == "metaop" else Torch([], name)


def frameworks(modes: Sequence[str] = MODES[:1]) -> list[Framework]:
    """metaop first, then PyTorch in each mode; they share the weights of their modules."""
    weights: list[dict[str, np.ndarray]] = []
    return [MetaOp(weights), *(Torch(weights, mode) for mode in modes)]
