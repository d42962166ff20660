"""The table of networks: programs in `models/`, arguments, weights and preprocessing."""

from __future__ import annotations

from typing import Any, NamedTuple


class Network(NamedTuple):
    """The class of a network, its arguments, and its weights by their torchvision names."""

    module: str
    kind: str
    options: dict[str, Any]
    files: dict[str, str]


def _network(module: str, kind: str, *files: str, **options: Any) -> Network:
    return Network(module, kind, options, dict(zip(("IMAGENET1K_V1", "IMAGENET1K_V2"), files)))


def _residual(block: str, layers: tuple[int, ...], *files: str, **options: int) -> Network:
    return _network("resnet", "ResNet", *files, block=block, layers=layers, **options)


def _plain(depth: int, batch_norm: bool, file: str) -> Network:
    return _network("vgg", "VGG", file, depth=depth, batch_norm=batch_norm)


def _transformer(patch: int, layers: int, heads: int, width: int, file: str) -> Network:
    return _network(
        *("vit", "VisionTransformer", file),
        patch_size=patch,
        num_layers=layers,
        num_heads=heads,
        hidden_dim=width,
        mlp_dim=4 * width,
    )


def _dense(growth: int, blocks: tuple[int, ...], first: int, file: str) -> Network:
    return _network(
        *("densenet", "DenseNet", file),
        growth_rate=growth,
        block_config=blocks,
        num_init_features=first,
    )


def _scaled(width: float, depth: float, dropout: float, *files: str, **options: float) -> Network:
    arguments = {"width": width, "depth": depth, "dropout": dropout, **options}
    return _network("efficientnet", "EfficientNet", *files, **arguments)


def _fused(size: str, dropout: float, file: str) -> Network:
    return _network("efficientnet_v2", "EfficientNetV2", file, size=size, dropout=dropout)


def _shuffling(channels: tuple[int, ...], file: str) -> Network:
    return _network(
        *("shufflenet_v2", "ShuffleNetV2", file),
        stages_repeats=(4, 8, 4),
        stages_out_channels=channels,
    )


def _modern(width: int, depth: int, drop: float, file: str) -> Network:
    return _network(
        *("convnext", "ConvNeXt", file),
        depths=(3, 3, depth, 3),
        widths=tuple(width * 2**stage for stage in range(4)),
        stochastic_depth_prob=drop,
    )


def _regular(sizes: tuple[int, int, float, float, int], se_ratio: float, *files: str) -> Network:
    names = ("depth", "w_0", "w_a", "w_m", "group_width")
    return _network("regnet", "RegNet", *files, se_ratio=se_ratio, **dict(zip(names, sizes)))


def _shifting(
    width: int, heads: int, depth: int, drop: float, file: str, window: int = 7
) -> Network:
    kind = ("swin", "SwinTransformer") if window == 7 else ("swin_v2", "SwinTransformerV2")
    return _network(
        *(*kind, file),
        window_size=window,
        embed_dim=width,
        depths=(2, 2, depth, 2),
        num_heads=tuple(heads * 2**stage for stage in range(4)),
        stochastic_depth_prob=drop,
    )


