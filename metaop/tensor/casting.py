"""Automatic casts of operands: what `metaop.amp.autocast` switches on.

Three lists of composites decide, as PyTorch's do: contractions run in the low precision,
operators that need range run in float32, operators of several operands take the widest type.
Everything else keeps the types that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.operators.basic import convert
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, modes, record

IN_LOW_PRECISION = frozenset(
    (
        *("matmul", "add_product", "add_batched_products", "linear", "bilinear", "convolution"),
        *("transposed_convolution", "einsum", "attention", "attention_with_weights"),
        *("recurrent_cell", "recurrent_layer", "prelu"),
    )
)
IN_FLOAT32 = frozenset(
    (
        *("acos", "asin", "cosh", "tan", "exp", "exp2", "expm1", "log", "log10", "log2", "log1p"),
        *("pow", "reciprocal", "rsqrt", "sinh", "erfinv", "softmax", "log_softmax", "softplus"),
        *("layer_norm", "group_norm", "rms_norm", "instance_norm", "vector_norm", "cumulative"),
        *("sum", "prod", "nansum", "moments", "logsumexp", "cosine_similarity", "nll_loss"),
        *("pair_distances", "pairwise_distance", "cosine_embedding_loss", "normalize"),
        *("cross_entropy_of_classes", "cross_entropy_of_probabilities", "mse_loss", "l1_loss"),
        *("huber_loss", "smooth_l1_loss", "binary_cross_entropy", "kl_div", "poisson_nll_loss"),
        *("binary_cross_entropy_with_logits", "gaussian_nll_loss", "hinge_embedding_loss"),
        *("margin_ranking_loss", "soft_margin_loss", "multilabel_soft_margin_loss", "ctc_loss"),
        *("multi_margin_loss", "multilabel_margin_loss", "triplet_margin_loss"),
        *("batch_norm_training", "batch_norm_evaluation", "grid_sample"),
    )
)


class Casts:
    """The casts of one device type to one low precision; `modes.casts` while they are on."""

    __slots__ = ("device_type", "low")

    def __init__(self, device_type: str, low: DType) -> None:
        self.device_type = device_type
        self.low = low

    def __call__(
        self, composite: Composite, inputs: Sequence[Call | None]
    ) -> Sequence[Call | None]:
        """The operands of a call of `composite`, converted."""
        if composite.name in IN_LOW_PRECISION:
            return self._converted(inputs, self.low)
        if composite.name in IN_FLOAT32:
            return self._converted(inputs, dtypes.float32)
        return inputs

    def _converted(self, inputs: Sequence[Call | None], dtype: DType) -> list[Call | None]:
        return [self._one(call, dtype) for call in inputs]

    def _one(self, call: Call | None, dtype: DType) -> Call | None:
        if call is None or call.type.dtype is dtype or call.type.device.type != self.device_type:
            return call
        kind = call.type.dtype
        if kind.kind != "float" or kind.itemsize == 8:
            return call
        if call.scalar is not None and not call.requires_grad:
            return call
        previous, modes.casts = modes.casts, None
        try:
            return record(convert, (call,), (dtype,))
        finally:
            modes.casts = previous
