"""Quantised layers and networks beside floats, in metaop and in PyTorch.

    python -m benchmarks.quantisation [products] [tokens] [networks]

Times are CPU time of one thread, the least of several calls, which other processes hardly change.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import metaop
import metaop.ao.quantization as ours
from metaop import nn
from models.gpt import GPT
from models.lenet import LeNet
from models.resnet import resnet18

_CALLS, _SECONDS = 12, 1.0  # at least
_TOKENS = {"6 layers of 384": (384, 6, 6), "12 layers of 768": (768, 12, 12)}
_VOCABULARY, _CONTEXT = 4096, 256


def least(function: Callable[[], Any]) -> float:
    """The seconds of the fastest call, after two that warm up."""
    function(), function()
    found: list[float] = []
    while len(found) < _CALLS or sum(found) < _SECONDS:
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def row(*cells: Any) -> None:
    """A row of a Markdown table."""
    texts = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def head(*cells: str) -> None:
    """The first rows of a Markdown table."""
    print()
    row(*cells)
    row("---", *("---:" for _ in cells[1:]))


def products() -> None:
    """Square matrix products, in 1e9 operations a second."""
    head(
        "size", "float32", "int8 x int8", "uint8 x int8", "dynamic linear", "PyTorch float32",
        *(f"PyTorch dynamic, {name}" for name in _engines()),
    )  # fmt: skip
    with metaop.no_grad(), torch.no_grad():
        for size in (256, 512, 1024):
            row(size, *(2e-9 * size**3 / least(call) for call in _products_of(size)))


def _products_of(size: int) -> list[Callable[[], Any]]:
    x, y = metaop.randn(size, size), metaop.randn(size, size)
    signed, right = (metaop.randint(-128, 128, (size, size)).to(metaop.int8) for _ in range(2))
    unsigned = metaop.randint(0, 256, (size, size)).to(metaop.uint8)
    linear = ours.quantize_dynamic(nn.Linear(size, size))
    a, layer = torch.tensor(x.numpy()), torch.nn.Linear(size, size)

    def whole(left: metaop.Tensor) -> Any:
        return (left.to(metaop.int32) @ right.to(metaop.int32)).numpy()

    def theirs(name: str) -> Callable[[], Any]:
        found = _in_engine(name, lambda: _dynamic(layer))
        return lambda: _in_engine(name, lambda: found(a))

    return [
        lambda: (x @ y).numpy(),
        lambda: whole(signed),
        lambda: whole(unsigned),
        lambda: linear(x).numpy(),
        lambda: layer(a),
        *(theirs(name) for name in _engines()),
    ]


def _engines() -> list[str]:
    known = torch.backends.quantized.supported_engines
    return [name for name in ("x86", "onednn") if name in known]


def _in_engine(name: str, function: Callable[[], Any]) -> Any:
    torch.backends.quantized.engine = name
    return function()


def _dynamic(layer: torch.nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.nn.Sequential(layer)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})


def tokens() -> None:
    """A GPT's pass of one token with a filled key-value cache, captured by `jit`, in ms."""
    names = ["float32", "int8", "int8, groups of 64", "4 bits, groups of 64", "dynamic"]
    head("GPT", *names, "weights, MiB", "in 4 bits")
    for name, (width, layers, heads) in _TOKENS.items():
        model = GPT(_VOCABULARY, _CONTEXT, width, layers, heads).eval()
        models = [
            model,
            ours.quantize_weights(model, 8),
            ours.quantize_weights(model, 8, 64),
            ours.quantize_weights(model, 4, 64),
            ours.quantize_dynamic(model),
        ]
        with metaop.no_grad():
            times = [1e3 * least(_reads(one)) for one in models]
        row(name, *times, *(_mebibytes(models[k]) for k in (0, 3)))


def _reads(model: GPT) -> Callable[[], Any]:
    cache = model.cache(1)
    token, place = metaop.tensor([[7]]), metaop.tensor([100])
    read = metaop.jit(lambda token, place: model(token, place, cache))
    return lambda: read(token, place).numpy()


def _mebibytes(model: nn.Module) -> float:
    """The size of the weights of linear layers, in MiB."""
    kinds = (nn.Linear, ours.WeightOnlyLinear)
    layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
    return sum(v.nbytes for layer in layers for v in layer.state_dict().values()) / 2**20


def networks() -> None:
    """Whole networks in evaluation, captured by `jit`, in ms."""
    head("network", "float32", "static int8", "PyTorch float32", "PyTorch static, x86")
    for name, model, other, shape in (
        ("LeNet, 256 images of 28", LeNet(), _torch_lenet(), (256, 1, 28, 28)),
        ("ResNet-18 for 32 x 32, 32 images", resnet18(10, "cifar"), None, (32, 3, 32, 32)),
    ):
        x = np.random.default_rng(0).random(shape).astype(np.float32)
        row(name, *_own(model.eval(), metaop.tensor(x)), *_theirs(other, torch.tensor(x)))


def _own(model: nn.Module, x: metaop.Tensor) -> list[float]:
    model = ours.fuse_modules(model, _norms(model))
    observed = copy.deepcopy(model)
    observed.qconfig = ours.get_default_qconfig("onednn")
    observed = ours.prepare(observed)
    with metaop.no_grad():
        observed(x)
        found = []
        for one in (model, ours.convert(observed)):
            call = metaop.jit(lambda x, one=one: one(x))
            found.append(1e3 * least(lambda call=call: call(x).numpy()))
    return found


def _norms(model: nn.Module) -> list[list[str]]:
    """Convolutions with the batch norms that follow them among the modules."""
    named = list(model.named_modules())
    pairs = itertools.pairwise(named)
    return [
        [first, second]
        for (first, one), (second, other) in pairs
        if isinstance(one, nn.Conv2d) and isinstance(other, nn.BatchNorm2d)
    ]


def _torch_lenet() -> torch.nn.Module:
    part = torch.nn
    return part.Sequential(
        torch.ao.quantization.QuantStub(), part.Conv2d(1, 16, 5, padding=2), part.ReLU(),
        part.MaxPool2d(2), part.Conv2d(16, 32, 5), part.ReLU(), part.MaxPool2d(2),
        part.Flatten(), part.Linear(800, 120), part.ReLU(), part.Linear(120, 10),
        torch.ao.quantization.DeQuantStub(),
    ).eval()  # fmt: skip


def _theirs(model: torch.nn.Module | None, x: torch.Tensor) -> list[Any]:
    if model is None or "x86" not in _engines():
        return ["", ""]
    kit = torch.ao.quantization
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = "x86"
        fused = kit.fuse_modules(model, [["1", "2"], ["4", "5"], ["8", "9"]])
        fused.qconfig = kit.get_default_qconfig("x86")
        observed = kit.prepare(fused)
        observed(x)
        found = kit.convert(observed)
        return [1e3 * least(lambda: model(x)), 1e3 * least(lambda: found(x))]


def main() -> None:
    """Measures the named parts, by default all of them."""
    parts = {"products": products, "tokens": tokens, "networks": networks}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}")
    chosen = parser.parse_args().parts or list(parts)
    torch.set_num_threads(1)
    for name in chosen:
        parts[name]()


if __name__ == "__main__":
    main()
