"""Every layer against its PyTorch namesake: repr, state keys, outputs, gradients."""

from __future__ import annotations

import pytest

from tests.nn.parity import classes, draw, pair, same_behaviour, same_text

torch = pytest.importorskip("torch")

IMAGE = (2, 4, 7, 6)
SEQUENCE = (2, 4, 9)
VOLUME = (2, 2, 5, 4, 6)

# name, positional arguments, keyword arguments, shapes of the inputs
LAYERS = [
    ("Identity", (1, 2), {}, [(2, 3)]),
    ("Linear", (5, 3), {}, [(4, 5)]),
    ("Linear", (5, 3), {"bias": False}, [(2, 4, 5)]),
    ("Bilinear", (3, 4, 5), {}, [(6, 3), (6, 4)]),
    ("Bilinear", (3, 4, 5), {"bias": False}, [(2, 6, 3), (2, 6, 4)]),
    ("Flatten", (), {}, [(2, 3, 4)]),
    ("Flatten", (0, 1), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, 3)), {}, [(4, 6)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, [SEQUENCE]),
    ("Conv2d", (4, 6, 3), {}, [IMAGE]),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 0), "bias": False}, [IMAGE]),
    ("Conv2d", (4, 6, 3), {"padding": "same", "dilation": 2}, [IMAGE]),
    ("Conv2d", (4, 6, 3), {"padding": "valid", "groups": 2}, [IMAGE]),
    ("Conv2d", (4, 4, 3), {"padding": 1, "groups": 4}, [IMAGE]),
    ("Conv2d", (4, 6, 3), {"padding": 2, "padding_mode": "reflect"}, [IMAGE]),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "circular"}, [IMAGE]),
    ("Conv2d", (4, 6, 3), {"padding": "same", "padding_mode": "replicate"}, [IMAGE]),
    ("Conv3d", (2, 3, 2), {"padding": 1}, [VOLUME]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [SEQUENCE]),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [IMAGE]),
    ("ConvTranspose2d", (4, 6, (2, 3)), {"dilation": 2, "bias": False}, [IMAGE]),
    ("ConvTranspose3d", (2, 3, 2), {"stride": 2}, [VOLUME]),
    ("MaxPool1d", (3,), {"stride": 2}, [SEQUENCE]),
    ("MaxPool2d", (2,), {}, [IMAGE]),
    ("MaxPool2d", ((3, 2),), {"stride": 2, "padding": 1, "ceil_mode": True}, [IMAGE]),
    ("MaxPool2d", (2,), {"dilation": 2, "return_indices": True}, [IMAGE]),
    ("MaxPool3d", (2,), {}, [VOLUME]),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1}, [SEQUENCE]),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, [IMAGE]),
    ("AvgPool2d", (2,), {"divisor_override": 3}, [IMAGE]),
    ("AvgPool3d", (2,), {"ceil_mode": True}, [VOLUME]),
    ("LPPool1d", (2, 3), {}, [SEQUENCE]),
    ("LPPool2d", (2, 3), {"stride": 2}, [IMAGE]),
    ("AdaptiveAvgPool1d", (4,), {}, [SEQUENCE]),
    ("AdaptiveAvgPool2d", (1,), {}, [IMAGE]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [IMAGE]),
    ("AdaptiveAvgPool3d", (2,), {}, [VOLUME]),
    ("AdaptiveMaxPool1d", (4,), {}, [SEQUENCE]),
    ("AdaptiveMaxPool2d", ((3, 4),), {"return_indices": True}, [IMAGE]),
    ("AdaptiveMaxPool3d", (2,), {}, [VOLUME]),
    ("BatchNorm1d", (4,), {}, [(6, 4)]),
    ("BatchNorm1d", (4,), {"momentum": None}, [SEQUENCE]),
    ("BatchNorm2d", (4,), {"eps": 1e-3, "momentum": 0.3}, [IMAGE]),
    ("BatchNorm2d", (4,), {"affine": False}, [IMAGE]),
    ("BatchNorm2d", (4,), {"track_running_stats": False}, [IMAGE]),
    ("BatchNorm3d", (2,), {}, [VOLUME]),
    ("InstanceNorm1d", (4,), {}, [SEQUENCE]),
    ("InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}, [IMAGE]),
    ("InstanceNorm2d", (4,), {}, [IMAGE[1:]]),
    ("InstanceNorm3d", (2,), {"affine": True}, [VOLUME]),
    ("LayerNorm", (6,), {}, [(2, 5, 6)]),
    ("LayerNorm", ((5, 6),), {"bias": False}, [(2, 5, 6)]),
    ("LayerNorm", (6,), {"elementwise_affine": False, "eps": 1e-3}, [(2, 5, 6)]),
    ("RMSNorm", (6,), {}, [(2, 5, 6)]),
    ("RMSNorm", ((5, 6),), {"eps": 1e-3, "elementwise_affine": False}, [(2, 5, 6)]),
    ("GroupNorm", (2, 4), {}, [IMAGE]),
    ("GroupNorm", (4, 4), {"affine": False}, [SEQUENCE]),
    ("LocalResponseNorm", (3,), {"alpha": 0.1}, [IMAGE]),
    ("ReLU", (), {}, [(3, 4)]),
    ("ReLU6", (), {}, [(3, 4)]),
    ("SELU", (), {}, [(3, 4)]),
    ("CELU", (0.7,), {}, [(3, 4)]),
    ("ELU", (0.7,), {}, [(3, 4)]),
    ("GELU", (), {}, [(3, 4)]),
    ("GELU", ("tanh",), {}, [(3, 4)]),
    ("GLU", (), {}, [(3, 4)]),
    ("SiLU", (), {}, [(3, 4)]),
    ("Mish", (), {}, [(3, 4)]),
    ("Hardswish", (), {}, [(3, 4)]),
    ("Hardsigmoid", (), {}, [(3, 4)]),
    ("Hardtanh", (-0.5, 0.7), {}, [(3, 4)]),
    ("Hardshrink", (), {}, [(3, 4)]),
    ("Softshrink", (0.3,), {}, [(3, 4)]),
    ("Tanhshrink", (), {}, [(3, 4)]),
    ("LeakyReLU", (0.2,), {}, [(3, 4)]),
    ("PReLU", (), {}, [IMAGE]),
    ("PReLU", (4,), {"init": 0.1}, [IMAGE]),
    ("Threshold", (0.1, 2.0), {}, [(3, 4)]),
    ("Softplus", (2.0, 1.0), {}, [(3, 4)]),
    ("Softsign", (), {}, [(3, 4)]),
    ("Sigmoid", (), {}, [(3, 4)]),
    ("LogSigmoid", (), {}, [(3, 4)]),
    ("Tanh", (), {}, [(3, 4)]),
    ("Softmax", (1,), {}, [(3, 4)]),
    ("Softmin", (0,), {}, [(3, 4)]),
    ("LogSoftmax", (), {"dim": -1}, [(3, 4)]),
    ("Softmax2d", (), {}, [IMAGE]),
    ("ConstantPad1d", ((1, 2), 0.5), {}, [SEQUENCE]),
    ("ConstantPad2d", (1, 0.5), {}, [IMAGE]),
    ("ConstantPad3d", (1, -1.0), {}, [VOLUME]),
    ("ZeroPad1d", (2,), {}, [SEQUENCE]),
    ("ZeroPad2d", ((1, 0, 2, 1),), {}, [IMAGE]),
    ("ZeroPad3d", (1,), {}, [VOLUME]),
    ("ReflectionPad1d", (2,), {}, [SEQUENCE]),
    ("ReflectionPad2d", ((1, 2, 3, 0),), {}, [IMAGE]),
    ("ReflectionPad3d", (1,), {}, [VOLUME]),
    ("ReplicationPad1d", ((3, 1),), {}, [SEQUENCE]),
    ("ReplicationPad2d", (2,), {}, [IMAGE]),
    ("ReplicationPad3d", (1,), {}, [VOLUME]),
    ("CircularPad1d", (2,), {}, [SEQUENCE]),
    ("CircularPad2d", ((1, 2, 0, 3),), {}, [IMAGE]),
    ("CircularPad3d", (1,), {}, [VOLUME]),
    ("Upsample", (), {"scale_factor": 2}, [IMAGE]),
    ("Upsample", (), {"size": (5, 9), "mode": "bilinear"}, [IMAGE]),
    ("Upsample", ((9, 11),), {"mode": "bilinear", "align_corners": True}, [IMAGE]),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, [IMAGE]),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, [IMAGE]),
    ("PixelShuffle", (2,), {}, [IMAGE]),
    ("PixelUnshuffle", (2,), {}, [(2, 3, 4, 6)]),
    ("ChannelShuffle", (2,), {}, [IMAGE]),
    ("Unfold", ((2, 3),), {"padding": 1, "stride": 2}, [IMAGE]),
    ("Fold", ((5, 6), (2, 3)), {}, [(2, 12, 16)]),
    ("PairwiseDistance", (), {"keepdim": True}, [(4, 5), (4, 5)]),
    ("CosineSimilarity", (), {"dim": 1}, [(4, 5), (4, 5)]),
]


