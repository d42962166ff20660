"""Losses and distances against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metaop
from metaop.differentiation.tape import gradient_plan
from metaop.errors import ArgumentError, DTypeError, ShapeError
from metaop.fusion.simplify import simplify
from metaop.nn import functional as F
from metaop.nn.functional import arguments
from metaop.operators import losses as operators
from metaop.reduce import Reduce
from metaop.unified_graph.dtype import float32, int64
from metaop.unified_graph.node import input_node, topological
from metaop.unified_graph.tensor_type import TensorType
from tests.helpers import check, check_derivatives, gradients
from tests.operators.against_torch import compare, draw

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

REDUCTIONS = ["mean", "sum", "none"]


def classes(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).integers(0, count, shape)


def signs(*shape: int) -> np.ndarray:
    return np.sign(draw(*shape, seed=5))


def with_target(name: str, target: np.ndarray, *inputs: np.ndarray, **options) -> None:
    """A loss whose target, behind the first input, takes no gradient."""
    torch = pytest.importorskip("torch")

    def ours(x, *rest):
        return getattr(F, name)(x, metaop.tensor(target), *rest, **options)

    def theirs(x, *rest):
        return getattr(torch.nn.functional, name)(x, torch.from_numpy(target), *rest, **options)

    check((ours, theirs), *inputs)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2), (2, 4, 3, 2), (4,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_classes(shape, reduction, weighted):
    target = classes(4, *shape[:-1]) if len(shape) < 3 else classes(4, shape[0], *shape[2:])
    target = np.asarray(target, np.int64)
    weight = np.abs(draw(4)) if weighted else None
    for name in ("nll_loss", "cross_entropy"):
        inputs = (draw(*shape),)
        options = {"reduction": reduction}
        if weighted:
            with_weight(name, target, weight, *inputs, **options)
        else:
            with_target(name, target, *inputs, **options)


def with_weight(name, target, weight, *inputs, **options):
    torch = pytest.importorskip("torch")
    check(
        (
            lambda x: getattr(F, name)(x, metaop.tensor(target), metaop.tensor(weight), **options),
            lambda x: getattr(torch.nn.functional, name)(
                x, torch.from_numpy(target), torch.from_numpy(weight), **options
            ),
        ),
        *inputs,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ignored_targets(reduction):
    target = classes(4, 6)
    target[[1, 4]] = -100
    for name in ("nll_loss", "cross_entropy"):
        with_target(name, target, draw(6, 4), reduction=reduction)
        with_target(name, target % 4, draw(6, 4), reduction=reduction, ignore_index=2)
    options = {"reduction": reduction, "label_smoothing": 0.2}
    with_target("cross_entropy", target, draw(6, 4), **options)
    with_weight("cross_entropy", target, np.abs(draw(4)), draw(6, 4), **options)
    with_weight("cross_entropy", target % 4, np.abs(draw(4)), draw(6, 4), **options, ignore_index=2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_of_probabilities(reduction, smoothing):
    for shape in ((5, 4), (2, 4, 3), (4,)):
        probabilities = np.abs(draw(*shape, seed=3))
        options = {"reduction": reduction, "label_smoothing": smoothing}
        compare("cross_entropy", draw(*shape), probabilities, **options)
        with_weight("cross_entropy", probabilities, np.abs(draw(4)), draw(*shape), **options)


def test_cross_entropy_of_large_scores():
    with_target("cross_entropy", classes(4, 5), draw(5, 4, dtype="float32") * 1e4)


def test_all_targets_ignored_gives_nan():
    with_target("nll_loss", np.full(3, -100), draw(3, 4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 4), (), (2, 3, 2)])
def test_losses_of_differences(shape, reduction):
    x, y = draw(*shape) * 2, draw(*shape, seed=1)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        compare(name, x, y, reduction=reduction)
    compare("smooth_l1_loss", x, y, beta=0.3, reduction=reduction)
    compare("smooth_l1_loss", x, y, beta=0.0, reduction=reduction)
    compare("huber_loss", x, y, delta=0.3, reduction=reduction)
    compare("poisson_nll_loss", x, np.asarray(np.abs(y)), reduction=reduction)


def test_weighted_losses_of_differences():
    weight = np.abs(draw(3, 4, seed=2))
    for name in ("mse_loss", "l1_loss", "huber_loss"):
        for reduction in REDUCTIONS:
            compare(name, draw(3, 4), draw(3, 4, seed=1), reduction=reduction, weight=weight)


def test_broadcast_targets_warn():
    with pytest.warns(UserWarning, match="broadcast"):
        F.mse_loss(metaop.tensor(draw(3, 4)), metaop.tensor(draw(3, 1)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    x, t = np.abs(np.sin(draw(3, 4))), (draw(3, 4, seed=1) > 0).astype(np.float64)
    weight = np.abs(draw(3, 4, seed=2))
    with_target("binary_cross_entropy", t, x, reduction=reduction)
    with_weight("binary_cross_entropy", t, weight, x, reduction=reduction)
    name = "binary_cross_entropy_with_logits"
    with_target(name, t, draw(3, 4) * 10, reduction=reduction)
    with_weight(name, t, weight, draw(3, 4), reduction=reduction)
    compare(
        name,
        draw(3, 4),
        np.abs(np.sin(draw(3, 4, seed=4))),
        reduction=reduction,
        pos_weight=np.abs(draw(4)),
    )


def test_binary_cross_entropy_of_certainty():
    x = np.array([0.0, 1.0, 0.0, 1.0])
    certain = metaop.tensor(x).requires_grad_()
    loss = F.binary_cross_entropy(
        certain, metaop.tensor([0.0, 1.0, 1.0, 0.0], dtype=metaop.float64)
    )
    assert loss.item() == 50.0
    (slope,) = gradients([loss], [metaop.tensor(1.0, dtype=metaop.float64)], [certain])
    assert np.isfinite(slope.detach().numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, 0.5, -1e-6, 1 + 1e-6, -1.0, 1.5, np.nan, np.inf, -np.inf]
)
def test_probabilities_are_checked(value, reduction, dtype):
    for which in ("input", "target"):
        outcomes = []
        for lib in (torch, metaop):
            operands = {
                name: lib.tensor(
                    [0.5] * 40 + [value if name == which else 0.25] + [0.75] * 30,
                    dtype=getattr(lib, dtype),
                )
                for name in ("input", "target")
            }
            operands["input"].requires_grad_()
            loss = lib.nn.functional.binary_cross_entropy
            try:
                result = loss(**operands, reduction=reduction).sum()
                result.backward()
                # The slope of a bounded logarithm at its bound is not the same.
                inside = np.abs(operands["input"].tolist() - np.array(0.5)) < 0.5
                outcomes.append((result.item(), inside * operands["input"].grad.tolist()))
            except RuntimeError as error:
                assert f"all elements of {which} should be between 0 and 1" in str(error)
                outcomes.append(None)
        assert (outcomes[0] is None) == (outcomes[1] is None)
        if outcomes[0] is not None:
            tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
            np.testing.assert_allclose(outcomes[1][0], outcomes[0][0], tolerance)
            np.testing.assert_allclose(outcomes[1][1], outcomes[0][1], tolerance)


def test_captured_training_checks_probabilities():
    weights = metaop.zeros(3).requires_grad_()

    @metaop.jit
    def step(rows, labels, scale):
        loss = F.binary_cross_entropy(metaop.sigmoid(rows @ weights) * scale, labels)
        loss.backward()
        with metaop.no_grad():
            weights.sub_(weights.grad)
            weights.grad = None
        return loss

    rows, labels = metaop.tensor(draw(50, 3)).float(), metaop.tensor(draw(50) > 0).float()
    for scale, label in ((1.0, 1.0), (1.0, 0.0), (3.0, 0.0), (1.0, 1.5), (1.0, 1.0)):
        labels[0] = label
        before = weights.tolist()
        if scale > 1 or label > 1:
            with pytest.raises(RuntimeError, match="should be between 0 and 1"):
                step(rows, labels, metaop.tensor(scale)).item()
            assert weights.tolist() == before
        else:
            assert step(rows, labels, metaop.tensor(scale)).item() > 0
            assert weights.tolist() != before


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div(reduction, log_target):
    target = draw(3, 4) if log_target else np.abs(draw(3, 4))
    options = {"reduction": reduction, "log_target": log_target}
    compare("kl_div", draw(3, 4, seed=1), target, **options)


@pytest.mark.parametrize("log_input", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_poisson_nll_loss(log_input, full):
    rate, counts = np.abs(draw(3, 4)) + 0.1, classes(5, 3, 4).astype(np.float64)
    with_target("poisson_nll_loss", counts, rate, log_input=log_input, full=full)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (3,)])
def test_gaussian_nll_loss(reduction, shape):
    variance = np.abs(draw(*shape))
    options = {"full": True, "reduction": reduction}
    compare("gaussian_nll_loss", draw(3, 4), draw(3, 4, seed=1), variance, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margin_losses(reduction):
    options = {"reduction": reduction}
    x, y, z = draw(5, 4), draw(5, 4, seed=1), draw(5, 4, seed=2)
    with_target("hinge_embedding_loss", signs(5, 4), x, **options)
    with_target("soft_margin_loss", signs(5, 4), x, **options)
    compare("triplet_margin_loss", x, y, z, **options)
    compare("triplet_margin_loss", x, y, z, swap=True, p=1, margin=0.5, **options)
    compare("triplet_margin_with_distance_loss", x, y, z, **options)
    with_target("multi_margin_loss", classes(4, 5), x, **options)
    with_target("multi_margin_loss", classes(4, 5), x, p=2, margin=0.5, **options)
    with_target("multi_margin_loss", np.array(2), x[0], **options)
    with_target("multilabel_soft_margin_loss", (y > 0).astype(np.float64), x, **options)
    labels = np.array([[1, 3, -1, 0], [0, -1, 2, 2], [-1, 0, 1, 2], [3, 2, 1, 0], [2, -1, -1, -1]])
    with_target("multilabel_margin_loss", labels, x, **options)
    with_target("multilabel_margin_loss", labels[0], x[0], **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "margin", "shape"),
    [("margin_ranking_loss", 0.3, (5,)), ("cosine_embedding_loss", 0.1, (5, 4))],
)
def test_losses_of_pairs(name, margin, shape, reduction):
    torch = pytest.importorskip("torch")
    target = signs(5)

    def ours(a, b):
        return getattr(F, name)(a, b, metaop.tensor(target), margin, reduction=reduction)

    def theirs(a, b):
        loss = getattr(torch.nn.functional, name)
        return loss(a, b, torch.from_numpy(target), margin, reduction=reduction)

    check((ours, theirs), draw(*shape), draw(*shape, seed=1))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cosine_similarity(dim):
    compare("cosine_similarity", draw(3, 4, 2), draw(3, 4, 2, seed=1), dim=dim)
    compare("cosine_similarity", draw(3, 4, 2), draw(4, 2, seed=1), dim=dim)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_distances(p):
    compare("pairwise_distance", draw(3, 4), draw(3, 4, seed=1), p=p)
    compare("pairwise_distance", draw(3, 4), draw(3, 4, seed=1), p=p, keepdim=True)
    compare("pdist", draw(5, 4), p=p)


@pytest.mark.parametrize("name", ["mse_loss", "cross_entropy", "huber_loss", "l1_loss"])
def test_types(name):
    for dtype in ("float16", "float32"):
        x, y = draw(3, 4, dtype=dtype), np.abs(draw(3, 4, dtype=dtype, seed=1))
        compare(name, x, y, tolerance=4e-3)


def test_second_derivatives():
    target = metaop.tensor(classes(4, 3))
    check_derivatives(lambda x: F.cross_entropy(x, target, label_smoothing=0.1), draw(3, 4))
    check_derivatives(lambda x: F.nll_loss(F.log_softmax(x, 1), target), draw(3, 4))
    check_derivatives(F.mse_loss, draw(3, 4), draw(3, 4, seed=1))
    check_derivatives(F.cosine_similarity, draw(3, 4), draw(3, 4, seed=1))
    truth = metaop.tensor((draw(3, 4, seed=1) > 0).astype(np.float64))
    check_derivatives(lambda x: F.binary_cross_entropy_with_logits(x, truth), draw(3, 4))
    check_derivatives(lambda x: F.kl_div(x, truth, reduction="sum"), draw(3, 4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("form", ["loop", "unrolled"])
def test_ctc_loss(reduction, zero_infinity, form, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arguments, "_SHORTEST_LOOP", 1 if form == "loop" else 1 << 30)
    time, batch, symbols, longest = 7, 3, 5, 3
    targets = np.array([[1, 1, 3], [4, 2, 2], [3, 1, 2]])
    lengths, sizes = (7, 6, 5), (3, 2, 1)
    options = {"reduction": reduction, "zero_infinity": zero_infinity}

    def ours(x):
        scores = F.log_softmax(x, 2)
        return F.ctc_loss(scores, metaop.tensor(targets), lengths, sizes, **options)

    def theirs(x):
        scores = torch.nn.functional.log_softmax(x, 2)
        return torch.nn.functional.ctc_loss(
            scores, torch.from_numpy(targets), lengths, sizes, **options
        )

    assert targets.shape == (batch, longest)
    check((ours, theirs), draw(time, batch, symbols))


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_of_impossible_and_joined_targets(zero_infinity):
    torch = pytest.importorskip("torch")
    joined = np.array([1, 1, 1, 2, 3])
    options = {"reduction": "none", "zero_infinity": zero_infinity}

    def ours(x):
        return F.ctc_loss(x, metaop.tensor(joined), (4, 4), (3, 2), **options)

    def theirs(x):
        loss = torch.nn.functional.ctc_loss
        return loss(x, torch.from_numpy(joined), (4, 4), (3, 2), **options)

    check((ours, theirs), np.log(np.full((4, 2, 4), 0.25)), gradient=False)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_of_scores_that_are_not_numbers(zero_infinity):
    scores = np.log(np.full((4, 2, 4), 0.25))
    scores[2, 1, :] = np.nan
    found = F.ctc_loss(
        metaop.tensor(scores),
        metaop.tensor([[1, 1], [2, 3]]),
        (4, 4),
        (2, 2),
        reduction="none",
        zero_infinity=zero_infinity,
    )
    assert np.isnan(found.numpy()).tolist() == [False, True]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: F.cross_entropy(x, metaop.tensor(classes(4, 2))),
            ShapeError,
            r"\[2\].*\[3, 4\]",
        ),
        (lambda x: F.nll_loss(x, metaop.tensor(classes(4, 3)).int()), DTypeError, "int32"),
        (lambda x: F.mse_loss(x, x, reduction="median"), ArgumentError, "median"),
        (lambda x: F.cross_entropy(x, x, label_smoothing=2.0), ArgumentError, "label_smoothing"),
        (lambda x: F.mse_loss(x, metaop.tensor(draw(5))), ShapeError, "broadcast"),
        (lambda x: F.binary_cross_entropy(x, metaop.tensor(draw(3))), ShapeError, "same"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(metaop.tensor(draw(3, 4)))


def test_target_out_of_range():
    loss = F.cross_entropy(metaop.tensor(draw(3, 4)), metaop.tensor([0, 4, 1]))
    with pytest.raises(IndexError, match="4"):
        loss.item()


def test_gradient_of_a_likelihood_is_gathered():
    """The scatter into the target classes becomes a comparison that fuses with the softmax."""
    types = (TensorType((6, 4), float32), TensorType((6,), int64), None)
    signature = operators.nll_loss.signature(types, (-100, "mean"))
    plan = gradient_plan(signature, (0,), (0,))
    inputs = [input_node(k, kind.shape, kind.dtype) for k, kind in enumerate(types[:2])]
    places = [inputs[k] if kind == "input" else signature.outputs[k] for kind, k in plan.residuals]
    gradients = simplify(plan.composite(*places, input_node(2, (), float32)))
    for node in topological(gradients):
        assert not (isinstance(node.op, Reduce) and node.op.map.lookups())


@pytest.mark.parametrize(
    "name",
    ["mse_loss", "l1_loss", "smooth_l1_loss", "kl_div", "cosine_similarity", "pairwise_distance"],
)
@pytest.mark.parametrize("low", ["input", "target"])
def test_operands_of_two_precisions_are_promoted(name: str, low: str) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).uniform(0.1, 1, (2, 3, 4)).astype(np.float32)
    kinds = ("bfloat16", "float32") if low == "input" else ("float32", "bfloat16")
    ours, theirs, exact = [], [], []
    for value, kind in zip(values, kinds):
        ours.append(metaop.tensor(value).to(getattr(metaop, kind)))
        theirs.append(torch.tensor(value).to(getattr(torch, kind)))
        exact.append(theirs[-1].float())
    options = {} if name in ("cosine_similarity", "pairwise_distance") else {"reduction": "none"}
    found = getattr(F, name)(*ours, **options)
    function = getattr(torch.nn.functional, name)
    assert str(function(*theirs, **options).dtype).endswith(found.dtype.name)
    # PyTorch rounds a norm in `cosine_similarity`; metaop rounds nothing in between.
    np.testing.assert_allclose(found.numpy(), function(*exact, **options).numpy(), rtol=1e-5)
