"""`save` and `load`: choosing the format, naming the file in errors, writing atomically."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, Union

from metaop.dist.collectives import everyone, is_running
from metaop.dist.own_files import leave_to_first
from metaop.serialization.builder import Placement
from metaop.serialization.damage import Damage, Reading
from metaop.serialization.legacy_format import read_legacy, read_tar
from metaop.serialization.pickler import pickle_checkpoint
from metaop.serialization.safetensors_format import (
    looks_like_safetensors,
    read_safetensors,
    write_safetensors,
)
from metaop.serialization.sharded_format import ShardedReader, mapped
from metaop.serialization.zip_format import read_zip, write_zip
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.sharded import data_parallel
from metaop.tensor.sharded.global_tensor import full_tensor
from metaop.unified_graph.tensor_type import CPU, Device

File = Union[str, "os.PathLike[str]", IO[bytes]]
MapLocation = str | Device | Mapping[str, str] | Callable[[Any, str], Any] | None


def save(
    obj: Any,
    f: File,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    global_dst_rank: int | None = None,
) -> None:
    """Writes an object to a file that PyTorch can read too.

    `obj` is a state_dict or another nest of tensors, numbers, strings and plain containers. It may
    hold objects of other classes, such as whole modules, which are pickled. A name that ends in
    `.safetensors` requires a flat mapping of names to tensors; all others get PyTorch's zip format.
    Files are written atomically. PyTorch's further arguments are accepted and have no effect.

    Of global tensors the whole values are written; every rank of a job has to call it then, and
    with `global_dst_rank` only this one writes, in a data-parallel program rank 0. Raises
    CheckpointError for objects that cannot be pickled, such as functions without a name.

    >>> import io
    >>> file = io.BytesIO()
    >>> metaop.save(nn.Linear(2, 1).state_dict(), file)
    >>> file.seek(0), sorted(metaop.load(file))
    (0, ['bias', 'weight'])
    """
    if global_dst_rank is not None and is_running():
        whole = mapped(obj, lambda _, value: _whole(value))
        if everyone().rank == global_dst_rank:
            save_here(whole, f)
        everyone().Barrier()
    elif data_parallel.is_on() and isinstance(f, (str, os.PathLike)):
        # Every rank takes part in gathering the values; only rank 0 keeps them.
        if everyone().rank:
            _write(obj, io.BytesIO(), Path(f).name)
            leave_to_first(f)
        else:
            save_here(obj, f)
        everyone().Barrier()
    else:
        save_here(obj, f)


def save_here(obj: Any, f: File) -> None:
    """Writes an object of this process."""
    if not isinstance(f, (str, os.PathLike)):
        _write(obj, f, "")
        return
    path = Path(f)
    write_whole(path, lambda file: _write(obj, file, path.name))


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Atomically creates a file with the content that `write` writes."""
    # In the same folder, because a file can only be renamed within one file system.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _whole(value: Any) -> Any:
    is_global = isinstance(value, Tensor) and value.device.placement is not None
    return full_tensor(value.detach()) if is_global else value


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _write(obj: Any, file: IO[bytes], name: str) -> None:
    if name.endswith(".safetensors"):
        write_safetensors(file, obj)
    else:
        write_zip(file, *pickle_checkpoint(obj))


def load(
    f: File,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    global_src_rank: int | None = None,
    **_options: Any,
) -> Any:
    """Reads what `save` or `torch.save` wrote, a safetensors file, or a sharded checkpoint.

    A sharded checkpoint is a folder that `metaop.distributed.checkpoint.save` wrote.

    The format is detected from the content. Tensors that shared memory share it again.
    `map_location` says where tensors go: a device, a mapping of saved to new devices, or a function
    of (storage, saved device). No code that the file names runs, but for what is listed
    (`metaop.serialization.add_safe_globals`). With `weights_only=False`, which is for files that
    you trust, it may name and call anything, and objects of all classes are read, but for those of
    PyTorch. `pickle_module` and `mmap` are accepted and have no effect. With `global_src_rank` one
    rank of a job reads the file and sends its content to the others, in a data-parallel program
    rank 0.

    Raises CheckpointError, with the file and the reason, for damaged files and for names that are
    not allowed.

    >>> import io
    >>> file = io.BytesIO()
    >>> metaop.save({"step": 3, "x": metaop.ones(2)}, file)
    >>> file.seek(0), metaop.load(file)
    (0, {'step': 3, 'x': tensor([1., 1.])})
    """
    placement = placement_of(map_location)
    trusted = weights_only is False
    if isinstance(f, (str, os.PathLike)):
        if global_src_rank is None and data_parallel.is_on() and not os.path.isdir(f):
            global_src_rank = 0
        if global_src_rank is not None and is_running():
            content = _content_on(f, global_src_rank)
            return _read(io.BytesIO(content), placement, str(f), trusted)
    return _load_here(f, placement, trusted)


