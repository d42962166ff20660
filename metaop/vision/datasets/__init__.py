"""Image data sets from local files, under torchvision's names. Nothing is downloaded."""

from metaop.vision.datasets import folder
from metaop.vision.datasets.annotated import (
    CelebA,
    Cityscapes,
    CocoCaptions,
    CocoDetection,
    VOCDetection,
    VOCSegmentation,
)
from metaop.vision.datasets.arrays import STL10, SVHN, USPS
from metaop.vision.datasets.base import StandardTransform, VisionDataset
from metaop.vision.datasets.cifar import CIFAR10, CIFAR100
from metaop.vision.datasets.digits import EMNIST, KMNIST, MNIST, QMNIST, FashionMNIST
from metaop.vision.datasets.folder import DatasetFolder, FakeData, ImageFolder, ImageNet