_BASIC, _BOTTLENECK = "BasicBlock", "Bottleneck"
NETWORKS = {
    "resnet18": _residual(_BASIC, (2, 2, 2, 2), "resnet18-f37072fd"),
    "resnet34": _residual(_BASIC, (3, 4, 6, 3), "resnet34-b627a593"),
    "resnet50": _residual(_BOTTLENECK, (3, 4, 6, 3), "resnet50-0676ba61", "resnet50-11ad3fa6"),
    "resnet101": _residual(_BOTTLENECK, (3, 4, 23, 3), "resnet101-63fe2227", "resnet101-cd907fc2"),
    "resnet152": _residual(_BOTTLENECK, (3, 8, 36, 3), "resnet152-394f9c45", "resnet152-f82ba261"),
    "resnext50_32x4d": _residual(
        *(_BOTTLENECK, (3, 4, 6, 3), "resnext50_32x4d-7cdf4587", "resnext50_32x4d-1a0047aa"),
        groups=32,
        width_per_group=4,
    ),
    "resnext101_32x8d": _residual(
        *(_BOTTLENECK, (3, 4, 23, 3), "resnext101_32x8d-8ba56ff5", "resnext101_32x8d-110c445d"),
        groups=32,
        width_per_group=8,
    ),
    "wide_resnet101_2": _residual(
        *(_BOTTLENECK, (3, 4, 23, 3), "wide_resnet101_2-32ee1156", "wide_resnet101_2-d733dc28"),
        width_per_group=128,
    ),
    "wide_resnet50_2": _residual(
        *(_BOTTLENECK, (3, 4, 6, 3), "wide_resnet50_2-95faca4d", "wide_resnet50_2-9ba9bcbe"),
        width_per_group=128,
    ),
    "vgg11": _plain(11, False, "vgg11-8a719046"),
    "vgg13": _plain(13, False, "vgg13-19584684"),
    "vgg16": _plain(16, False, "vgg16-397923af"),
    "vgg19": _plain(19, False, "vgg19-dcbb9e9d"),
    "vgg11_bn": _plain(11, True, "vgg11_bn-6002323d"),
    "vgg13_bn": _plain(13, True, "vgg13_bn-abd245e5"),
    "vgg16_bn": _plain(16, True, "vgg16_bn-6c64b313"),
    "vgg19_bn": _plain(19, True, "vgg19_bn-c79401a0"),
    "mobilenet_v2": _network(
        *("mobilenet_v2", "MobileNetV2", "mobilenet_v2-b0353104", "mobilenet_v2-7ebf99e0")
    ),
    "mobilenet_v3_large": _network(
        *("mobilenet_v3", "MobileNetV3"),
        *("mobilenet_v3_large-8738ca79", "mobilenet_v3_large-5c1a4163"),
        size="large",
    ),
    "mobilenet_v3_small": _network(
        *("mobilenet_v3", "MobileNetV3", "mobilenet_v3_small-047dcff4"), size="small"
    ),
    "squeezenet1_0": _network(
        *("squeezenet", "SqueezeNet", "squeezenet1_0-b66bff10"), version="1_0"
    ),
    "squeezenet1_1": _network(
        *("squeezenet", "SqueezeNet", "squeezenet1_1-b8a52dc0"), version="1_1"
    ),
    "googlenet": _network("googlenet", "GoogLeNet", "googlenet-1378be20", aux_logits=True),
    "inception_v3": _network("inception_v3", "Inception3", "inception_v3_google-0cc3c7bd"),
    "alexnet": _network("alexnet", "AlexNet", "alexnet-owt-7be5be79"),
    "densenet121": _dense(32, (6, 12, 24, 16), 64, "densenet121-a639ec97"),
    "densenet161": _dense(48, (6, 12, 36, 24), 96, "densenet161-8d451a50"),
    "densenet169": _dense(32, (6, 12, 32, 32), 64, "densenet169-b2777c0a"),
    "densenet201": _dense(32, (6, 12, 48, 32), 64, "densenet201-c1103571"),
    "efficientnet_b0": _scaled(1.0, 1.0, 0.2, "efficientnet_b0_rwightman-7f5810bc"),
    "efficientnet_b1": _scaled(
        *(1.0, 1.1, 0.2), "efficientnet_b1_rwightman-bac287d4", "efficientnet_b1-c27df63c"
    ),
    "efficientnet_b2": _scaled(1.1, 1.2, 0.3, "efficientnet_b2_rwightman-c35c1473"),
    "efficientnet_b3": _scaled(1.2, 1.4, 0.3, "efficientnet_b3_rwightman-b3899882"),
    "efficientnet_b4": _scaled(1.4, 1.8, 0.4, "efficientnet_b4_rwightman-23ab8bcd"),
    "efficientnet_b5": _scaled(
        *(1.6, 2.2, 0.4), "efficientnet_b5_lukemelas-1a07897c", eps=1e-3, momentum=0.01
    ),
    "efficientnet_b6": _scaled(
        *(1.8, 2.6, 0.5), "efficientnet_b6_lukemelas-24a108a5", eps=1e-3, momentum=0.01
    ),
    "efficientnet_b7": _scaled(
        *(2.0, 3.1, 0.5), "efficientnet_b7_lukemelas-c5b4e57e", eps=1e-3, momentum=0.01
    ),
    "shufflenet_v2_x0_5": _shuffling((24, 48, 96, 192, 1024), "shufflenetv2_x0.5-f707e7126e"),
    "shufflenet_v2_x1_0": _shuffling((24, 116, 232, 464, 1024), "shufflenetv2_x1-5666bf0f80"),
    "shufflenet_v2_x1_5": _shuffling((24, 176, 352, 704, 1024), "shufflenetv2_x1_5-3c479a10"),
    "shufflenet_v2_x2_0": _shuffling((24, 244, 488, 976, 2048), "shufflenetv2_x2_0-8be3c8ee"),
    "mnasnet0_5": _network(*("mnasnet", "MNASNet", "mnasnet0.5_top1_67.823-3ffadce67e"), alpha=0.5),
    "mnasnet0_75": _network("mnasnet", "MNASNet", "mnasnet0_75-7090bc5f", alpha=0.75),
    "mnasnet1_0": _network(*("mnasnet", "MNASNet", "mnasnet1.0_top1_73.512-f206786ef8"), alpha=1.0),
    "mnasnet1_3": _network("mnasnet", "MNASNet", "mnasnet1_3-a4c69d6f", alpha=1.3),
    "convnext_tiny": _modern(96, 9, 0.1, "convnext_tiny-983f1562"),
    "convnext_small": _modern(96, 27, 0.4, "convnext_small-0c510722"),
    "convnext_base": _modern(128, 27, 0.5, "convnext_base-6075fbad"),
    "convnext_large": _modern(192, 27, 0.5, "convnext_large-ea097f82"),
    "regnet_y_400mf": _regular(
        *((16, 48, 27.89, 2.09, 8), 0.25, "regnet_y_400mf-c65dace8", "regnet_y_400mf-e6988f5f")
    ),
    "regnet_y_800mf": _regular(
        *((14, 56, 38.84, 2.4, 16), 0.25, "regnet_y_800mf-1b27b58c", "regnet_y_800mf-58fc7688")
    ),
    "regnet_y_1_6gf": _regular(
        *((27, 48, 20.71, 2.65, 24), 0.25, "regnet_y_1_6gf-b11a554e", "regnet_y_1_6gf-0d7bc02a")
    ),
    "regnet_y_3_2gf": _regular(
        *((21, 80, 42.63, 2.66, 24), 0.25, "regnet_y_3_2gf-b5a9779c", "regnet_y_3_2gf-9180c971")
    ),
    "regnet_y_8gf": _regular(
        *((17, 192, 76.82, 2.19, 56), 0.25, "regnet_y_8gf-d0d0e4a8", "regnet_y_8gf-dc2b1b54")
    ),
    "regnet_y_16gf": _regular(
        *((18, 200, 106.23, 2.48, 112), 0.25, "regnet_y_16gf-9e6ed7dd", "regnet_y_16gf-3e4a00f9")
    ),
    "regnet_y_32gf": _regular(
        *((20, 232, 115.89, 2.53, 232), 0.25, "regnet_y_32gf-4dee3f7a", "regnet_y_32gf-8db6d4b5")
    ),
    "regnet_x_400mf": _regular(
        *((22, 24, 24.48, 2.54, 16), 0.0, "regnet_x_400mf-adf1edd5", "regnet_x_400mf-62229a5f")
    ),
    "regnet_x_800mf": _regular(
        *((16, 56, 35.73, 2.28, 16), 0.0, "regnet_x_800mf-ad17e45c", "regnet_x_800mf-94a99ebd")
    ),
    "regnet_x_1_6gf": _regular(
        *((18, 80, 34.01, 2.25, 24), 0.0, "regnet_x_1_6gf-e3633e7f", "regnet_x_1_6gf-a12f2b72")
    ),
    "regnet_x_3_2gf": _regular(
        *((25, 88, 26.31, 2.25, 48), 0.0, "regnet_x_3_2gf-f342aeae", "regnet_x_3_2gf-7071aa85")
    ),
    "regnet_x_8gf": _regular(
        *((23, 80, 49.56, 2.88, 120), 0.0, "regnet_x_8gf-03ceed89", "regnet_x_8gf-2b70d774")
    ),
    "regnet_x_16gf": _regular(
        *((22, 216, 55.59, 2.1, 128), 0.0, "regnet_x_16gf-2007eb11", "regnet_x_16gf-ba3796d7")
    ),
    "regnet_x_32gf": _regular(
        *((23, 320, 69.86, 2.0, 168), 0.0, "regnet_x_32gf-9d47f8d0", "regnet_x_32gf-6eb8fdc6")
    ),
    "swin_t": _shifting(96, 3, 6, 0.2, "swin_t-704ceda3"),
    "swin_s": _shifting(96, 3, 18, 0.3, "swin_s-5e29d889"),
    "swin_b": _shifting(128, 4, 18, 0.5, "swin_b-68c6b09e"),
    "swin_v2_t": _shifting(96, 3, 6, 0.2, "swin_v2_t-b137f0e2", window=8),
    "swin_v2_s": _shifting(96, 3, 18, 0.3, "swin_v2_s-637d8ceb", window=8),
    "swin_v2_b": _shifting(128, 4, 18, 0.5, "swin_v2_b-781e5279", window=8),
    "efficientnet_v2_s": _fused("s", 0.2, "efficientnet_v2_s-dd5fe13b"),
    "efficientnet_v2_m": _fused("m", 0.3, "efficientnet_v2_m-dc08266a"),
    "efficientnet_v2_l": _fused("l", 0.4, "efficientnet_v2_l-59c71312"),
    "vit_b_16": _transformer(16, 12, 12, 768, "vit_b_16-c867db91"),
    "vit_b_32": _transformer(32, 12, 12, 768, "vit_b_32-d86f8d99"),
    "vit_l_16": _transformer(16, 24, 16, 1024, "vit_l_16-852ce7e3"),
    "vit_l_32": _transformer(32, 24, 16, 1024, "vit_l_32-c7638314"),
}

