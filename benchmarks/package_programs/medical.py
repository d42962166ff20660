"""Programs as the documents of monai have them."""

import monai.transforms as changes
import torch
from monai import data, inferers, losses, metrics
from monai.networks import nets
from monai.networks.schedulers import DDIMScheduler
from numbers_alike import filled, normal
from torch import nn


def _steps(network, *shape, count=2):
    """The losses of a few steps towards zeros."""
    optimizer, x = torch.optim.SGD(filled(network).parameters(), lr=1e-2), normal(*shape)
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        found.append(network(x).square().mean())
        found[-1].backward()
        optimizer.step()
    return found


def segments():
    """Networks of convolutions, with residuals, gates and attention, in 2-D and 3-D."""
    sizes = {"in_channels": 1, "out_channels": 2}
    plain = nets.UNet(3, **sizes, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    residual = nets.SegResNet(3, init_filters=8, **sizes, blocks_down=(1, 1), blocks_up=(1,))
    tuned = nets.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16])
    return [
        _steps(plain, 1, 1, 16, 16, 16),
        _steps(residual, 1, 1, 8, 8, 8),
        _steps(tuned, 1, 1, 16, 16),
        _steps(nets.BasicUNet(2, features=(8, 8, 16, 16, 16, 8)), 1, 1, 32, 32),
        _steps(nets.AttentionUnet(2, 1, 2, (4, 8), (2, 2)), 1, 1, 16, 16),
    ]


def segments_by_attention():
    """Transformers as encoders, with and without shifted windows."""
    sizes = {"spatial_dims": 2, "num_heads": 2}
    plain = nets.UNETR(1, 2, (32, 32), feature_size=4, hidden_size=16, mlp_dim=32, **sizes)
    depths, heads = (1, 1, 1, 1), (1, 2, 2, 4)
    shifted = nets.SwinUNETR(
        1, 2, feature_size=12, spatial_dims=2, depths=depths, num_heads=heads, window_size=4
    )
    return [_steps(plain, 1, 1, 32, 32), _steps(shifted, 1, 1, 64, 64, count=1)]


def compares():
    """Losses of masks and of pictures with their gradients, and metrics of masks."""
    scores, classes = normal(2, 3, 8, 8), (2 * normal(2, 1, 8, 8)).abs().long() % 3
    options, made = {"to_onehot_y": True, "softmax": True}, []
    for kind in (losses.DiceLoss, losses.GeneralizedDiceLoss, losses.DiceCELoss):
        x = scores.clone().requires_grad_()
        loss = kind(**options)(x, classes)
        made += [loss, *torch.autograd.grad(loss, [x])]
    x, y = (torch.sigmoid(normal(1, 1, 16, 16, seed=k)).requires_grad_() for k in (0, 3))
    warped = losses.BendingEnergyLoss()(x.expand(1, 2, 16, 16))
    alike = losses.LocalNormalizedCrossCorrelationLoss(2, 3)(x, y)
    made += [warped, alike, *torch.autograd.grad(warped + alike, [x, y])]
    left, right = ((normal(2, 3, 8, 8, seed=k) > 0).float() for k in (0, 4))
    made += [metrics.compute_dice(left, right), metrics.compute_iou(left, right)]
    distances = metrics.compute_hausdorff_distance, metrics.compute_average_surface_distance
    return made + [distance(left, right) for distance in distances]


def changes_pictures():
    """Transforms that keep where a picture lies in space, forth and back."""
    x = normal(1, 12, 14)
    made = [
        change(x)
        for change in (
            changes.ScaleIntensity(),
            changes.NormalizeIntensity(nonzero=True),
            changes.Spacing((1.5, 0.8)),
            changes.Zoom(1.3),
            changes.Rotate(0.4),
            changes.Rotate90(),
            changes.SpatialPad((16, 16)),
            changes.CropForeground(),
            changes.GaussianSharpen(),
            changes.MedianSmooth(1),
            changes.HistogramNormalize(8),
        )
    ]
    chain = changes.Compose(
        [changes.ScaleIntensity(), changes.Spacing((1.5, 0.8)), changes.Flip(1)]
    )
    changed = chain(x)
    return [
        torch.as_tensor(one) for one in (*made, changed, changed.affine, chain.inverse(changed))
    ]


def loads():
    """Data sets of dictionaries, cached or not, in batches that are taken apart again."""
    items = [{"image": normal(1, 8, 8, seed=k), "label": torch.tensor(k % 2)} for k in range(6)]
    chain = changes.Compose([changes.ScaleIntensityd("image"), changes.Flipd("image", 0)])
    made = []
    for kept in (data.Dataset(items, chain), data.CacheDataset(items, chain, progress=False)):
        for batch in data.DataLoader(kept, batch_size=3):
            apart = [torch.as_tensor(one["image"]) for one in data.decollate_batch(batch)]
            made += [torch.as_tensor(batch["image"]), batch["label"], *apart]
    return made


def looks_through_windows():
    """A large picture, window by window, and a diffusion network over a few steps."""
    network, x = filled(nn.Conv2d(1, 2, 3, padding=1)), normal(1, 1, 20, 23)
    made = [inferers.sliding_window_inference(x, (8, 8), 3, network, overlap=0.5, mode="gaussian")]
    options = {"norm_num_groups": 4, "num_head_channels": 4}
    diffusion = nets.DiffusionModelUNet(2, 1, 1, (1, 1), (8, 8), (False, True), **options)
    schedule, y = DDIMScheduler(20), normal(1, 1, 16, 16)
    schedule.set_timesteps(5)
    filled(diffusion).eval()
    with torch.no_grad():
        for time in schedule.timesteps:
            y, _ = schedule.step(diffusion(y, torch.tensor([int(time)])), int(time), y)
    return [*made, y]
