"""Data sets with one array file per split."""

from __future__ import annotations

import bz2
from typing import Any

import numpy as np

from metaop.vision.datasets.base import Folder, Transform, VisionDataset, one_of


class _Photographs(VisionDataset):
    """Images in `data`, an array (count, 3, height, width), and their `labels`."""

    data: np.ndarray
    labels: np.ndarray
    split: str

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(self.data[index].transpose(1, 2, 0)))
        return self.transforms(image, int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"


class SVHN(_Photographs):
    """House numbers, 32 × 32 pixels, from `root/SPLIT_32x32.mat`: split "train", "test" or "extra".

    SciPy reads the files. `data` is an array (count, 3, 32, 32), `labels` one (count,).
    """

    source = "http://ufldl.stanford.edu/housenumbers/"

    def __init__(
        self,
        root: Folder,
        split: str = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = one_of("split", split, ("train", "test", "extra"))
        path = self.find(f"{split}_32x32.mat")
        from scipy.io import loadmat

        content = loadmat(path)
        self.data = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
        labels = content["y"].astype(np.int64).reshape(-1)
        # The digit 0 is written as 10.
        self.labels = np.where(labels == 10, 0, labels)


class STL10(_Photographs):
    """Photographs of 96 × 96 pixels: split "train", "test", "unlabeled" or "train+unlabeled".

    The binary files are in `root/stl10_binary`. Unlabelled images have the class -1. `folds`
    selects one of the ten published parts of the training images.
    """

    source = "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz"
    base_folder = "stl10_binary"
    splits = ("train", "train+unlabeled", "unlabeled", "test")

    def __init__(
        self,
        root: Folder,
        split: str = "train",
        folds: int | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = one_of("split", split, self.splits)
        self.folds = folds
        parts = [self._part(name) for name in split.split("+")]
        self.data = np.concatenate([images for images, _ in parts])
        self.labels = np.concatenate([labels for _, labels in parts])
        names = self.find(f"{self.base_folder}/class_names.txt", "class_names.txt")
        self.classes = names.read_text().split()

    def _raw(self, name: str) -> np.ndarray:
        return np.fromfile(self.find(f"{self.base_folder}/{name}", name), np.uint8)

    def _part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        # The pixels are in column-major order.
        images = self._raw(f"{name}_X.bin").reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)
        if name == "unlabeled":
            return images, np.full(len(images), -1, np.int64)
        labels = self._raw(f"{name}_y.bin").astype(np.int64) - 1
        if name == "train" and self.folds is not None:
            path = self.find(f"{self.base_folder}/fold_indices.txt", "fold_indices.txt")
            chosen = [int(number) for number in path.read_text().splitlines()[self.folds].split()]
            return images[chosen], labels[chosen]
        return images, labels


class USPS(VisionDataset):
    """Digits from envelopes, 16 × 16 pixels, from `root/usps.bz2` and `root/usps.t.bz2`."""

    source = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html"

    def __init__(
        self,
        root: Folder,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        path = self.find("usps.bz2" if train else "usps.t.bz2")
        rows = [line.split() for line in bz2.decompress(path.read_bytes()).decode().splitlines()]
        values = np.array([[part.partition(":")[2] for part in row[1:]] for row in rows], float)
        # Values in [-1, 1] become bytes; classes in the file start from 1.
        self.data = ((values.reshape(-1, 16, 16) + 1) / 2 * 255).astype(np.uint8)
        self.targets = [int(row[0]) - 1 for row in rows]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        return self.transforms(Image.fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)
