"""Images annotated with masks, boxes or attributes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

import metaop
from metaop.tensor.core import Tensor
from metaop.vision.datasets.base import Folder, Transform, VisionDataset, one_of, open_image


def _raw_image(path: str | os.PathLike[str]) -> Any:
    """An image in its own mode: masks keep their palette."""
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        return image


class _VOC(VisionDataset):
    """Pascal VOC in `root/VOCdevkit/VOCYEAR` or `root`; a split is a list of names."""

    source = "http://host.robots.ox.ac.uk/pascal/VOC/"
    lists: str
    folder: str
    extension: str

    def __init__(
        self,
        root: Folder,
        year: str = "2012",
        image_set: str = "train",
        download: bool = False,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        transforms: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        self.year = year
        self.image_set = image_set
        wanted = f"ImageSets/{self.lists}/{image_set}.txt"
        bases = (f"VOCdevkit/VOC{year}/", f"VOC{year}/", "")
        split = self.find(*(base + wanted for base in bases))
        base = split.parents[2]
        # Lists for one class have a second column.
        names = [line.split()[0] for line in split.read_text().splitlines() if line.strip()]
        self.images = [str(base / "JPEGImages" / f"{name}.jpg") for name in names]
        self.targets = [str(base / self.folder / (name + self.extension)) for name in names]

    def __len__(self) -> int:
        return len(self.images)


class VOCSegmentation(_VOC):
    """Samples are (image, mask); the mask is a palette image of classes, with 255 for borders."""

    lists, folder, extension = "Segmentation", "SegmentationClass", ".png"

    @property
    def masks(self) -> list[str]:
        """The files of the masks."""
        return self.targets

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transforms(open_image(self.images[index]), _raw_image(self.targets[index]))


class VOCDetection(_VOC):
    """Samples are (image, annotation); annotations are nested dictionaries of strings."""

    lists, folder, extension = "Main", "Annotations", ".xml"

    @property
    def annotations(self) -> list[str]:
        """The files of the annotations."""
        return self.targets

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        root = ElementTree.parse(self.targets[index]).getroot()
        return self.transforms(open_image(self.images[index]), {root.tag: _plain(root)})


def _plain(element: ElementTree.Element) -> Any:
    """An element as a string or a dictionary; objects are a list even if there is only one."""
    if not len(element):
        return (element.text or "").strip()
    found: dict[str, Any] = {}
    for child in element:
        found.setdefault(child.tag, []).append(_plain(child))
    return {
        name: values if name == "object" or len(values) > 1 else values[0]
        for name, values in found.items()
    }


class Cityscapes(VisionDataset):
    """Street scenes: images in `root/leftImg8bit/SPLIT/CITY`, targets in `root/gtFine/…`.

    `mode` is "fine" or "coarse"; `target_type` one or a list of "instance", "semantic", "color"
    (images) and "polygon" (a dictionary). For a list, the target is a tuple.
    """

    source = "https://www.cityscapes-dataset.com"
    suffixes = {
        "instance": "instanceIds.png",
        "semantic": "labelIds.png",
        "color": "color.png",
        "polygon": "polygons.json",
    }

    def __init__(
        self,
        root: Folder,
        split: str = "train",
        mode: str = "fine",
        target_type: str | Sequence[str] = "instance",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        transforms: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        fine = one_of("mode", mode, ("fine", "coarse")) == "fine"
        self.mode = "gtFine" if fine else "gtCoarse"
        splits = ("train", "test", "val") if fine else ("train", "train_extra", "val")
        self.split = one_of("split", split, splits)
        wanted = [target_type] if isinstance(target_type, str) else list(target_type)
        self.target_type = [one_of("target_type", t, tuple(self.suffixes)) for t in wanted]
        pictures = self.find(f"leftImg8bit/{split}")
        targets = self.find(f"{self.mode}/{split}")
        self.images: list[str] = []
        self.targets: list[list[str]] = []
        for path in sorted(pictures.glob("*/*_leftImg8bit.*")):
            stem = path.stem.removesuffix("_leftImg8bit")
            names = [f"{stem}_{self.mode}_{self.suffixes[kind]}" for kind in self.target_type]
            self.images.append(str(path))
            self.targets.append([str(targets / path.parent.name / name) for name in names])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        targets = tuple(
            json.loads(Path(path).read_text()) if kind == "polygon" else _raw_image(path)
            for kind, path in zip(self.target_type, self.targets[index])
        )
        target = targets if len(targets) > 1 else targets[0]
        return self.transforms(open_image(self.images[index]), target)

    def __len__(self) -> int:
        return len(self.images)

    def extra_repr(self) -> str:
        return f"Split: {self.split}\nMode: {self.mode}\nType: {self.target_type}"


class CocoDetection(VisionDataset):
    """Images in `root` with the annotations of a COCO file; targets are lists of dictionaries."""

    source = "https://cocodataset.org"

    def __init__(
        self,
        root: Folder,
        annFile: str,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        transforms: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        content = json.loads(self.find(os.path.abspath(os.path.expanduser(annFile))).read_text())
        self.files = {image["id"]: image["file_name"] for image in content["images"]}
        self.ids = sorted(self.files)
        self.categories = {entry["id"]: entry for entry in content.get("categories", ())}
        self.annotations: dict[int, list[dict[str, Any]]] = {number: [] for number in self.ids}
        for annotation in content["annotations"]:
            self.annotations[annotation["image_id"]].append(annotation)

    def target_of(self, number: int) -> Any:
        """The target of the image with id `number`."""
        return self.annotations[number]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        number = self.ids[index]
        image = open_image(os.path.join(self.root, self.files[number]))
        return self.transforms(image, self.target_of(number))

    def __len__(self) -> int:
        return len(self.ids)


class CocoCaptions(CocoDetection):
    """Images in `root` with the captions of a COCO file; targets are lists of strings."""

    def target_of(self, number: int) -> list[str]:
        return [annotation["caption"] for annotation in self.annotations[number]]


class CelebA(VisionDataset):
    """Faces with attributes, in `root/celeba`: `img_align_celeba/*.jpg` and the lists beside it.

    `target_type`, one or a list: "attr" (40 truth values), "identity", "bbox" (x, y, width,
    height), "landmarks" (ten coordinates). For a list, the target is a tuple of tensors, or None if
    it is empty.
    """

    source = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    base_folder = "celeba"
    splits = ("train", "valid", "test", "all")
    lists = {
        "attr": ("list_attr_celeba.txt", 1),
        "identity": ("identity_CelebA.txt", None),
        "bbox": ("list_bbox_celeba.txt", 1),
        "landmarks": ("list_landmarks_align_celeba.txt", 1),
    }

    def __init__(
        self,
        root: Folder,
        split: str = "train",
        target_type: str | Sequence[str] = "attr",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = one_of("split", split.lower(), self.splits)
        wanted = [target_type] if isinstance(target_type, str) else list(target_type)
        self.target_type = [one_of("target_type", kind, tuple(self.lists)) for kind in wanted]
        self.pictures = self.find(f"{self.base_folder}/img_align_celeba")
        names, _, parts = self._table("list_eval_partition.txt", None)
        number = self.splits.index(self.split)
        chosen = np.flatnonzero(parts[:, 0] == number) if number < 3 else np.arange(len(names))
        self.filename = [names[k] for k in chosen]
        self.attr_names: list[str] = []
        self._values: dict[str, np.ndarray] = {}
        for kind in self.target_type:
            name, header = self.lists[kind]
            _, columns, values = self._table(name, header)
            if kind == "attr":
                values, self.attr_names = (values + 1) // 2, columns
            self._values[kind] = values[chosen]

    def _table(self, name: str, header: int | None) -> tuple[list[str], list[str], np.ndarray]:
        """File names, columns and numbers of a list; `header` is the line with the columns."""
        lines = self.find(f"{self.base_folder}/{name}").read_text().splitlines()
        columns = [] if header is None else lines[header].split()
        rows = [line.split() for line in lines[0 if header is None else header + 1 :]]
        rows = [row for row in rows if row]
        values = np.array([row[1:] for row in rows], np.int64)
        return [row[0] for row in rows], columns, values

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = open_image(self.pictures / self.filename[index])
        targets = [self._target(kind, index) for kind in self.target_type]
        if not targets:
            return self.transforms(image, None)
        return self.transforms(image, tuple(targets) if len(targets) > 1 else targets[0])

    def _target(self, kind: str, index: int) -> Tensor:
        row = self._values[kind][index]
        return metaop.tensor(int(row[0])) if kind == "identity" else metaop.tensor(row)

    def __len__(self) -> int:
        return len(self.filename)

    def extra_repr(self) -> str:
        return f"Target type: {self.target_type}\nSplit: {self.split}"
