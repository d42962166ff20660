"""In-place operations before backward are errors where they are PyTorch's, and harmless elsewhere.

Every differentiable entry of PyTorch's operator database runs; then an input or a result of it is
written in place, and the gradient is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.parity.op_db import is_public, name_of  # noqa: E402
from tests.parity.written import ALLOWED, REFUSED, WRONG, differences  # noqa: E402

ENTRIES = [entry for entry in op_db if is_public(entry) and entry.supports_autograd]

# PyTorch raises an error for something that its gradient would read after it was written. Here it
# is not read, or is kept: the gradient is that of the value that was there.
RIGHT_ANYWAY = set(
    """
angle cdist chunk combinations cross cummax cummin cumprod dist div/floor_rounding
div/trunc_rounding gather index_add index_reduce/amax index_reduce/amin index_reduce/mean
index_reduce/prod ldexp linalg.cross linalg.householder_product linalg.lstsq
linalg.lstsq/grad_oriented linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
linalg.solve_triangular linalg.vander logaddexp2 logcumsumexp lu lu_solve masked.cumprod
masked.prod masked_select matrix_exp max/reduction_with_dim median min/reduction_with_dim
mvlgamma/mvlgamma_p_1 mvlgamma/mvlgamma_p_3 mvlgamma/mvlgamma_p_5 nanmedian
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.adaptive_max_pool3d nn.functional.grid_sample nn.functional.max_pool1d
nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.nll_loss
nn.functional.pad/reflect nn.functional.pad/replicate nn.functional.pad/replicate_negative
nn.functional.pdist ormqr prod put scatter_reduce/amax scatter_reduce/amin
scatter_reduce/mean scatter_reduce/prod scatter_reduce/sum sgn special.erfcx special.i0e
special.i1 special.i1e special.log_ndtr split split/list_args split_with_sizes std
std/unbiased std_mean std_mean/unbiased take take_along_dim triangular_solve unbind
""".split()
)
# Errors here that PyTorch does not raise: it computes with copies of what is written.
REFUSED_HERE = {
    "kron", "ldexp", "nn.functional.kl_div", "nn.functional.scaled_dot_product_attention",
}  # fmt: skip
# Gradients that differ without any write: see op_db_table.py; bases are unique up to signs; the
# gradient of ctc_loss in PyTorch is that behind a log_softmax; dropout is random.
NOT_COMPARED = {
    "as_strided_scatter", "linalg.eigh", "nn.functional.ctc_loss",
    "nn.functional.scaled_dot_product_attention",
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_written_before_backward(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    name = name_of(entry)
    tables = ((RIGHT_ANYWAY, ALLOWED), (REFUSED_HERE, REFUSED), (NOT_COMPARED, WRONG))
    assert differences(entry) == {kind for table, kind in tables if name in table}


# Losses and layers whose next operation writes their result.
NEXT: dict[str, Any] = {
    "pool and relu": lambda lib, x: lib.nn.ReLU(inplace=True)(lib.nn.MaxPool2d(2)(x)),
    "pool with indices": lambda lib, x: lib.nn.functional.max_pool2d(x, 2, return_indices=True)[
        0
    ].mul_(3),
    "adaptive pool": lambda lib, x: lib.nn.AdaptiveMaxPool2d(2)(x).mul_(3),
    "quotient": lambda lib, x: (x / x.exp()).add_(x),
    "sum of losses": lambda lib, x: (x.sum() / (x * x).sum()).add_(x.mean()),
    "largest": lambda lib, x: x.max(0)[0].add_(1).mul_(2),
    "smallest": lambda lib, x: x.min(-1).values.mul_(x[0, 0, 0]),
    "normalised": lambda lib, x: lib.nn.functional.normalize(x).mul_(x),
    "cross entropy": lambda lib, x: (
        lambda y: (lib.nn.functional.cross_entropy(y, lib.ones(2, 4, 4).long()), y.zero_())[0]
    )(x * 2),
    "inverse of a matrix": lambda lib, x: lib.linalg.inv(x[0, 0] + 3 * lib.eye(4)) * 1,
}


@pytest.mark.parametrize("name", NEXT)
def test_results_that_are_written_next(name: str) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    found = []
    for lib in (metaop, torch):
        x = lib.tensor(values, requires_grad=True)
        NEXT[name](lib, x * 1).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["inv", "cholesky", "det", "eigvalsh", "svdvals", "qr"])
def test_functions_of_the_host_keep_what_they_computed(name: str) -> None:
    """A gradient never reads a result that was written after it was computed."""
    matrix = metaop.tensor([[4.0, 1.0], [1.0, 3.0]])
    found = []
    for write in (False, True):
        x = matrix.clone().requires_grad_()
        y = getattr(metaop.linalg, name)(x)
        y = y if isinstance(y, metaop.Tensor) else y[0]
        total = (y * 2).sum()
        if write:
            with metaop.no_grad():
                y.mul_(5)
        try:
            total.backward()
            found.append(x.grad.tolist())
        except metaop.errors.GradientError as error:
            assert write and "modified by an inplace operation" in str(error)
    assert all(one == found[0] for one in found)
