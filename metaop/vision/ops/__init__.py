"""Operators for detectors and image networks, under torchvision's names."""

from metaop.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from metaop.vision.ops.deformable import DeformConv2d, deform_conv2d
from metaop.vision.ops.layers import (
    MLP,
    Conv2dNormActivation,
    FeaturePyramidNetwork,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
    StochasticDepth,
    stochastic_depth,
)
from metaop.vision.ops.losses import (
    complete_box_iou_loss,
    distance_box_iou_loss,
    generalized_box_iou_loss,
    sigmoid_focal_loss,
)
from metaop.vision.ops.poolers import MultiScaleRoIAlign
from metaop.vision.ops.regions import (
    PSRoIAlign,
    PSRoIPool,
    RoIAlign,
    RoIPool,
    ps_roi_align,
    ps_roi_pool,
    roi_align,
    roi_pool,
)
