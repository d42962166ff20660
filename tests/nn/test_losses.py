"""Every loss against its PyTorch namesake, in every reduction."""

from __future__ import annotations

import pytest

from tests.nn.parity import classes, close, draw, pair, same_behaviour, same_text, to_metaop

torch = pytest.importorskip("torch")


def _signs(*shape: int):
    return torch.where(draw(*shape, grad=False, seed=5) > 0, 1.0, -1.0)


def _probabilities(*shape: int):
    return torch.softmax(draw(*shape, grad=False, seed=3), 1)


def _logs(*shape: int):
    return torch.log_softmax(draw(*shape, grad=False), 1).requires_grad_()


def _rates(*shape: int):
    return torch.sigmoid(draw(*shape, grad=False)).requires_grad_()


LOSSES = [
    ("L1Loss", {}, lambda: (draw(4, 3), draw(4, 3, seed=2))),
    ("MSELoss", {}, lambda: (draw(4, 3), draw(4, 3, seed=2))),
    ("SmoothL1Loss", {"beta": 0.5}, lambda: (draw(4, 3), draw(4, 3, seed=2))),
    ("HuberLoss", {"delta": 0.5}, lambda: (draw(4, 3), draw(4, 3, seed=2))),
    ("CrossEntropyLoss", {}, lambda: (draw(6, 5), classes(5, 6))),
    ("CrossEntropyLoss", {"ignore_index": 1}, lambda: (draw(6, 5, 3), classes(5, 6, 3))),
    (
        "CrossEntropyLoss",
        {"label_smoothing": 0.2, "weight": torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])},
        lambda: (draw(6, 5), classes(5, 6)),
    ),
    ("CrossEntropyLoss", {}, lambda: (draw(6, 5), _probabilities(6, 5))),
    ("NLLLoss", {}, lambda: (_logs(6, 5), classes(5, 6))),
    ("NLLLoss", {"weight": torch.arange(1.0, 6.0)}, lambda: (_logs(2, 5, 3), classes(5, 2, 3))),
    ("BCELoss", {}, lambda: (_rates(4, 3), (draw(4, 3, grad=False, seed=9) > 0).float())),
    ("BCEWithLogitsLoss", {}, lambda: (draw(4, 3), _rates(4, 3).detach())),
    (
        "BCEWithLogitsLoss",
        {"pos_weight": torch.tensor([1.0, 2.0, 3.0])},
        lambda: (draw(4, 3), _rates(4, 3).detach()),
    ),
    ("KLDivLoss", {}, lambda: (_logs(4, 3), _probabilities(4, 3))),
    ("KLDivLoss", {"log_target": True}, lambda: (_logs(4, 3), _logs(4, 3).detach())),
    ("PoissonNLLLoss", {}, lambda: (draw(4, 3), classes(6, 4, 3).float())),
    (
        "PoissonNLLLoss",
        {"log_input": False, "full": True},
        lambda: (_rates(4, 3), classes(6, 4, 3).float()),
    ),
    ("GaussianNLLLoss", {"full": True}, lambda: (draw(4, 3), draw(4, 3, seed=2), _rates(4, 3))),
    ("HingeEmbeddingLoss", {}, lambda: (draw(4, 3), _signs(4, 3))),
    ("CosineEmbeddingLoss", {"margin": 0.2}, lambda: (draw(4, 3), draw(4, 3, seed=2), _signs(4))),
    ("MarginRankingLoss", {"margin": 0.2}, lambda: (draw(4), draw(4, seed=2), _signs(4))),
    ("SoftMarginLoss", {}, lambda: (draw(4, 3), _signs(4, 3))),
    (
        "MultiLabelMarginLoss",
        {},
        lambda: (draw(2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])),
    ),
    ("MultiLabelSoftMarginLoss", {}, lambda: (draw(4, 3), (_signs(4, 3) + 1) / 2)),
    ("MultiMarginLoss", {"p": 2, "margin": 0.7}, lambda: (draw(6, 5), classes(5, 6))),
    (
        "TripletMarginLoss",
        {"swap": True},
        lambda: (draw(4, 3), draw(4, 3, seed=2), draw(4, 3, seed=3)),
    ),
    (
        "TripletMarginWithDistanceLoss",
        {"margin": 0.5},
        lambda: (draw(4, 3), draw(4, 3, seed=2), draw(4, 3, seed=3)),
    ),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", LOSSES, ids=lambda case: f"{case[0]}-{sorted(case[1])}")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_loss(case, reduction):
    name, options, inputs = case
    ours, theirs = pair(name, reduction=reduction, **options)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, inputs())


def test_older_arguments():
    from metaop import nn

    for options, reduction in (
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
        ({"reduce": True, "size_average": True}, "mean"),
    ):
        with pytest.warns(UserWarning, match="deprecated"):
            assert nn.MSELoss(**options).reduction == reduction


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction):
    ours, theirs = pair("CTCLoss", blank=0, reduction=reduction)
    same_text(ours, theirs)
    targets = classes(4, 3, 3) + 1
    lengths = (torch.tensor([8, 6, 7]), torch.tensor([3, 2, 1]))

    def loss(module):
        # PyTorch's gradient holds for normalised scores only, so the logits are compared.
        return lambda logits, *rest: module(logits.log_softmax(2), *rest)

    logits = draw(8, 3, 5)
    own_logits = to_metaop(logits)
    result = loss(ours)(own_logits, to_metaop(targets), *to_metaop(lengths))
    wanted = loss(theirs)(logits, targets, *lengths)
    close(result, wanted, 1e-5)
    result.sum().backward()
    wanted.sum().backward()
    close(own_logits.grad, logits.grad, 1e-4)
