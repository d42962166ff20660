"""Networks of the package timm, converted, beside the originals under PyTorch.

`metaop convert timm -o folder/timm_metaop`, then `python -m benchmarks.timm_networks folder`. Each
network has the same random weights on both sides and sees two small pictures; outputs, the gradient
of the pictures and the gradients of all weights are compared. It prints a line a network.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from benchmarks.transformers import copied, gap

NAMES = """
    vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s32_224 convnext_atto convnextv2_atto
    efficientnet_b0 mobilenetv2_050 mobilenetv3_small_050 densenet121 regnetx_002 regnety_002
    resnext26ts seresnext26t_32x4d resnest14d res2net50_14w_8s dla34 ghostnet_100 mnasnet_small
    hardcorenas_a rexnet_100 repvgg_a0 vgg11 dpn48b cspresnet50 darknet17 edgenext_xx_small
    fastvit_t8 poolformer_s12 pvt_v2_b0 swin_tiny_patch4_window7_224 swinv2_cr_tiny_224
    gmlp_ti16_224 resmlp_12_224 cait_xxs24_224 xcit_nano_12_p16_224 levit_128s mobilevit_xxs
    twins_svt_small tnt_s_legacy_patch16_224 eva02_tiny_patch14_224
""".split()


def made(library: Any, name: str) -> tuple[Any, int]:
    """A network and the length of the pictures that it takes, 64 where it can be chosen."""
    try:
        return library.create_model(name, num_classes=5, img_size=64).eval(), 64
    except (TypeError, AssertionError):
        model = library.create_model(name, num_classes=5).eval()
    settings = model.default_cfg
    return model, settings["input_size"][-1] if settings.get("fixed_input_size") else 64


def relative(expected: Any, found: Any) -> float:
    """The largest difference by the largest value."""
    largest = float(expected.abs().max())
    return gap(expected / largest, found / largest)


def run(name: str, original: Any, converted: Any) -> Iterator[float]:
    """How far outputs, the gradient of the pictures, and those of the weights are apart."""
    import torch

    torch.manual_seed(0)
    theirs, size = made(original, name)
    with torch.no_grad():
        for parameter in theirs.parameters():  # some last layers begin as zeros
            parameter.add_(0.02 * torch.randn_like(parameter))
    ours, _ = made(converted, name)
    ours.load_state_dict(copied(theirs))
    pictures = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    left = torch.from_numpy(pictures.copy()).requires_grad_()
    right = metaop.from_numpy(pictures.copy()).requires_grad_()
    expected, found = theirs(left), ours(right)
    yield relative(expected.detach(), found.detach())
    expected.square().sum().backward()
    found.square().sum().backward()
    yield relative(left.grad, right.grad)
    pairs = list(zip(theirs.parameters(), ours.parameters()))
    pairs = [(one.grad, other.grad) for one, other in pairs if one.grad is not None]
    largest = max(float(one.abs().max()) for one, _ in pairs)
    yield max(gap(one / largest, other / largest) for one, other in pairs)


def main() -> int:
    """Prints the table; the exit status is the number of networks that fail or differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the converted package lies")
    parser.add_argument("--name", default="timm_metaop", help="what it is called there")
    parser.add_argument("--only", nargs="*", default=NAMES, help="the networks to run")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.folder))
    original = importlib.import_module("timm")
    converted = importlib.import_module(arguments.name)
    print("| network | outputs | gradient of the input | gradients of weights |")
    print("| --- | --- | --- | --- |")
    bad = 0
    for name in arguments.only:
        try:
            gaps = list(run(name, original, converted))
            text = " | ".join(f"{value:.1e}" for value in gaps)
            bad += max(gaps) >= 1e-3
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]} | |"
            bad += 1
        print(f"| {name} | {text} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
