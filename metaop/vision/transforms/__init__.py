"""Image transforms, under the names of torchvision's v1 interface."""

from metaop.vision.transforms import functional
from metaop.vision.transforms.automatic import (
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from metaop.vision.transforms.colour_changes import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from metaop.vision.transforms.containers import (
    Compose,
    ConvertImageDtype,
    Lambda,
    LinearTransformation,
    Normalize,
    PILToTensor,
    RandomApply,
    RandomChoice,
    RandomOrder,
    RandomTransforms,
    ToPILImage,
    ToTensor,
)
from metaop.vision.transforms.geometry import (
    CenterCrop,
    ElasticTransform,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TenCrop,
)
from metaop.vision.transforms.modes import InterpolationMode
