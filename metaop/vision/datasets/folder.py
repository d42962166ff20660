"""Data sets from folders named after classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metaop.errors import ArgumentError, DatasetError
from metaop.vision.datasets.base import Folder, Transform, VisionDataset, open_image
from metaop.vision.transforms.conversion import to_pil_image

IMG_EXTENSIONS = (*(".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"),)


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    """Whether a name ends in one of the extensions, ignoring case."""
    return filename.lower().endswith(
        extensions if isinstance(extensions, str) else tuple(extensions)
    )


def is_image_file(filename: str) -> bool:
    """Whether a name has an image extension."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def pil_loader(path: str) -> Any:
    """Loads an image file as RGB."""
    return open_image(path)


default_loader = pil_loader


def find_classes(directory: Folder) -> tuple[list[str], dict[str, int]]:
    """The subfolders of a folder, sorted by name, and their class indices."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {os.fspath(directory)}.")
    return classes, {name: number for number, name in enumerate(classes)}


def make_dataset(
    directory: Folder,
    class_to_idx: dict[str, int] | None = None,
    extensions: str | tuple[str, ...] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """(path, class) of all files below the class folders, sorted by name."""
    if (extensions is None) == (is_valid_file is None):
        raise ArgumentError(
            "Both extensions and is_valid_file cannot be None or not None at the same time"
        )
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    accepts = is_valid_file or (lambda name: has_file_allowed_extension(name, extensions or ()))
    samples: list[tuple[str, int]] = []
    empty = []
    for name, number in sorted(class_to_idx.items()):
        before = len(samples)
        for folder, _, files in sorted(os.walk(Path(directory, name), followlinks=True)):
            paths = (os.path.join(folder, file) for file in sorted(files))
            samples += [(path, number) for path in paths if accepts(path)]
        if len(samples) == before:
            empty.append(name)
    if empty and not allow_empty:
        kinds = extensions if isinstance(extensions, str) else ", ".join(extensions or ("any",))
        raise FileNotFoundError(
            f"Found no valid file for the classes {', '.join(empty)} in {os.fspath(directory)}. "
            f"Supported extensions are: {kinds}"
        )
    return samples


class DatasetFolder(VisionDataset):
    """Files in `root/CLASS/…`; samples are (`loader(path)`, class).

    `classes`, `class_to_idx`, `samples` and `targets` describe the files found.
    """

    def __init__(
        self,
        root: Folder,
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        if not os.path.isdir(self.root):
            raise DatasetError(
                f"{type(self).__name__}: there is no folder {self.root}",
                fix="it should contain one folder of files per class",
            )
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.loader = loader
        self.extensions = extensions
        self.samples = self.make_dataset(
            self.root, self.class_to_idx, extensions, is_valid_file, allow_empty
        )
        self.targets = [target for _, target in self.samples]

    # Subclasses may override how classes and their files are found.
    find_classes = staticmethod(find_classes)
    make_dataset = staticmethod(make_dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self.transforms(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in `root/CLASS/…`, loaded as RGB by the default `loader`."""

    def __init__(
        self,
        root: Folder,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root, loader, extensions, transform, target_transform, is_valid_file, allow_empty
        )
        self.imgs: Sequence[tuple[str, int]] = self.samples


class ImageNet(ImageFolder):
    """ImageNet in `root/train/WNID` and `root/val/WNID`; `wnids` are the class folders."""

    source = "https://image-net.org/download"

    def __init__(self, root: Folder, split: str = "train", **options: Any) -> None:
        self.split = split
        super().__init__(os.path.join(os.path.expanduser(os.fspath(root)), split), **options)
        self.wnids = self.classes


class FakeData(VisionDataset):
    """Random images; the same index always gives the same image."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__("", transform=transform, target_transform=target_transform)
        self.size = size
        self.image_size = image_size
        self.num_classes = num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import numpy as np

        if not 0 <= index < self.size:
            raise IndexError(f"{type(self).__name__} index out of range")
        random = np.random.default_rng(index + self.random_offset)
        channels, height, width = self.image_size
        pixels = random.integers(0, 256, (height, width, channels)).astype(np.uint8)
        return self.transforms(to_pil_image(pixels), int(random.integers(self.num_classes)))

    def __len__(self) -> int:
        return self.size
