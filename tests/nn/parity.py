"""Comparing a module with its PyTorch namesake: text, state, outputs and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn

torch = pytest.importorskip("torch")


def to_metaop(value: Any) -> Any:
    """A torch value as the metaop value with the same contents."""
    if isinstance(value, torch.Tensor):
        result = metaop.from_numpy(value.detach().numpy().copy())
        return result.requires_grad_() if value.requires_grad else result
    if isinstance(value, (tuple, list)):
        return type(value)(to_metaop(item) for item in value)
    if isinstance(value, dict):
        return {key: to_metaop(item) for key, item in value.items()}
    return value


def pair(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """A metaop module and the torch module of the same class with the same parameters."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    ours = getattr(nn, name)(*to_metaop(args), **to_metaop(kwargs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    return ours, theirs


def same_text(ours: Any, theirs: Any) -> None:
    """Equal reprs, but for the names of the two libraries."""
    assert repr(ours).replace("metaop.", "torch.") == repr(theirs)


def tensors_in(value: Any) -> list[Any]:
    """All tensors in nested tuples, in order."""
    if isinstance(value, (torch.Tensor, metaop.Tensor)):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def close(ours: Any, theirs: Any, tolerance: float, what: str = "") -> None:
    """Equal shapes and values."""
    assert tuple(ours.shape) == tuple(theirs.shape), what
    np.testing.assert_allclose(
        ours.detach().numpy().astype(np.float64),
        theirs.detach().numpy().astype(np.float64),
        rtol=tolerance,
        atol=tolerance,
        err_msg=what,
    )


def same_behaviour(
    ours: Any, theirs: Any, inputs: tuple[Any, ...], tolerance: float = 2e-5, **options: Any
) -> None:
    """Equal outputs, gradients of inputs and of parameters, and buffers after the call."""
    arguments = to_metaop(inputs)
    result, expected = ours(*arguments, **to_metaop(options)), theirs(*inputs, **options)
    results, expectations = tensors_in(result), tensors_in(expected)
    assert len(results) == len(expectations)
    for position, (got, wanted) in enumerate(zip(results, expectations)):
        close(got, wanted, tolerance, f"output {position}")
    loss = wanted_loss = None
    for position, (got, wanted) in enumerate(zip(results, expectations)):
        if not wanted.requires_grad:
            continue
        generator = np.random.default_rng(position)
        weight = generator.standard_normal(tuple(wanted.shape)).astype(np.float32)
        term = (got * metaop.from_numpy(np.array(weight))).sum()
        wanted_term = (wanted * torch.from_numpy(np.array(weight))).sum()
        loss = term if loss is None else loss + term
        wanted_loss = wanted_term if wanted_loss is None else wanted_loss + wanted_term
    if loss is not None:
        loss.backward()
        wanted_loss.backward()
        leaves = list(zip(tensors_in(arguments), tensors_in(inputs)))
        for position, (got, wanted) in enumerate(leaves):
            if wanted.requires_grad and wanted.grad is not None:
                close(got.grad, wanted.grad, 5 * tolerance, f"gradient of input {position}")
        wanted_parameters = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            wanted = wanted_parameters[name]
            if wanted.grad is not None:
                close(parameter.grad, wanted.grad, 5 * tolerance, f"gradient of {name}")
    wanted_buffers = dict(theirs.named_buffers())
    for name, buffer in ours.named_buffers():
        close(buffer, wanted_buffers[name], tolerance, f"buffer {name}")


def draw(*shape: int, grad: bool = True, seed: int = 1) -> Any:
    """A random torch tensor."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_(grad)


def classes(count: int, *shape: int, seed: int = 2) -> Any:
    """Random class numbers below `count`."""
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))
