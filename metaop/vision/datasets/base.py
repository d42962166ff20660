"""The base of image data sets: where their files are, and how samples are transformed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from metaop.data.dataset import Dataset
from metaop.errors import ArgumentError, DatasetError
from metaop.serialization.builder import Survey
from metaop.serialization.damage import Damage
from metaop.serialization.unpickler import unpickle

Transform = Callable[[Any], Any]
Folder = str | os.PathLike[str]


class StandardTransform:
    """Combines a transform of the image and one of the target."""

    def __init__(
        self, transform: Transform | None = None, target_transform: Transform | None = None
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        lines = ["StandardTransform"]
        for name, part in (("Transform", self.transform), ("Target", self.target_transform)):
            if part is not None:
                lines.append(f"{name}: {part}".replace("\n", "\n    "))
        return "\n".join(lines)


class VisionDataset(Dataset[tuple[Any, Any]]):
    """Samples (image, target) from files below `root`.

    Either `transforms`, a function of image and target, or `transform` and `target_transform`.
    `source` says where to get the files; metaop never downloads a data set.
    """

    source = ""

    def __init__(
        self,
        root: Folder,
        transforms: Callable[..., Any] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ArgumentError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root = os.path.expanduser(os.fspath(root))
        self.transform = transform
        self.target_transform = target_transform
        both = StandardTransform(transform, target_transform)
        self.transforms = both if transforms is None else transforms

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no length")

    def extra_repr(self) -> str:
        """Additional lines for the repr of the data set."""
        return ""

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if getattr(self, "root", None):
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transform is not None or self.target_transform is not None:
            body += str(self.transforms).splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *("    " + line for line in body)])

    def find(self, *names: str) -> Path:
        """The first of the given files or folders below the root that exists.

        Raises DatasetError, which names all of them and where to get them.
        """
        for name in names:
            path = Path(self.root, name)
            if path.exists():
                return path
        raise self.missing(names)

    def missing(self, names: Iterable[str]) -> DatasetError:
        """The error that lists the expected files and their locations."""
        places = " or ".join(str(Path(self.root, name)) for name in names)
        return DatasetError(
            f"Dataset not found: {type(self).__name__} expects {places}",
            fix=f"put the files there; they are available from {self.source}. "
            "metaop reads local files and never downloads, whatever `download` is",
        )


def one_of(name: str, value: str, values: Sequence[str]) -> str:
    """`value` if it is one of `values`; raises ArgumentError otherwise."""
    if value not in values:
        raise ArgumentError(
            f"Unknown value '{value}' for argument {name}.",
            fix=f"Valid values are {', '.join(values)}",
        )
    return value


def contents(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name ends in .gz."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def load_pickle(path: Path) -> Any:
    """The containers, strings, numbers and arrays of a pickle; no code of the file runs.

    Raises DatasetError for anything else.
    """

    def persistent(pid: Any) -> Any:
        raise Damage(f"it refers to {pid!r}, which is outside the file")

    try:
        with open(path, "rb") as file:
            return unpickle(file, Survey(), persistent)
    except Damage as error:
        raise DatasetError(f"cannot read {path}: {error}", fix="download the file again") from error


def open_image(path: str | os.PathLike[str], mode: str = "RGB") -> Any:
    """Opens an image file with Pillow and converts it to a mode."""
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert(mode)
