"""Random graphs, and message passing written with dense matrices in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop import graph as graphs

random = np.random.default_rng(2)


def random_edges(nodes: int, edges: int, lonely: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Distinct edges in random order; when `lonely`, nothing enters the last node."""
    targets = nodes - 1 if lonely else nodes
    pairs = random.permutation(nodes * targets)[:edges]
    return pairs % nodes, pairs // nodes


def random_graph(nodes: int, edges: int, lonely: bool = True) -> graphs.Graph:
    return graphs.graph(random_edges(nodes, edges, lonely), nodes)


def features(*shape: int) -> np.ndarray:
    return random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)


def leaves(*arrays: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Tensors of metaop and of PyTorch that ask for gradients."""
    import torch

    mine = [metaop.tensor(array).requires_grad_() for array in arrays]
    return mine, [torch.tensor(array, requires_grad=True) for array in arrays]


def reduce_by_loop(g: graphs.Graph, messages: Any, reducer: str) -> Any:
    """The messages (edges, …) of PyTorch reduced node by node; 0 where none arrives."""
    import torch

    rows = []
    for node in range(g.num_dst_nodes()):
        own = messages[torch.from_numpy(np.flatnonzero(g.structure.destination == node))]
        if not len(own):
            rows.append(torch.zeros_like(messages[0]))
        elif reducer in ("max", "min"):
            rows.append(getattr(own, f"a{reducer}")(0))
        else:
            rows.append(getattr(own, reducer)(0))
    return torch.stack(rows)


def assert_same(mine: Any, theirs: Any, inputs: tuple[list[Any], list[Any]]) -> None:
    """Equal values, and equal gradients of all inputs for a random cotangent."""
    import torch

    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-9)
    cotangent = features(*theirs.shape)
    wanted = torch.autograd.grad(
        theirs, inputs[1], torch.tensor(cotangent), retain_graph=True, allow_unused=True
    )
    found = metaop.autograd.grad(
        mine, inputs[0], metaop.tensor(cotangent), retain_graph=True, allow_unused=True
    )
    for a, b in zip(found, wanted):
        a, b = (np.zeros(()) if x is None else x.numpy() for x in (a, b))
        np.testing.assert_allclose(a + 0 * b, b + 0 * a, rtol=1e-8, atol=1e-8)
