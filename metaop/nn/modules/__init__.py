"""The module names under which PyTorch programs import layers (`torch.nn.modules`)."""

import importlib
import sys
from types import ModuleType
from typing import Any

from metaop.nn.convolution import _Convolution as _ConvNd
from metaop.nn.convolution import _Transposed as _ConvTransposeNd
from metaop.nn.dropout import _Dropout as _DropoutNd
from metaop.nn.hooks import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from metaop.nn.lazy import LazyModuleMixin
from metaop.nn.lazy import _LazyConvolution as _LazyConvXdMixin
from metaop.nn.lazy import _LazyNorm as _LazyNormBase
from metaop.nn.loss import _Loss, _WeightedLoss
from metaop.nn.module import Module
from metaop.nn.modules import module, utils
from metaop.nn.normalisation import _BatchNorm, _InstanceNorm
from metaop.nn.normalisation import _RunningNorm as _NormBase
from metaop.nn.padding import _CircularPad as _CircularPadNd
from metaop.nn.padding import _ConstantPad as _ConstantPadNd
from metaop.nn.padding import _ReflectionPad as _ReflectionPadNd
from metaop.nn.padding import _ReplicationPad as _ReplicationPadNd
from metaop.nn.pooling import _AdaptiveAvgPool as _AdaptiveAvgPoolNd
from metaop.nn.pooling import _AdaptiveMaxPool as _AdaptiveMaxPoolNd
from metaop.nn.pooling import _AvgPool as _AvgPoolNd
from metaop.nn.pooling import _LPPool as _LPPoolNd
from metaop.nn.pooling import _MaxPool as _MaxPoolNd
from metaop.nn.pooling import _MaxUnpool as _MaxUnpoolNd

# PyTorch's modules of layers, besides `module` and `utils`, and the layers in each.
_ROOMS = {
    "activation": """
        Threshold ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU
        CELU SELU GLU GELU Hardshrink LeakyReLU LogSigmoid Softplus Softshrink
        MultiheadAttention PReLU Softsign Tanhshrink Softmin Softmax Softmax2d LogSoftmax
    """,
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "batchnorm": """
        BatchNorm1d LazyBatchNorm1d BatchNorm2d LazyBatchNorm2d BatchNorm3d LazyBatchNorm3d
        SyncBatchNorm
    """,
    "channelshuffle": "ChannelShuffle",
    "container": "Sequential ModuleList ModuleDict ParameterList ParameterDict",
    "conv": """
        Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d
        LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
    """,
    "distance": "PairwiseDistance CosineSimilarity",
    "dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": """
        InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d
        LazyInstanceNorm3d
    """,
    "lazy": "",
    "linear": "Bilinear Identity LazyLinear Linear",
    "loss": """
        L1Loss NLLLoss NLLLoss2d PoissonNLLLoss GaussianNLLLoss KLDivLoss MSELoss BCELoss
        BCEWithLogitsLoss HingeEmbeddingLoss MultiLabelMarginLoss SmoothL1Loss HuberLoss
        SoftMarginLoss CrossEntropyLoss LinearCrossEntropyLoss MultiLabelSoftMarginLoss
        CosineEmbeddingLoss MarginRankingLoss MultiMarginLoss TripletMarginLoss
        TripletMarginWithDistanceLoss CTCLoss
    """,
    "normalization": "LocalResponseNorm CrossMapLRN2d LayerNorm GroupNorm RMSNorm",
    "padding": """
        CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
        ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
        ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d
    """,
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": """
        MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d
        AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d
        LPPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AdaptiveAvgPool1d
        AdaptiveAvgPool2d AdaptiveAvgPool3d
    """,
    "rnn": "RNNBase RNN LSTM GRU RNNCellBase RNNCell LSTMCell GRUCell",
    "sparse": "Embedding EmbeddingBag",
    "transformer": """
        Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
        TransformerDecoderLayer
    """,
    "upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
}


class _Room(ModuleType):
    """One of these modules: `nn.modules.conv._ConvNd` is `nn.modules._ConvNd`.

    Programs list its contents (`vars`, `import *`), so its layers are real attributes.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(sys.modules[__name__], name)


def __getattr__(name: str) -> Any:
    """Any layer: `nn.modules.Linear` is `nn.Linear`."""
    layers = importlib.import_module("metaop.nn")
    if name.startswith("_") or not isinstance(getattr(layers, name, None), type):
        raise AttributeError(f"module 'metaop.nn.modules' has no attribute {name!r}")
    return getattr(layers, name)


for _name in _ROOMS:
    _room = globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _Room(f"{__name__}.{_name}")


def fill(layers: dict[str, Any]) -> None:
    """Adds the layers to each module, once all of them are defined."""
    for name, listed in _ROOMS.items():
        globals()[name].__dict__.update({one: layers[one] for one in listed.split()})
