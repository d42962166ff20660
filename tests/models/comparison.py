"""Compares a network of `models/` with the same program run by PyTorch.

The files of `models/` and the layers of `metaop.vision.ops` use PyTorch's names only, so their text
with `torch` in the place of `metaop` is the network in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import metaop
from benchmarks import frameworks

Loss = Callable[..., Any]


def torch_twin(name: str) -> ModuleType:
    """The module `models.NAME`, and all that it reads of `models/`, with PyTorch for metaop."""
    pytest.importorskip("torch")
    return frameworks.torch_twin(f"models.{name}")


def parameter_count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def copy_state(source: Any, target: Any) -> None:
    """Gives a PyTorch model the parameters and buffers of a metaop model."""
    import torch

    state = {
        name: torch.tensor(np.array(value.numpy())) for name, value in source.state_dict().items()
    }
    target.load_state_dict(state)


def assert_close(actual: Any, expected: Any, tolerance: float, what: str) -> None:
    """The largest difference, measured by the largest element."""
    got, want = actual.detach().numpy(), expected.detach().numpy()
    assert got.shape == want.shape, what
    scale = max(float(np.abs(want).max(initial=0)), 1e-3)
    np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=tolerance, err_msg=what)


def compare(
    name: str,
    build: Callable[[Any], Any],
    loss: Loss,
    *arrays: np.ndarray,
    dtype: str = "float64",
    tolerance: float = 1e-7,
    steps: int = 0,
) -> None:
    """Same names, outputs, loss, gradients and changed buffers in metaop and in PyTorch.

    `build(module)` makes the model from `models.NAME` or its twin; `loss(library, model, *inputs)`
    gives outputs and loss. Float arrays are converted to `dtype`. Then parameters are compared
    after so many `steps` of SGD with momentum.
    """
    import torch

    metaop.manual_seed(3)
    mine = build(__import__(f"models.{name}", fromlist=[name])).to(getattr(metaop, dtype))
    theirs = build(torch_twin(name)).to(getattr(torch, dtype))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    copy_state(mine, theirs)
    cast = [array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays]
    output, value = loss(metaop, mine, *map(metaop.tensor, cast))
    expected, reference = loss(torch, theirs, *map(torch.tensor, cast))
    value.backward()
    reference.backward()
    assert_close(output, expected, tolerance, "outputs")
    assert_close(value, reference, tolerance, "loss")
    for (key, parameter), other in zip(mine.named_parameters(), theirs.parameters()):
        assert (parameter.grad is None) == (other.grad is None), key
        if other.grad is not None:
            assert parameter.grad.is_sparse == other.grad.is_sparse, key
            own, wanted = parameter.grad.to_dense(), other.grad.to_dense()
            assert_close(own, wanted, 10 * tolerance, f"gradient of {key}")
    for (key, buffer), other in zip(mine.named_buffers(), theirs.buffers()):
        assert_close(buffer, other, tolerance, key)
    if steps:
        descend(metaop, mine, loss, [metaop.tensor(array) for array in cast], steps)
        descend(torch, theirs, loss, [torch.tensor(array) for array in cast], steps)
        for (key, parameter), other in zip(mine.named_parameters(), theirs.parameters()):
            assert_close(parameter, other, tolerance, f"{key} after training")


def descend(library: Any, model: Any, loss: Loss, inputs: list[Any], steps: int) -> None:
    """So many steps of SGD with momentum; the first takes the gradients that are there."""
    optimizer = library.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    optimizer.step()
    for _ in range(steps - 1):
        optimizer.zero_grad()
        loss(library, model, *inputs)[1].backward()
        optimizer.step()


def classification(library: Any, model: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """The logits of a classifier and their cross-entropy."""
    logits = model(images)
    return logits, library.nn.functional.cross_entropy(logits, labels)


def image_batch(count: int, size: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Random images (count, 3, size, size) and labels."""
    random = np.random.default_rng(5)
    return random.standard_normal((count, 3, size, size)), random.integers(0, classes, count)
