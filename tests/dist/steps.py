"""Training steps as functions of parameters and data, for the search of parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import metaop
from metaop import nn

functional = nn.functional

Loss = Callable[..., Any]


def training_step(loss: Loss, count: int, rate: float = 0.1) -> Callable[..., tuple[Any, ...]]:
    """A step of gradient descent: takes `count` parameters and data, returns new ones and loss."""

    def step(*tensors: Any) -> tuple[Any, ...]:
        parameters = [tensor.requires_grad_() for tensor in tensors[:count]]
        value = loss(*parameters, *tensors[count:])
        gradients = metaop.autograd.grad(value, parameters)
        updated = [p - rate * g for p, g in zip(parameters, gradients)]
        return (*updated, value)

    return step


def mlp(w1: Any, w2: Any, x: Any, y: Any) -> Any:
    """Two layers and a squared error."""
    return ((functional.gelu(x @ w1) @ w2 - y) ** 2).mean()


def transformer_shapes(layers: int, width: int) -> list[tuple[int, ...]]:
    """The weights of `transformer`: attention in and out, feed-forward in and out."""
    one = [(width, 3, width), (width, width), (width, 4 * width), (4 * width, width)]
    return one * layers


def transformer(heads: int, layers: int) -> Loss:
    """Blocks of causal attention and a feed-forward network, with layer norms."""

    def loss(*tensors: Any) -> Any:
        weights: Sequence[Any] = tensors[: 4 * layers]
        x, y = tensors[4 * layers :]
        batch, length, width = x.shape
        for k in range(layers):
            enter, leave, up, down = weights[4 * k : 4 * k + 4]
            normal = functional.layer_norm(x, (width,))
            joined = normal @ enter.reshape(width, 3 * width)
            parts = joined.reshape(batch, length, 3, heads, width // heads)
            q, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
            mixed = functional.scaled_dot_product_attention(q, key, value, is_causal=True)
            x = x + mixed.transpose(1, 2).reshape(batch, length, width) @ leave
            x = x + functional.gelu(functional.layer_norm(x, (width,)) @ up) @ down
        return ((x - y) ** 2).mean()

    return loss


def convolutional(first: Any, second: Any, last: Any, images: Any, labels: Any) -> Any:
    """Two convolutions with pooling and a linear layer."""
    x = functional.max_pool2d(functional.relu(functional.conv2d(images, first, padding=1)), 2)
    x = functional.max_pool2d(functional.relu(functional.conv2d(x, second, padding=1)), 2)
    return functional.cross_entropy(x.flatten(1) @ last, labels)


def classifier(weight: Any, features: Any, labels: Any) -> Any:
    """One linear layer to very many classes, as in the recognition of faces."""
    return functional.cross_entropy(functional.normalize(features) @ weight, labels)


def wide_and_deep(table: Any, first: Any, second: Any, ids: Any, labels: Any) -> Any:
    """Embeddings of categories, and two layers on top of them."""
    x = functional.embedding(ids, table).flatten(1)
    x = functional.relu(x @ first) @ second
    return functional.binary_cross_entropy_with_logits(x, labels)
