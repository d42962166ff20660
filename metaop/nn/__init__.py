"""Layers, containers and losses, named and called as in PyTorch."""

import importlib as _importlib

from metaop.nn import functional, hooks, init, modules, parameter, quantized
from metaop.nn.activation import (
    GELU,
    GLU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Sigmoid,
    SiLU,
    Softmax,
    Softmax2d,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
)
from metaop.nn.adaptive import (
    AdaptiveLogSoftmaxWithLoss,
    LinearCrossEntropyLoss,
    LinearCrossEntropyOptions,
)
from metaop.nn.attention import MultiheadAttention
from metaop.nn.containers import ModuleDict, ModuleList, Sequential
from metaop.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from metaop.nn.distance import CosineSimilarity, PairwiseDistance
from metaop.nn.dropout import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    FeatureAlphaDropout,
)
from metaop.nn.embedding import Embedding, EmbeddingBag
from metaop.nn.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyBatchNorm3d,
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    LazyInstanceNorm1d,
    LazyInstanceNorm2d,
    LazyInstanceNorm3d,
    LazyLinear,
)
from metaop.nn.linear import Bilinear, Identity, Linear
from metaop.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    NLLLoss2d,
    PoissonNLLLoss,
    SmoothL1Loss,
)
from metaop.nn.margin_loss import (
    CosineEmbeddingLoss,
    HingeEmbeddingLoss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from metaop.nn.module import Module
from metaop.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from metaop.nn.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from metaop.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
    factory_kwargs,
)
from metaop.nn.parameter_containers import ParameterDict, ParameterList
from metaop.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from metaop.nn.rectifier import (
    CELU,
    ELU,
    SELU,
    Hardtanh,
    LeakyReLU,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Threshold,
)
from metaop.nn.recurrent import GRU, LSTM, RNN, RNNBase
from metaop.nn.recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from metaop.nn.sample_normalisation import (
    CrossMapLRN2d,
    GroupNorm,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
)
from metaop.nn.shaping import (
    ChannelShuffle,
    Flatten,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    Unflatten,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)
from metaop.nn.synchronised_norm import SyncBatchNorm
from metaop.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

# Imported last because it uses the layers.
from metaop.nn import grad, parallel, utils  # isort: skip
from metaop.nn.parallel import DataParallel  # isort: skip

modules.fill(globals())


def __getattr__(name: str) -> type:
    """Imports `Graph` on first use: it needs the optimizers, which import the layers."""
    if name == "Graph":
        found: type = _importlib.import_module("metaop.distributed.graph").Graph
        return found
    raise AttributeError(f"module 'metaop.nn' has no attribute {name!r}")