def _identity_of(case) -> str:
    name, arguments, options, _ = case
    return f"{name}-{arguments}-{sorted(options.items())}"


@pytest.mark.parametrize("case", LAYERS, ids=_identity_of)
def test_layer(case):
    name, arguments, options, shapes = case
    ours, theirs = pair(name, *arguments, **options)
    same_text(ours, theirs)
    inputs = tuple(draw(*shape, seed=k) for k, shape in enumerate(shapes))
    same_behaviour(ours, theirs, inputs)


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm2d"])
def test_statistics_in_evaluation(name):
    ours, theirs = pair(name, 4, affine=True, track_running_stats=True)
    shape = SEQUENCE if name.endswith("1d") else IMAGE
    for seed in range(3):
        same_behaviour(ours, theirs, (draw(*shape, seed=seed),))
    ours.eval()
    theirs.eval()
    same_behaviour(ours, theirs, (draw(*shape, seed=9),))


@pytest.mark.parametrize("name", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"])
def test_dropout(name):
    ours, theirs = pair(name, 0.4)
    same_text(ours, theirs)
    shape = {"Dropout1d": (30, 40, 5), "Dropout3d": (30, 40, 2, 2, 2)}.get(name, (30, 40, 5, 2))
    ours.eval()
    theirs.eval()
    same_behaviour(ours, theirs, (draw(*shape),))
    ours.train()
    import metaop

    values = ours(metaop.ones(*shape)).numpy()
    if name == "AlphaDropout":
        return
    assert abs(values[values != 0] - 1 / 0.6).max() < 1e-5
    assert abs((values == 0).mean() - 0.4) < 0.05
    if name != "Dropout":
        per_channel = values.reshape(*shape[:2], -1)
        assert (per_channel == per_channel[..., :1]).all()


def test_unpooling():
    _, torch_pool = pair("MaxPool2d", 2, return_indices=True)
    unpool, torch_unpool = pair("MaxUnpool2d", 2)
    same_text(unpool, torch_unpool)
    pooled, indices = torch_pool(draw(*IMAGE, grad=False))
    same_behaviour(unpool, torch_unpool, (pooled.clone().requires_grad_(), indices))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"padding_idx": -1}])