# Auxiliary classifiers in published weights: dropped by default in the first network, kept by
# default in the second.
AUXILIARY = {"googlenet": (("aux1", "aux2"), False), "inception_v3": (("AuxLogits",), True)}

_V1, _V2 = (256, 224, "bilinear"), (232, 224, "bilinear")
# The resized shorter side, the crop size and the interpolation with which weights were evaluated,
# where they are not `_V1` for IMAGENET1K_V1.
_EVALUATED = {
    "convnext_tiny": (236, 224, "bilinear"),
    "convnext_small": (230, 224, "bilinear"),
    "convnext_base": _V2,
    "convnext_large": _V2,
    "efficientnet_b0": (256, 224, "bicubic"),
    "efficientnet_b1": (256, 240, "bicubic"),
    "efficientnet_b2": (288, 288, "bicubic"),
    "efficientnet_b3": (320, 300, "bicubic"),
    "efficientnet_b4": (384, 380, "bicubic"),
    "efficientnet_b5": (456, 456, "bicubic"),
    "efficientnet_b6": (528, 528, "bicubic"),
    "efficientnet_b7": (600, 600, "bicubic"),
    "efficientnet_v2_s": (384, 384, "bilinear"),
    "efficientnet_v2_m": (480, 480, "bilinear"),
    "efficientnet_v2_l": (480, 480, "bicubic"),
    "inception_v3": (342, 299, "bilinear"),
    "mnasnet0_75": _V2,
    "mnasnet1_3": _V2,
    "shufflenet_v2_x1_5": _V2,
    "shufflenet_v2_x2_0": _V2,
    "swin_t": (232, 224, "bicubic"),
    "swin_s": (246, 224, "bicubic"),
    "swin_b": (238, 224, "bicubic"),
    "swin_v2_t": (260, 256, "bicubic"),
    "swin_v2_s": (260, 256, "bicubic"),
    "swin_v2_b": (272, 256, "bicubic"),
    "vit_l_16": (242, 224, "bilinear"),
}


def evaluated(network: str, version: str) -> tuple[int, int, str]:
    """The resize, crop and interpolation for the weights of a network."""
    if version.endswith("V2"):
        return (255, 240, "bilinear") if network == "efficientnet_b1" else _V2
    return _EVALUATED.get(network, _V1)


def normalised(network: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The per-channel means and deviations of a network's input normalisation."""
    if network == "efficientnet_v2_l":
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    return (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
