"""Arguments that are easily forgotten do what PyTorch's do, or are refused as there."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop import nn
from metaop.data.pipes import FileLister, FileOpener, functional_datapipe
from metaop.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    ShapeError,
    UnsupportedError,
)
from metaop.profiler import tensorboard_trace_handler
from metaop.utils.checkpoint import checkpoint
from metaop.utils.tensorboard.writer import SummaryWriter

Z = metaop.complex(metaop.ones(2), metaop.ones(2))
X = metaop.ones(8)


def causal() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    return nn.TransformerEncoder(layer, 1)(metaop.ones(3, 1, 8), is_causal=True)


def decoded(**options: Any) -> Any:
    x = metaop.ones(3, 1, 8)
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)(x, x, **options)


def contexts() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


def writer() -> Any:
    """A writer without a file."""
    return object.__new__(SummaryWriter)


REFUSED: list[tuple[str, Callable[[], Any], type[Exception]]] = [
    ("zeros of layout", lambda: metaop.zeros(2, layout=metaop.sparse_csr), ArgumentError),
    ("ones_like of l", lambda: metaop.ones_like(X, layout=metaop.sparse_csr), ArgumentError),
    ("rand of layout", lambda: metaop.rand(2, layout=metaop.sparse_coo), ArgumentError),
    ("arange of layout", lambda: metaop.arange(2, layout=metaop.sparse_coo), ArgumentError),
    ("floor_divide does not take", lambda: Z.div(Z, rounding_mode="floor"), DTypeError),
    ("output_size is 3", lambda: X.repeat_interleave(2, output_size=3), ShapeError),
    (
        "output_size is 9",
        lambda: metaop.ones(2).repeat_interleave(metaop.tensor([1, 3]), output_size=9),
        ShapeError,
    ),
    (
        "align_to_window",
        lambda: metaop.stft(X, 4, center=False, align_to_window=True, return_complex=True),
        UnsupportedError,
    ),
    (
        "align_to_window",
        lambda: metaop.stft(X, 4, align_to_window=False, return_complex=True),
        ArgumentError,
    ),
    ("require", lambda: metaop.randperm(4, requires_grad=True), RuntimeError),
    ("compute_mode", lambda: metaop.cdist(X[None], X[None], compute_mode="x"), ArgumentError),
    (
        "no strategy 'x'",
        lambda: metaop.autograd.functional.jacobian(metaop.sin, X, strategy="x"),
        ArgumentError,
    ),
    (
        "forward-mode without",
        lambda: metaop.autograd.functional.hessian(
            lambda x: x.sum(), X, outer_jacobian_strategy="forward-mode"
        ),
        ArgumentError,
    ),
    ("level 1", lambda: metaop.autograd.forward_ad.unpack_dual(X, level=1), GradientError),
    (
        "unexpected arguments atool",
        lambda: metaop.autograd.gradcheck(metaop.sin, X, atool=1.0),
        TypeError,
    ),
    ("enable_df_api_tracing", lambda: functional_datapipe("x", True), UnsupportedError),
    ("valid length", lambda: len(FileLister(".")), TypeError),
    ("need attn_mask", causal, ArgumentError),
    ("need attn_mask", lambda: decoded(tgt_is_causal=True), ArgumentError),
    ("need attn_mask", lambda: decoded(memory_is_causal=True), ArgumentError),
    ("sparse_dim=1", lambda: metaop.eye(2).to_sparse().to_sparse(1), ArgumentError),
    ("determinism_check", lambda: checkpoint(metaop.sin, X, determinism_check="x"), ArgumentError),
    (
        "use_reentrant",
        lambda: checkpoint(metaop.sin, X, use_reentrant=True, context_fn=contexts),
        ArgumentError,
    ),
    ("unexpected keyword", lambda: metaop.save({}, "x.pth", protocoll=2), TypeError),
    ("purge_step=3", lambda: SummaryWriter("x", purge_step=3), UnsupportedError),
    ("max_bins=3", lambda: writer().add_histogram("x", X, max_bins=3), UnsupportedError),
    (
        "double_precision",
        lambda: writer().add_scalar("x", 1.0, double_precision=True),
        UnsupportedError,
    ),
    ("run_name", lambda: writer().add_hparams({}, {}, run_name="x"), UnsupportedError),
]


@pytest.mark.parametrize(("message", "call", "kind"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_would_be_lost_is_refused(
    message: str, call: Callable[[], Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_defaults_and_fitting_values_are_taken() -> None:
    assert metaop.zeros(2, layout=metaop.strided).tolist() == [0.0, 0.0]
    assert metaop.ones(2).repeat_interleave(2, output_size=4).numel() == 4
    numbers = metaop.randperm(4, dtype=metaop.float32, requires_grad=True)
    assert numbers.requires_grad
    sparse = metaop.eye(2).to_sparse()
    assert sparse.to_sparse(2).layout is metaop.sparse_coo
    assert sparse.to_sparse(layout=metaop.sparse_csr).layout is metaop.sparse_csr
    assert len(FileLister(".", length=3)) == len(FileOpener([], length=3)) == 3
    x, mask = metaop.randn(3, 1, 8), nn.Transformer.generate_square_subsequent_mask(3)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 1)
    hinted, plain = encoder(x, mask, is_causal=True), encoder(x, mask)
    np.testing.assert_array_equal(hinted.detach().numpy(), plain.detach().numpy())


def test_uninitialised_buffers_take_requires_grad() -> None:
    for package in (torch, metaop):
        buffer = package.nn.parameter.UninitializedBuffer(requires_grad=True)
        buffer.materialize((2, 3))
        assert buffer.requires_grad and tuple(buffer.shape) == (2, 3)


def test_grad_warns_about_only_inputs() -> None:
    for package in (torch, metaop):
        x = package.ones(2, requires_grad=True)
        with pytest.warns(FutureWarning, match="only_inputs"):
            (slope,) = package.autograd.grad(x.sum(), x, only_inputs=False)
        assert slope.tolist() == [1.0, 1.0]


def test_assert_close_compares_strides_and_types() -> None:
    for package in (torch, metaop):
        assert_close = package.testing.assert_close
        square = package.ones(2, 2)
        turned = square.t()
        assert_close(square, turned)
        with pytest.raises(AssertionError):
            assert_close(square, turned, check_stride=True)
        with pytest.raises(AssertionError):
            assert_close([square], [turned], check_stride=True)
        with pytest.raises((AssertionError, TypeError)):
            assert_close(package.nn.Parameter(square), square, allow_subclasses=False)


@pytest.mark.parametrize("shape", [(4,), (3, 5)])
def test_make_tensor_leaves_gaps(shape: tuple[int, ...]) -> None:
    options = {"noncontiguous": True, "requires_grad": True}
    for package, more in ((torch, {"device": "cpu"}), (metaop, {})):
        made = package.testing.make_tensor(shape, dtype=package.float32, **options, **more)
        assert tuple(made.shape) == shape
        assert made.requires_grad and made.is_leaf
        assert not made.is_contiguous()


def test_checkpoint_runs_in_its_contexts() -> None:
    for package, function in ((torch, torch.utils.checkpoint.checkpoint), (metaop, checkpoint)):
        entered: list[str] = []

        @contextlib.contextmanager
        def noted(name: str, entered: list[str] = entered) -> Iterator[None]:
            entered.append(name)
            yield

        x = package.ones(3, requires_grad=True)
        result = function(
            package.exp, x, use_reentrant=False, context_fn=lambda: (noted("first"), noted("again"))
        )
        assert entered == ["first"]
        result.sum().backward()
        assert entered == ["first", "again"]
        np.testing.assert_allclose(x.grad.numpy(), np.exp(np.ones(3)), rtol=1e-6)


def test_traces_are_packed(tmp_path: Path) -> None:
    def export(path: Path) -> None:
        Path(path).write_text("{}")

    result: Any = SimpleNamespace(export_chrome_trace=export)
    tensorboard_trace_handler(str(tmp_path), use_gzip=True)(result)
    (found,) = tmp_path.iterdir()
    assert found.name.endswith(".json.gz")
    assert gzip.decompress(found.read_bytes()) == b"{}"


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
def test_the_mode_of_a_recurrent_base_says_its_gates(mode: str) -> None:
    ours, theirs = (package.nn.RNNBase(mode, 4, 3, num_layers=2) for package in (metaop, torch))
    shapes = {name: tuple(value.shape) for name, value in theirs.named_parameters()}
    assert {name: tuple(value.shape) for name, value in ours.named_parameters()} == shapes
    with pytest.raises(ArgumentError, match="Unrecognized RNN mode"):
        nn.RNNBase("ESN", 4, 3)
