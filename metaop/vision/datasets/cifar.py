"""CIFAR-10 and CIFAR-100: small colour photographs, from the Python or the binary version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from metaop.errors import DatasetError
from metaop.vision.datasets.base import Folder, Transform, VisionDataset, load_pickle

_PIXELS = 3 * 32 * 32


class CIFAR10(VisionDataset):
    """50,000 training and 10,000 test images of 32 × 32 pixels in ten classes.

    The batches are in `root/cifar-10-batches-py` (or `cifar-10-batches-bin`, or `root` itself).
    Samples are (Pillow image, class); `data` is an array (count, 32, 32, 3), `targets` a list.
    """

    source = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    base_folder = "cifar-10-batches-py"
    binary_folder = "cifar-10-batches-bin"
    train_list = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_list: tuple[str, ...] = ("test_batch",)
    meta = ("batches.meta", "label_names")
    binary_meta = "batches.meta.txt"
    label = "labels"
    # Bytes before the pixels of a binary record; the last one is the class.
    label_bytes = 1

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
        batches = [self._batch(name) for name in (self.train_list if train else self.test_list)]
        pixels = np.concatenate([pixels for pixels, _ in batches])
        self.data = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.targets = [label for _, labels in batches for label in labels]
        self.classes = self._classes()
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def _places(self, name: str, binary: str) -> list[str]:
        return [f"{self.base_folder}/{name}", f"{self.binary_folder}/{binary}", name, binary]

    def _batch(self, name: str) -> tuple[np.ndarray, list[int]]:
        """Pixels (count, 3072) and labels of one file."""
        path = self.find(*self._places(name, name + ".bin"))
        if path.suffix == ".bin":
            return self._binary_batch(path)
        content = load_pickle(path)
        try:
            pixels, labels = content["data"], content[self.label]
        except (KeyError, TypeError):
            raise DatasetError(
                f"{path} should hold 'data' and '{self.label}'", fix=f"get it from {self.source}"
            ) from None
        return pixels.reshape(-1, _PIXELS), list(labels)

    def _binary_batch(self, path: Path) -> tuple[np.ndarray, list[int]]:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
        record = self.label_bytes + _PIXELS
        if not raw.size or raw.size % record:
            raise DatasetError(
                f"{path} is damaged: {raw.size} bytes are not a multiple of the record's {record}"
            )
        records = raw.reshape(-1, record)
        return records[:, self.label_bytes :], records[:, self.label_bytes - 1].tolist()

    def _classes(self) -> list[str]:
        path = self.find(*self._places(self.meta[0], self.binary_meta))
        if path.suffix == ".txt":
            return path.read_text().split()
        return list(load_pickle(path)[self.meta[1]])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        return self.transforms(Image.fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """Like CIFAR-10, with a hundred classes of 600 images each."""

    source = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    base_folder = "cifar-100-python"
    binary_folder = "cifar-100-binary"
    train_list = ("train",)
    test_list = ("test",)
    meta = ("meta", "fine_label_names")
    binary_meta = "fine_label_names.txt"
    label = "fine_labels"
    label_bytes = 2
