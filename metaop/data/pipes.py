"""Data pipes: iterable data sets built from one another, `pipe.shuffle().batch(4).map(f)`.

PyTorch has deprecated them; a generator function in an IterableDataset does the same.
"""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from metaop.data.collate import default_collate
from metaop.data.dataset import Dataset, IterableDataset
from metaop.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from metaop.tensor.generator import host_random


class _Chained:
    """A data set that has the registered pipes, the `functions` of its family, as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Callable[..., Any]
    ) -> None:
        """Makes `pipe.function_name(…)` mean `cls_to_register(pipe, …)`."""
        if function_name in cls.functions:
            raise ArgumentError(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Chained, IterableDataset[Any]):
    """An iterable data set that has the registered pipes as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class MapDataPipe(_Chained, Dataset[Any]):
    """A data set by key or index that has the registered pipes as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class functional_datapipe:
    """Class decorator: `@functional_datapipe("name")` makes the pipe a method of all others."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        if enable_df_api_tracing:
            raise UnsupportedError(
                "functional_datapipe: pipes traced as data frames (enable_df_api_tracing=True)",
                fix="omit enable_df_api_tracing",
            )
        self.name = name

    def __call__(self, cls: Any) -> Any:
        family = MapDataPipe if issubclass(cls, MapDataPipe) else IterDataPipe
        family.register_datapipe_as_function(self.name, cls)
        return cls


class IterableWrapper(IterDataPipe):
    """The elements of any iterable, or with `deepcopy` of a copy of it."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


def _known(pipe: Any) -> int:
    """The length passed to a pipe; raises ArgumentTypeError if it is unknown."""
    length: int = pipe.length
    if length < 0:
        name = type(pipe).__name__
        raise ArgumentTypeError(f"{name} instance doesn't have valid length", fix="pass length=")
    return length


class FileLister(IterDataPipe):
    """The paths of the files in folders whose names match one of `masks`.

    They are sorted, even with `non_deterministic`. `len` is `length`, and raises
    ArgumentTypeError if that is -1.
    """

    def __init__(
        self,
        root: str | Iterable[str] = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        self.roots = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else masks
        self.recursive = recursive
        self.abspath = abspath
        self.length = length

    def __len__(self) -> int:
        return _known(self)

    def __iter__(self) -> Iterator[str]:
        for root in self.roots:
            start = os.path.abspath(root) if self.abspath else root
            for folder, below, names in os.walk(start):
                below.sort()
                for name in sorted(names):
                    if any(not mask or fnmatch.fnmatch(name, mask) for mask in self.masks):
                        yield os.path.join(folder, name)
                if not self.recursive:
                    break


class FileOpener(IterDataPipe):
    """(path, open file) for each path; `len` as for `FileLister`."""

    def __init__(
        self,
        datapipe: Iterable[str],
        mode: str = "r",
        encoding: str | None = None,
        length: int = -1,
    ) -> None:
        self.datapipe = datapipe
        self.mode = mode
        self.encoding = encoding
        self.length = length

    def __len__(self) -> int:
        return _known(self)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        mode = "rt" if self.mode == "t" else "rb" if self.mode == "b" else self.mode
        for path in self.datapipe:
            # The consumer closes the file.
            yield path, open(path, mode, encoding=self.encoding)  # noqa: SIM115


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """Applies `fn` to every element (or to columns `input_col`, into column `output_col`)."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
    ) -> None:
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        self.output_col = output_col

    def __iter__(self) -> Iterator[Any]:
        for element in self.datapipe:
            yield self._mapped(element)

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]

    def _mapped(self, element: Any) -> Any:
        found = _applied(self.fn, element, self.input_col)
        if self.input_col is None:
            return found
        changed = dict(element) if isinstance(element, dict) else list(element)
        if self.output_col == -1 and isinstance(changed, list):
            changed.append(found)
        else:
            column = self.input_col if self.output_col is None else self.output_col
            changed[column[0] if isinstance(column, (list, tuple)) else column] = found
        return tuple(changed) if isinstance(element, tuple) else changed


def _applied(fn: Callable[..., Any], element: Any, columns: Any) -> Any:
    if columns is None:
        return fn(element)
    listed = columns if isinstance(columns, (list, tuple)) else [columns]
    return fn(*(element[column] for column in listed))


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The elements for which `filter_fn` (of the columns `input_col`) holds."""

    def __init__(
        self, datapipe: Iterable[Any], filter_fn: Callable[..., bool], input_col: Any = None
    ) -> None:
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col

    def __iter__(self) -> Iterator[Any]:
        for element in self.datapipe:
            if _applied(self.filter_fn, element, self.input_col):
                yield element


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` elements; the last one may be shorter unless `drop_last`."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Callable[[list[Any]], Any] = list,
    ) -> None:
        if batch_size <= 0:
            raise ArgumentError("Batch size is required to be larger than 0!")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for element in self.datapipe:
            batch.append(element)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = len(self.datapipe)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The elements of batches, `unbatch_level` levels deep (all of them for -1)."""

    def __init__(self, datapipe: Iterable[Any], unbatch_level: int = 1) -> None:
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for element in self.datapipe:
            yield from self._elements(element, self.unbatch_level)

    def _elements(self, element: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level < 0 and not isinstance(element, list)):
            yield element
            return
        for inner in element:
            yield from self._elements(inner, level - 1)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe):
    """The elements shuffled within a buffer of `buffer_size` elements."""

    def __init__(
        self, datapipe: Iterable[Any], *, buffer_size: int = 10000, unbatch_level: int = 0
    ) -> None:
        if buffer_size <= 0:
            raise ArgumentError("buffer_size should be larger than 0")
        self.datapipe = UnBatcher(datapipe, unbatch_level) if unbatch_level else datapipe
        self.buffer_size = buffer_size

    def __iter__(self) -> Iterator[Any]:
        random = host_random(None)
        buffer: list[Any] = []
        for element in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(element)
                continue
            place = int(random.integers(len(buffer)))
            chosen, buffer[place] = buffer[place], element
            yield chosen
        for place in random.permutation(len(buffer)):
            yield buffer[place]

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Tuples of one element per pipe, until the shortest is exhausted."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        self.datapipes: Sequence[Iterable[Any]] = datapipes

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from zip(*self.datapipes)


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """The elements of several pipes one after another."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        self.datapipes: Sequence[Iterable[Any]] = datapipes

    def __iter__(self) -> Iterator[Any]:
        for datapipe in self.datapipes:
            yield from datapipe


@functional_datapipe("collate")
class Collator(IterDataPipe):
    """Collates batches into tensors."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        conversion: Callable[..., Any] = default_collate,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        self.datapipe = datapipe
        self.convert = conversion if collate_fn is None else collate_fn

    def __iter__(self) -> Iterator[Any]:
        for batch in self.datapipe:
            yield self.convert(batch)