def _load_here(f: File, placement: Placement, trusted: bool) -> Any:
    """Reads a file in this process."""
    if isinstance(f, (str, os.PathLike)):
        if os.path.isdir(f):
            return _read_folder(Path(f), placement)
        with open(f, "rb") as file:
            return _read(file, placement, os.fspath(f), trusted)
    return _read(f, placement, getattr(f, "name", "the file object"), trusted)


def _content_on(file: str | os.PathLike[str], rank: int) -> bytes:
    """The content of a file on one rank; if reading fails there, raises on all ranks."""
    found: bytes | OSError = b""
    if everyone().rank == rank:
        try:
            found = Path(file).read_bytes()
        except OSError as error:
            found = error
    found = everyone().bcast(found, rank)
    if isinstance(found, OSError):
        raise found
    return found


def open_sharded(folder: Path) -> ShardedReader:
    """The reader of a sharded checkpoint; raises CheckpointError if there is none."""
    with Reading(str(folder)):
        return ShardedReader(folder, lambda path: _load_here(path, placement_of(None), False))


def _read_folder(folder: Path, placement: Placement) -> Any:
    reader = open_sharded(folder)
    device = placement("cpu")

    def leaf(name: str, value: Any) -> Any:
        if name not in reader.tensors:
            return value
        tensor = from_array(reader.read(name), reader.tensors[name].dtype)
        return tensor if device is CPU else tensor.to(device)  # type: ignore[attr-defined]

    with Reading(str(folder)):
        return mapped(reader.state, leaf)


def _read(file: IO[bytes], placement: Placement, name: str, trusted: bool) -> Any:
    with Reading(name):
        return _reader_of(file, trusted)(file, placement)


def _reader_of(file: IO[bytes], trusted: bool) -> Callable[[IO[bytes], Placement], Any]:
    start = file.read(512)
    file.seek(-len(start), os.SEEK_CUR)
    if not start:
        raise Damage("it is empty")
    if start.startswith(b"PK\3\4") or start.startswith(b"PK\5\6"):
        return partial(read_zip, trusted=trusted)
    if looks_like_safetensors(start):
        return read_safetensors
    if start[257:262] == b"ustar" or _is_tar(file):
        return read_tar
    if start.startswith(b"\x80"):
        return partial(read_legacy, trusted=trusted)
    raise Damage("it is not a checkpoint: neither zip, pickle, tar nor safetensors")


def _is_tar(file: IO[bytes]) -> bool:
    position = file.tell()
    try:
        with tarfile.open(fileobj=file, mode="r:"):
            return True
    except (tarfile.TarError, ValueError, OverflowError):
        return False
    finally:
        file.seek(position)


def placement_of(map_location: MapLocation) -> Placement:
    """Where the tensors of a file are placed, from the `map_location` of `load`."""

    def placement(location: str) -> Device:
        if isinstance(map_location, Device):
            return map_location
        if isinstance(map_location, str):
            return Device(map_location)
        if isinstance(map_location, Mapping):
            return Device(str(map_location.get(location, location)))
        if callable(map_location):
            placed = map_location(_CpuStorage(), location)
            return placed.device if isinstance(placed, _CpuStorage) else Device(placed or location)
        return Device(location)

    return placement


class _CpuStorage:
    """The argument of a map_location function; returning it leaves the values on the CPU."""

    device = CPU

    def cuda(self, device: int | None = None) -> Device:
        """Places the values on a GPU."""
        return Device("cuda", device)
