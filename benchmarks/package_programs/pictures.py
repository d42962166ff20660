"""Programs as the documents of kornia have them."""

import torch
from kornia import augmentation, color, contrib, enhance, feature, filters, geometry, losses
from kornia import morphology as shapes
from numbers_alike import normal


def _picture(*shape, seed=0):
    return torch.sigmoid(normal(*shape, seed=seed))


def _with_gradient(function, *inputs):
    """What a function makes of pictures, and the gradients of a sum with different weights."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    made = function(*inputs)
    if not made.requires_grad:
        return [made]
    weights = torch.cos(torch.arange(made.numel(), dtype=made.dtype)).reshape(made.shape)
    return [made, *torch.autograd.grad((made * weights).sum(), inputs)]


def _each(functions, *inputs):
    return [one for function in functions for one in _with_gradient(function, *inputs)]


def filters_of_pictures():
    """Linear filters, and those that look at the values."""
    return _each(
        [
            lambda x: filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
            lambda x: filters.unsharp_mask(x, (3, 3), (1.5, 1.5)),
            lambda x: filters.motion_blur(x, 5, 35.0, 0.5),
            lambda x: filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
            lambda x: filters.guided_blur(x, x, 3, 0.1),
            lambda x: filters.median_blur(x, (3, 3)),
            lambda x: filters.max_blur_pool2d(x, 3),
            lambda x: filters.laplacian(x, 3),
            lambda x: filters.canny(x)[0],
            filters.sobel,
        ],
        _picture(2, 3, 12, 14),
    )


def colours():
    """Conversions that the eye suggests, and their inverses."""
    names = "rgb_to_hsv rgb_to_hls rgb_to_xyz rgb_to_ycbcr rgb_to_grayscale rgb_to_linear_rgb"
    inverses = "hsv_to_rgb lab_to_rgb ycbcr_to_rgb yuv_to_rgb xyz_to_rgb linear_rgb_to_rgb"
    functions = [getattr(color, name) for name in f"{names} {inverses}".split()]
    return _each(functions, _picture(2, 3, 6, 7))


def warps():
    """Pictures that are turned, sheared, seen from aside, resized and registered."""
    x, angle = _picture(2, 3, 10, 12), torch.tensor([20.0, -35.0])
    affine = torch.tensor([[1.1, 0.1, -1.0], [0.05, 0.9, 0.5]]).expand(2, 2, 3)
    plane = torch.tensor([[1.05, 0.02, -0.5], [0.01, 0.98, 0.3], [1e-3, 2e-3, 1.0]])
    plane = plane.expand(2, 3, 3)
    made = _with_gradient(geometry.rotate, x, angle)
    made += _with_gradient(lambda x, m: geometry.warp_affine(x, m, (9, 11)), x, affine)
    made += _with_gradient(lambda x, m: geometry.warp_perspective(x, m, (9, 11)), x, plane)
    made += _with_gradient(lambda x: geometry.resize(x, (5, 17), antialias=True), x)
    made += _with_gradient(geometry.pyrdown, x)
    still = filters.gaussian_blur2d(_picture(1, 1, 24, 24), (7, 7), (3.0, 3.0))
    moved = geometry.translate(still, torch.tensor([[1.5, -1.0]]))
    found = geometry.transform.ImageRegistrator("similarity", num_iterations=5, pyramid_levels=2)
    return [*made, found.register(still, moved)]


def rotations():
    """Axes, matrices, quaternions and Lie groups."""
    turns = 0.7 * normal(5, 3)
    quaternions = torch.nn.functional.normalize(normal(5, 4), dim=-1)
    made = _with_gradient(geometry.axis_angle_to_rotation_matrix, turns)
    made += _with_gradient(geometry.rotation_matrix_to_quaternion, made[0])
    made += _with_gradient(geometry.quaternion_to_rotation_matrix, quaternions)
    made += _with_gradient(geometry.quaternion_exp_to_log, quaternions)
    group = geometry.liegroup.So3.exp(turns)
    return [*made, group.matrix(), group.log()]


def comparisons():
    """Losses between pictures, and of classes of pixels."""
    y, classes = _picture(2, 3, 16, 16, seed=4), (2 * normal(2, 16, 16)).abs().long() % 3
    return _each(
        [
            lambda x: losses.ssim_loss(x, y, 5),
            lambda x: losses.psnr_loss(x, y, 1.0),
            lambda x: losses.total_variation(x),
            lambda x: losses.js_div_loss_2d(x, y),
            lambda x: losses.charbonnier_loss(x, y, "mean"),
            lambda x: losses.dice_loss(x, classes),
            lambda x: losses.focal_loss(x, classes, 0.5, 2.0, "mean"),
            lambda x: losses.lovasz_softmax_loss(x, classes),
        ],
        _picture(2, 3, 16, 16),
    )


def enhancements():
    """Light, contrast, histograms, and compression through which gradients flow."""
    quality = torch.tensor([50.0, 20.0])
    return _each(
        [
            lambda x: enhance.adjust_hue(x, 0.4),
            lambda x: enhance.adjust_gamma(x, 1.2),
            lambda x: enhance.sharpness(x, 1.5),
            lambda x: enhance.posterize(x, 3),
            lambda x: enhance.equalize_clahe(x, grid_size=(4, 4)),
            lambda x: enhance.jpeg_codec_differentiable(x, quality),
            enhance.equalize,
        ],
        _picture(2, 3, 16, 16),
    )


def features():
    """Corners, blobs, descriptors and their matches."""
    x = _picture(1, 1, 32, 32)
    made = _each([feature.harris_response, feature.gftt_response, feature.hessian_response], x)
    made += _with_gradient(feature.SIFTDescriptor(16), _picture(3, 1, 16, 16))
    made += feature.ScaleSpaceDetector(20, resp_module=feature.BlobHessian())(x)
    return [*made, *feature.match_smnn(normal(10, 8), normal(12, 8), 0.95)]


def shapes_and_parts():
    """Dilation and its kin, distances, connected parts, patches."""
    x, kernel = _picture(2, 1, 10, 10), torch.ones(3, 3)
    names = "dilation erosion opening closing gradient top_hat bottom_hat".split()
    made = _each([lambda x, name=name: getattr(shapes, name)(x, kernel) for name in names], x)
    made += [contrib.distance_transform((x > 0.7).float())]
    made += [contrib.connected_components((x > 0.5).float(), 20)]
    return [*made, contrib.extract_tensor_patches(x, (4, 4), (2, 2))]


def augmentations():
    """A chain of changes to a picture, its mask and its points."""
    x, points = _picture(2, 3, 12, 12), torch.tensor([[[3.0, 4.0], [5.0, 6.0]]] * 2)
    flip, crop = augmentation.RandomHorizontalFlip(p=1.0), augmentation.CenterCrop(10)
    keys = ["input", "mask", "keypoints"]
    made = augmentation.AugmentationSequential(flip, crop, data_keys=keys)(x, x[:, :1], points)
    return [*made, augmentation.RandomEqualize(p=1.0)(x), augmentation.PadTo((14, 15))(x)]
