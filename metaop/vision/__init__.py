"""Pictures: grids and files of them, under torchvision's names."""

from metaop.vision import utils
