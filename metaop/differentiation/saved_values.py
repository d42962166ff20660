"""Which values count as saved for backward: an in-place operation on them is an error.

Values are immutable here, so a gradient is right whatever is written later. The error is PyTorch's,
whose gradients would read what was written. What the gradient reads here is nearly always what
PyTorch saves; the table names the operators for which it is not. Where PyTorch saves other values
for other arguments or shapes, the table has those that it saves always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

from metaop.differentiation.flattening import copies_of_labels, copies_of_matrices
from metaop.errors import GradientError
from metaop.unified_graph.recording import Call, part

Residual = tuple[str, int]

# For each input that wants a gradient, the inputs (x) and results (y) that PyTorch saves.
_NOTHING = ("", "", "")
_SAVED: dict[str, tuple[str, ...]] = {
    # Elementwise
    "div": ("x1", "x0 x1"),
    "erfinv": ("x0",),
    "kron": ("", ""),
    "ldexp": ("x1", "y0"),
    "logsigmoid": ("x0",),
    "ndtr": ("",),
    "ndtri": ("y0",),
    "prelu": ("x0 x1", "x0 x1"),
    "softsign": ("x0",),
    "tanhshrink": ("",),
    # Rows and reductions
    "cosine_similarity": ("x0", "x1"),
    "extreme": ("x0 y0",),
    "extreme_with_index": ("",),
    "quantile": ("", ""),
    "log_softmax": ("y0",),
    "logsumexp": ("x0 y0",),
    "normalize": ("x0",),
    "pairwise_distance": ("y0", "y0"),
    "softmax": ("y0",),
    "vector_norm": ("x0 y0",),
    # Layers
    "adaptive_average_pool": ("",),
    "adaptive_max_pool": ("x0",),
    "attention": ("x2", "x2", "", "x2"),
    "average_pool": ("x0",),
    "batch_norm_training": ("x0 x1", "x0 x1", "x0 x1"),
    "convolution": ("x0 x1", "x0 x1", "x0 x1"),
    "embedding_bag": ("", "x0 x2 x3", "", "x0 x1 x2"),
    "group_norm": ("x0 x1", "x0 x1", "x0 x1"),
    "instance_norm": ("x0", "x0", "x0"),
    "layer_norm": ("x0 x1 x2", "x0 x1 x2", "x0 x1 x2"),
    "local_response_norm": ("x0",),
    "max_pool": ("x0",),
    "max_pool_with_indices": ("x0",),
    # Outputs are put together from the states that PyTorch saves.
    "recurrent_layer": ("x4 x5", "", "x5", "x5", "x0 x5", "x2 x5", "x5", "x5", "x5"),
    "transposed_convolution": ("x0 x1", "x0 x1", "x0 x1"),
    # Losses
    "cosine_embedding_loss": ("x0 x1", "x0 x1"),
    "cross_entropy_of_classes": ("",),
    "gaussian_nll_loss": _NOTHING,
    "hinge_embedding_loss": ("",),
    "kl_div": _NOTHING,
    "l1_loss": _NOTHING,
    "margin_ranking_loss": _NOTHING,
    "poisson_nll_loss": ("x1", ""),
    "triplet_margin_loss": _NOTHING,
}
# Operators that PyTorch computes from copies of operands of some shapes.
_COPIES: dict[str, Callable[..., list[bool]]] = {
    "einsum": copies_of_labels,
    "matmul": copies_of_matrices,
}
_PLACES: dict[str, list[tuple[Residual, ...]]] = {
    name: [
        tuple(("input" if one[0] == "x" else "output", int(one[1])) for one in places.split())
        for places in of_inputs
    ]
    for name, of_inputs in _SAVED.items()
}


def overwritten(call: Call, wanted: Sequence[int], residuals: Sequence[Call]) -> Call | None:
    """A value that is saved for the gradients of inputs `wanted` and has been written since.

    `residuals` is what these gradients read.
    """
    of_inputs = _PLACES.get(call.signature.composite.name)  # type: ignore[union-attr]
    saved = residuals if of_inputs is None else _saved(call, wanted, of_inputs)
    copied = _copied(call)
    for source in saved:
        if source in copied:
            continue
        if source.epoch is not None and source.epoch.ended_before(call.sequence):
            return source
    return None


def overwritten_error(reader: str, saved: Call) -> GradientError:
    """The error for a value that `reader` saved and an in-place operation replaced."""
    assert saved.epoch is not None
    return GradientError(
        f"one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {reader} saved a value of shape {list(saved.type.shape)} that "
        f"{saved.epoch.ended_by} replaced before backward",
        fix="use the out-of-place form, or clone the tensor before changing it",
    )


def _saved(call: Call, wanted: Sequence[int], of_inputs: list[tuple[Residual, ...]]) -> list[Call]:
    """The values that the table names; its positions count operands that are absent too."""
    types = call.signature.input_types  # type: ignore[union-attr]
    present = [position for position, kind in enumerate(types) if kind is not None]
    operands = dict(zip(present, call.inputs))
    wanted = [present[k] for k in wanted]
    places = {place for k in wanted if k < len(of_inputs) for place in of_inputs[k]}
    return [
        operands[index] if kind == "input" else part(call, index)
        for kind, index in places
        if kind == "output" or index in operands
    ]


def _copied(call: Call) -> list[Call]:
    """The operands that the gradient reads copies of."""
    signature = call.signature
    assert signature is not None
    copies = _COPIES.get(signature.composite.name)
    if copies is None:
        return []
    shapes = [source.type.shape for source in call.inputs]
    return list(compress(call.inputs, copies(shapes, *signature.attributes)))