def test_embedding(options):
    ours, theirs = pair("Embedding", 7, 3, **options)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (classes(7, 4, 5),))


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_embedding_bag(mode):
    ours, theirs = pair("EmbeddingBag", 7, 3, mode=mode)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (classes(7, 4, 5),))


def test_embedding_from_pretrained():
    from metaop import nn
    from tests.nn.parity import to_metaop

    table = draw(5, 3, grad=False)
    theirs = torch.nn.Embedding.from_pretrained(table, padding_idx=1)
    ours = nn.Embedding.from_pretrained(to_metaop(table), padding_idx=1)
    assert not ours.weight.requires_grad
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (classes(5, 6),))


def test_transposed_convolution_output_size():
    ours, theirs = pair("ConvTranspose2d", 4, 6, 3, stride=2, padding=1)
    same_behaviour(ours, theirs, (draw(*IMAGE),), output_size=(14, 11))
    from metaop.errors import ArgumentError
    from tests.nn.parity import to_metaop

    with pytest.raises(ArgumentError, match="output size"):
        ours(to_metaop(draw(*IMAGE)), output_size=(40, 40))


BAD_ARGUMENTS = [
    ("Conv2d", (3, 4, 3), {"groups": 2}),
    ("Conv2d", (4, 4, 3), {"padding": "nonsense"}),
    ("Conv2d", (4, 4, 3), {"padding": "same", "stride": 2}),
    ("Conv2d", (4, 4, 3), {"padding_mode": "nonsense"}),
    ("Dropout", (1.5,), {}),
    ("GroupNorm", (3, 4), {}),
    ("LSTM", (3, 4), {"dropout": 2}),
    ("RNN", (3, 4), {"nonlinearity": "sigmoid"}),
    ("TripletMarginLoss", (-1.0,), {}),
    ("MultiMarginLoss", (3,), {}),
]


@pytest.mark.parametrize("name,arguments,options", BAD_ARGUMENTS)
def test_bad_arguments(name, arguments, options):
    from metaop import nn

    with pytest.raises(ValueError):
        getattr(torch.nn, name)(*arguments, **options)
    with pytest.raises(ValueError):
        getattr(nn, name)(*arguments, **options)


@pytest.mark.parametrize("name,shape", [("BatchNorm2d", (3, 4)), ("BatchNorm1d", IMAGE)])
def test_wrong_rank(name, shape):
    from tests.nn.parity import to_metaop

    ours, theirs = pair(name, 4)
    with pytest.raises(ValueError, match="expected"):
        theirs(draw(*shape))
    with pytest.raises(ValueError, match="expected"):
        ours(to_metaop(draw(*shape)))


def test_randomised_leaky_relu():
    import metaop

    ours, theirs = pair("RReLU", 0.2, 0.4)
    same_text(ours, theirs)
    slopes = -ours(-metaop.ones(1000)).numpy()
    assert slopes.min() >= 0.2 and slopes.max() <= 0.4 and abs(slopes.mean() - 0.3) < 0.01
    ours.eval()
    theirs.eval()
    same_behaviour(ours, theirs, (draw(3, 4),))
