"""Every module class of torch.nn is there and compared: text, state, outputs, gradients, start."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from tests.nn.parity import (
    classes,
    close,
    draw,
    pair,
    same_behaviour,
    same_text,
    to_metaop,
)
from tests.nn.test_layers import IMAGE, LAYERS, SEQUENCE, VOLUME
from tests.nn.test_losses import LOSSES

torch = pytest.importorskip("torch")

# Classes that other tests of this folder compare, and why they need tests of their own.
ELSEWHERE = {
    "test_recurrent": ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"),
    "test_transformer": ("MultiheadAttention", "TransformerEncoderLayer"),
    "test_layers": (
        *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "RReLU"),
        *("FeatureAlphaDropout", "Embedding", "EmbeddingBag"),
    ),
    "test_losses": ("CTCLoss",),
    "test_containers": (
        *("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
    ),
    "test_module": ("Module",),
}
EXCUSED = {
    "RNNBase": "a base without a behaviour of its own",
    "RNNCellBase": "a base without a behaviour of its own",
    "Container": "given up by PyTorch",
    "CrossMapLRN2d": "PyTorch's moving sum over channels never drops the first one",
}


def _random_places(*shape: int) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(4))


LAZY = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (3,), {"bias": False}, (2, 5)),
    ("LazyConv1d", (3, 2), {}, SEQUENCE),
    ("LazyConv2d", (6, 3), {"groups": 2, "padding": 1}, IMAGE),
    ("LazyConv3d", (3, 2), {"bias": False}, VOLUME),
    ("LazyConvTranspose1d", (3, 2), {"stride": 2}, SEQUENCE),
    ("LazyConvTranspose2d", (4, 3), {"output_padding": 1, "stride": 2}, IMAGE),
    ("LazyConvTranspose3d", (3, 2), {}, VOLUME),
    ("LazyBatchNorm1d", (), {}, SEQUENCE),
    ("LazyBatchNorm2d", (), {"affine": False}, IMAGE),
    ("LazyBatchNorm3d", (), {"track_running_stats": False}, VOLUME),
    ("LazyInstanceNorm1d", (), {"affine": True}, SEQUENCE),
    ("LazyInstanceNorm2d", (), {}, IMAGE),
    ("LazyInstanceNorm3d", (), {"track_running_stats": False}, VOLUME),
]

# name, positional arguments, keyword arguments, inputs
CASES = [
    ("LPPool3d", (2, 2), {}, lambda: (draw(*VOLUME),)),
    (
        "FractionalMaxPool2d",
        (2, (3, 4)),
        {"_random_samples": _random_places(2, 4, 2), "return_indices": True},
        lambda: (draw(*IMAGE),),
    ),
    (
        "FractionalMaxPool3d",
        (2,),
        {"output_ratio": (0.5, 0.6, 0.5), "_random_samples": _random_places(2, 2, 3)},
        lambda: (draw(*VOLUME),),
    ),
    (
        "AdaptiveLogSoftmaxWithLoss",
        (8, 20, [4, 10]),
        {"div_value": 2.0},
        lambda: (draw(12, 8), classes(20, 12)),
    ),
    (
        "AdaptiveLogSoftmaxWithLoss",
        (8, 20, [4, 10]),
        {"div_value": 2.0, "head_bias": True},
        lambda: (draw(8), torch.tensor(2)),
    ),
    ("LinearCrossEntropyLoss", (5, 3), {"bias": True}, lambda: (draw(6, 5), classes(3, 6))),
    (
        "LinearCrossEntropyLoss",
        (5, 3),
        {"out_features": (2,), "label_smoothing": 0.1, "reduction": "sum"},
        lambda: (draw(6, 5), classes(3, 6, 2)),
    ),
    ("NLLLoss2d", (), {}, lambda: (draw(2, 5, 3, 4), classes(5, 2, 3, 4))),
    ("DataParallel", (), {}, None),
    ("SyncBatchNorm", (4,), {}, None),
    ("TransformerEncoder", (), {}, None),
    ("TransformerDecoder", (), {}, None),
    ("TransformerDecoderLayer", (), {}, None),
    ("Transformer", (), {}, None),
    *((f"MaxUnpool{n}d", (2,), {}, None) for n in (1, 2, 3)),
]


def test_every_class_is_compared() -> None:
    theirs = {
        name
        for name, found in vars(torch.nn).items()
        if isinstance(found, type) and issubclass(found, torch.nn.Module)
    }
    compared = {name for names in ELSEWHERE.values() for name in names}
    compared |= {case[0] for case in (*LAYERS, *LOSSES, *LAZY, *CASES)}
    assert theirs - compared == set(EXCUSED)
    assert {name for name in theirs if not hasattr(nn, name)} == {"Container"}


@pytest.mark.parametrize("case", [c for c in CASES if c[3] is not None], ids=lambda c: c[0])
@pytest.mark.filterwarnings("ignore")
def test_module(case) -> None:
    name, arguments, options, inputs = case
    ours, theirs = pair(name, *arguments, **options)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, inputs())


@pytest.mark.parametrize("case", LAZY, ids=lambda c: f"{c[0]}-{sorted(c[2])}")
@pytest.mark.filterwarnings("ignore")
def test_lazy(case) -> None:
    name, arguments, options, shape = case
    ours, theirs = (getattr(m, name)(*arguments, **options) for m in (nn, torch.nn))
    same_text(ours, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    lazy = any(isinstance(p, nn.UninitializedParameter) for p in ours.parameters())
    if lazy:
        with pytest.raises((RuntimeError, ValueError), match="uninitialized"):
            _ = next(ours.parameters()).shape
    x = draw(*shape)
    ours(to_metaop(x)), theirs(x)
    same_text(ours, theirs)
    assert type(ours).__name__ == type(theirs).__name__
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    same_behaviour(ours, theirs, (x,))
    fresh = getattr(nn, name)(*arguments, **options)
    fresh.load_state_dict(ours.state_dict())
    assert {k: v.shape for k, v in fresh.state_dict().items()} == {
        k: v.shape for k, v in ours.state_dict().items()
    }


def test_adaptive_softmax_of_all_classes() -> None:
    ours, theirs = pair("AdaptiveLogSoftmaxWithLoss", 8, 20, [4, 10], 2.0)
    x = draw(30, 8, grad=False)
    close(ours.log_prob(to_metaop(x)), theirs.log_prob(x), 1e-5)
    assert ours.predict(to_metaop(x)).tolist() == theirs.predict(x).tolist()
    with pytest.raises((RuntimeError, ValueError), match="Target values"):
        ours(to_metaop(x), metaop.full((30,), 20))
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 20, [10, 4])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling(n: int) -> None:
    x = draw(2, 3, *(4, 6, 8)[:n])
    pooled, places = getattr(torch.nn, f"MaxPool{n}d")(2, return_indices=True)(x)
    ours, theirs = pair(f"MaxUnpool{n}d", 2)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (pooled.detach().requires_grad_(), places))


def test_functional_modules() -> None:
    ours, theirs = nn.quantized.FloatFunctional(), torch.ao.nn.quantized.FloatFunctional()
    same_text(ours, theirs)
    x, y = draw(3, 3), draw(3, 3, seed=2)
    for name in ("add", "mul", "add_relu", "matmul"):
        got = getattr(ours, name)(to_metaop(x), to_metaop(y))
        close(got, getattr(theirs, name)(x, y), 1e-5)
    for name in ("add_scalar", "mul_scalar"):
        close(getattr(ours, name)(to_metaop(x), 1.5), getattr(theirs, name)(x, 1.5), 1e-6)
    close(ours.cat([to_metaop(x), to_metaop(y)], 1), theirs.cat([x, y], 1), 0)


def test_wrappers() -> None:
    ours, theirs = pair("Linear", 4, 3)
    x = draw(5, 4)
    same_behaviour(nn.DataParallel(ours), torch.nn.DataParallel(theirs), (x,))
    assert list(nn.DataParallel(ours).state_dict()) == ["module.weight", "module.bias"]
    # With one process the statistics are those of a plain batch normalisation.
    synchronised, plain = nn.SyncBatchNorm(4), torch.nn.BatchNorm2d(4)
    assert list(synchronised.state_dict()) == list(torch.nn.SyncBatchNorm(4).state_dict())
    same_text(synchronised, torch.nn.SyncBatchNorm(4))
    same_behaviour(synchronised, plain, (draw(*IMAGE),))


@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
def test_stacks(kind: str) -> None:
    def build(library: Any) -> Any:
        layer = getattr(library, f"Transformer{kind}Layer")(8, 2, 12, 0.0, batch_first=True)
        return getattr(library, f"Transformer{kind}")(layer, 2, norm=library.LayerNorm(8))

    torch.manual_seed(0)
    theirs = build(torch.nn)
    ours = build(nn)
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    same_text(ours, theirs)
    inputs = (draw(2, 5, 8), draw(2, 4, 8, seed=2))
    same_behaviour(ours, theirs, inputs if kind == "Decoder" else inputs[:1], 5e-5)


def _with_parameters() -> list[Any]:
    sizes = {"RNN": (9, 7), "LSTM": (9, 7), "GRU": (9, 7), "RNNCell": (9, 7), "LSTMCell": (9, 7)}
    sizes |= {"GRUCell": (9, 7), "MultiheadAttention": (16, 4), "Embedding": (50, 8)}
    sizes |= {"EmbeddingBag": (50, 8), "TransformerEncoderLayer": (16, 4, 24)}
    sizes |= {"TransformerDecoderLayer": (16, 4, 24), "Transformer": (16, 4, 1, 1, 24)}
    listed = [case[:3] for case in (*LAYERS, *CASES) if case[3] is not None]
    listed += [(name, arguments, {}) for name, arguments in sizes.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            (name, arguments, options)
            for name, arguments, options in listed
            if list(getattr(torch.nn, name)(*arguments, **options).parameters())
        ]


@pytest.mark.parametrize("case", _with_parameters(), ids=lambda c: f"{c[0]}-{c[1]}-{sorted(c[2])}")
@pytest.mark.filterwarnings("ignore")
def test_initial_values(case) -> None:
    """The values of many modules have PyTorch's distribution: its mean, spread and bounds."""
    name, arguments, options = case
    metaop.manual_seed(1)
    torch.manual_seed(1)
    count = 20
    ours = [getattr(nn, name)(*to_metaop(arguments), **to_metaop(options)) for _ in range(count)]
    theirs = [getattr(torch.nn, name)(*arguments, **options) for _ in range(count)]
    for key in theirs[0].state_dict():
        got = np.stack([m.state_dict()[key].numpy() for m in ours]).astype(np.float64)
        wanted = np.stack([m.state_dict()[key].numpy() for m in theirs]).astype(np.float64)
        assert got.shape == wanted.shape
        if wanted.size == 0 or wanted.std() == 0:
            np.testing.assert_array_equal(got, wanted)
            continue
        noise = 6 / math.sqrt(wanted.size)
        assert abs(got.mean() - wanted.mean()) < noise * wanted.std(), key
        assert abs(got.std() / wanted.std() - 1) < noise, key
        assert np.abs(got).max() <= np.abs(wanted).max() * (1 + noise) * 1.5, key


