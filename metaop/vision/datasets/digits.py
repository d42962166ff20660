"""MNIST and its variants: images and labels in idx files."""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from metaop.errors import ArgumentError, DatasetError
from metaop.tensor.core import Tensor
from metaop.vision.datasets.base import Folder, Transform, VisionDataset, contents, one_of

# The third byte of an idx file encodes the element type; numbers are big-endian.
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: Path) -> np.ndarray:
    """Reads the array in an idx file, optionally compressed as .gz."""
    raw = contents(path)
    kind, ndim = (raw[2], raw[3]) if len(raw) >= 4 else (0, 0)
    if raw[:2] != b"\0\0" or kind not in _TYPES:
        raise DatasetError(f"{path} is not an idx file: it begins with {raw[:4]!r}")
    shape = tuple(np.frombuffer(raw, ">i4", ndim, 4).tolist())
    numbers = np.frombuffer(raw, _TYPES[kind], offset=4 + 4 * ndim)
    if numbers.size != math.prod(shape):
        raise DatasetError(
            f"{path} is damaged: {numbers.size} numbers for the shape {list(shape)}",
            fix="download the file again",
        )
    return numbers.astype(numbers.dtype.newbyteorder("=")).reshape(shape)


class MNIST(VisionDataset):
    """Handwritten digits: 60,000 training and 10,000 test images of 28 × 28 bytes.

    The idx files, compressed or not, are in `root/MNIST/raw`, `root/MNIST` or `root`. Samples are
    (Pillow image, class); `data` (count, 28, 28) and `targets` (count,) are tensors.
    """

    source = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    classes = [
        *("0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six"),
        *("7 - seven", "8 - eight", "9 - nine"),
    ]

    def __init__(
        self,
        root: Folder,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        images, labels = self.files()
        self.data = metaop.from_numpy(self._read(images))
        self.targets = metaop.from_numpy(self._read(labels).astype(np.int64))

    def files(self) -> tuple[str, str]:
        """The names of the image file and the label file."""
        prefix = "train" if self.train else "t10k"
        return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"

    def _read(self, name: str) -> np.ndarray:
        own = type(self).__name__
        folders = (f"{own}/raw/", f"{own}/", "")
        # Some archives spell the extension with a dot.
        names = (name, name + ".gz", name.replace("-idx", ".idx"))
        return read_idx(self.find(*(folder + spelled for folder in folders for spelled in names)))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        image = Image.fromarray(self.data.numpy()[index])
        return self.transforms(image, int(self.targets.numpy()[index]))

    def __len__(self) -> int:
        return self.data.shape[0]

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The index of every class."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def raw_folder(self) -> str:
        return str(Path(self.root, type(self).__name__, "raw"))

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class FashionMNIST(MNIST):
    """Pieces of clothing in the format of MNIST."""

    source = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    classes = [
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker"),
        *("Bag", "Ankle boot"),
    ]


class KMNIST(MNIST):
    """Cursive Japanese characters in the format of MNIST."""

    source = "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Handwritten letters and digits: splits byclass, bymerge, balanced, letters, digits, mnist."""

    source = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")

    def __init__(self, root: Folder, split: str, **options: Any) -> None:
        self.split = one_of("split", split, self.splits)
        super().__init__(root, **options)
        self.classes = self._classes()

    def _classes(self) -> list[str]:
        # Letters whose upper and lower case look alike share a class.
        merged = set("CIJKLMOPSUVWXYZ".lower())
        distinct = set(string.digits + string.ascii_letters)
        if self.split in ("digits", "mnist"):
            return list(string.digits)
        if self.split == "letters":
            return ["N/A", *string.ascii_lowercase]
        return sorted(distinct if self.split == "byclass" else distinct - merged)

    def files(self) -> tuple[str, str]:
        prefix = f"emnist-{self.split}-{'train' if self.train else 'test'}"
        return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"


class QMNIST(MNIST):
    """MNIST rebuilt from its source, with 60,000 test images: `what` "train", "test", "test10k".

    Without `compat`, targets are the eight numbers of the extended labels.
    """

    source = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"

    def __init__(
        self,
        root: Folder,
        what: str | None = None,
        compat: bool = True,
        train: bool = True,
        **options: Any,
    ) -> None:
        self.what = one_of(
            "what", what or ("train" if train else "test"), ("train", "test", "test10k", "test50k")
        )
        self.compat = compat
        super().__init__(root, self.what == "train", **options)
        parts = {"test10k": slice(0, 10000), "test50k": slice(10000, None)}
        chosen: Any = parts.get(self.what, slice(None))
        labels: Any = self.targets
        if labels.ndim != 2:
            raise ArgumentError(f"the labels of QMNIST should be (count, 8), got {labels.shape}")
        images: Any = self.data
        self.data, self.targets = images[chosen], labels[chosen]

    def files(self) -> tuple[str, str]:
        prefix = "qmnist-train" if self.what == "train" else "qmnist-test"
        return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx2-int"

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        row = self.targets.numpy()[index]
        target: int | Tensor = int(row[0]) if self.compat else metaop.from_numpy(row.copy())
        return self.transforms(Image.fromarray(self.data.numpy()[index]), target)
