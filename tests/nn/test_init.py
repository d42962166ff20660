"""Initial values: distributions of init functions and of the layers' defaults."""

from __future__ import annotations

import math

import numpy as np
import pytest

import metaop
from metaop import nn

torch = pytest.importorskip("torch")

FILLERS = [
    ("uniform_", (60, 50), {"a": -2.0, "b": 1.0}),
    ("normal_", (60, 50), {"mean": 1.0, "std": 3.0}),
    ("xavier_uniform_", (60, 50), {"gain": 2.0}),
    ("xavier_normal_", (60, 50), {}),
    ("kaiming_uniform_", (30, 10, 3, 3), {"a": 0.1}),
    ("kaiming_normal_", (30, 10, 3, 3), {"mode": "fan_out", "nonlinearity": "relu"}),
    ("trunc_normal_", (60, 50), {"std": 0.5, "a": -0.6, "b": 1.0}),
    ("constant_", (3, 4), {"val": 2.5}),
    ("ones_", (3, 4), {}),
    ("zeros_", (3, 4), {}),
    ("eye_", (3, 4), {}),
    ("dirac_", (4, 3, 3, 3), {}),
    ("dirac_", (4, 2, 5), {"groups": 2}),
]


@pytest.mark.parametrize("name,shape,options", FILLERS, ids=lambda value: str(value))
def test_filler(name, shape, options):
    metaop.manual_seed(3)
    torch.manual_seed(3)
    tensor = metaop.empty(*shape)
    assert getattr(nn.init, name)(tensor, **options) is tensor
    wanted = getattr(torch.nn.init, name)(torch.empty(*shape), **options).numpy()
    got = tensor.numpy()
    if np.unique(wanted).size < 5:
        np.testing.assert_array_equal(got, wanted)
        return
    spread = wanted.std()
    assert abs(got.mean() - wanted.mean()) < 0.1 * spread
    assert abs(got.std() / spread - 1) < 0.06
    if "normal" not in name or name.startswith("trunc"):
        assert abs(got.min() - wanted.min()) < 0.1 * spread
        assert abs(got.max() - wanted.max()) < 0.1 * spread


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (4, 3, 3)])
def test_orthogonal(shape):
    matrix = nn.init.orthogonal_(metaop.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(matrix @ matrix.T, 4 * np.eye(len(matrix)), atol=1e-4)


def test_sparse():
    values = nn.init.sparse_(metaop.empty(20, 6), sparsity=0.3, std=1.0).numpy()
    assert ((values == 0).sum(axis=0) == 6).all()


def test_gains_and_errors():
    for name in ("linear", "relu", "tanh", "sigmoid", "selu", "conv2d"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == math.sqrt(2 / 1.09)
    with pytest.raises(ValueError, match="nonlinearity"):
        nn.init.calculate_gain("nonsense")
    with pytest.raises(ValueError, match="fewer than 2"):
        nn.init.xavier_uniform_(metaop.empty(3))
    with pytest.warns(FutureWarning, match="deprecated"):
        nn.init.normal(metaop.empty(3))


LAYERS = [
    ("Linear", (40, 50)),
    ("Bilinear", (20, 10, 15)),
    ("Conv2d", (16, 32, 3)),
    ("ConvTranspose2d", (16, 32, 3)),
    ("Embedding", (50, 40)),
    ("LSTM", (20, 30)),
    ("GRUCell", (20, 30)),
    ("MultiheadAttention", (32, 4)),
    ("LayerNorm", (10,)),
    ("BatchNorm2d", (10,)),
    ("PReLU", (3,)),
]


@pytest.mark.parametrize("name,arguments", LAYERS)
def test_default_values_of_layers(name, arguments):
    metaop.manual_seed(1)
    torch.manual_seed(1)
    ours = getattr(nn, name)(*arguments).state_dict()
    theirs = getattr(torch.nn, name)(*arguments).state_dict()
    assert list(ours) == list(theirs)
    for key, wanted in theirs.items():
        got, wanted = ours[key].numpy().astype(np.float64), wanted.double().numpy()
        assert got.shape == wanted.shape
        if wanted.size < 2 or wanted.std() == 0:
            np.testing.assert_array_equal(got, wanted)
            continue
        noise = 5 / math.sqrt(wanted.size)
        assert abs(got.mean() - wanted.mean()) < noise * wanted.std(), key
        assert abs(got.std() / wanted.std() - 1) < noise, key
        if name != "Embedding":
            bound = np.abs(wanted).max()
            assert bound * 0.8 <= np.abs(got).max() <= bound * 1.25, key


def test_seed_repeats():
    def values() -> np.ndarray:
        metaop.manual_seed(7)
        return nn.Linear(5, 5).weight.detach().numpy().copy()

    np.testing.assert_array_equal(values(), values())