def test_normalisation_across_channels() -> None:
    """`CrossMapLRN2d` is `LocalResponseNorm`, with PyTorch's text."""
    arguments = (3, 1e-3, 0.5, 1.0)
    ours, theirs = nn.CrossMapLRN2d(*arguments), torch.nn.LocalResponseNorm(*arguments)
    same_text(ours, torch.nn.CrossMapLRN2d(*arguments))
    same_behaviour(ours, theirs, (draw(*IMAGE),))


def _containers(library: Any, layers: Any) -> list[Any]:
    """What parameter containers say and hold after all that can be done to them."""
    values = layers.ParameterList([library.ones(2), layers.Parameter(library.ones(3))])
    values.append(library.zeros(1))
    values += [library.ones(2, 2)]
    found = [repr(values), list(values.state_dict()), len(values[1:3]), len(values)]
    named = layers.ParameterDict({"b": library.ones(2), "a": layers.Parameter(library.ones(1))})
    named["c"] = "text"
    named.update([("e", library.ones(1)), ("d", library.ones(1))])
    found += [repr(named), list(named.state_dict()), list(reversed(named)), named.pop("c")]
    found += [named.popitem()[0], list((named | {"q": library.ones(1)}).keys()), list(named.copy())]
    return found


def test_containers_of_parameters() -> None:
    got, wanted = _containers(metaop, nn), _containers(torch, torch.nn)
    for one, other in zip(got, wanted, strict=True):
        assert (one.replace("metaop.", "torch.") if isinstance(one, str) else one) == other
