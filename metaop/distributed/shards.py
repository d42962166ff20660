"""Checkpoints in a folder, which all ranks of a job write and read together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from metaop.dist.collectives import everyone, is_running
from metaop.dist.mesh_world import nothing_partial
from metaop.dist.own_files import written_together
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import NdSbp, local_box
from metaop.errors import CheckpointError
from metaop.serialization.damage import Damage
from metaop.serialization.files import open_sharded, save_here
from metaop.serialization.sharded_format import (
    INDEX,
    Box,
    Piece,
    ShardedReader,
    Stored,
    file_name,
    index_of,
    mapped,
    named_tensors,
    piece_name,
    remove_others,
    whole_box,
    write_pieces,
)
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import TensorType


class _Alone:
    """The only rank of a job of one process, which needs no MPI."""

    rank, size = 0, 1

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def bcast(self, value: Any, root: int) -> Any:
        return value


def ranks_of_job() -> Any:
    """The communicator of all ranks."""
    return everyone() if is_running() else _Alone()


class _Written(NamedTuple):
    """What one rank tells the others: its file and the pieces in it, and its part of the state."""

    problem: str
    size: int
    tensors: dict[str, tuple[DType, tuple[int, ...], list[Box]]]
    state: Any


@written_together()
def write_folder(folder: Path, state: Any) -> None:
    """Writes a state; raises CheckpointError on all ranks if one of them cannot."""
    job = ranks_of_job()
    try:
        tensors = named_tensors(state, lambda value: isinstance(value, Tensor))
    except Damage as error:
        raise CheckpointError(f"cannot save {folder}: {error}") from None
    local = [name for name, tensor in tensors.items() if tensor.device.placement is None]
    first = _first_ranks(job.allgather(local))
    generation = _next_generation(folder, job)
    file = file_name(generation, job.rank, job.size)
    written = _write_own(folder / file, tensors, first, job.rank)
    rest = mapped(state, lambda name, value: None if name in tensors else value)
    answers: list[_Written] = job.allgather(written._replace(state=rest))
    _raise_first([answer.problem for answer in answers], folder)
    problem = ""
    if job.rank == 0:
        try:
            _write_index(folder, answers, generation)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    _raise_first([job.bcast(problem, 0)], folder)


def _first_ranks(names: Sequence[Sequence[str]]) -> dict[str, int]:
    """For each name, the first rank that has it."""
    found: dict[str, int] = {}
    for rank, own in enumerate(names):
        for name in own:
            found.setdefault(name, rank)
    return found


def _next_generation(folder: Path, job: Any) -> int:
    """Creates the folder; returns the number of the next checkpoint in it."""
    answer: int | str = 1
    if job.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / INDEX).exists():
                answer = 1 + open_sharded(folder).generation
        except OSError as error:
            answer = str(error)
        except CheckpointError:
            answer = 1
    answer = job.bcast(answer, 0)
    if isinstance(answer, str):
        _raise_first([answer], folder)
    assert isinstance(answer, int)
    return answer


def _write_own(
    path: Path, tensors: Mapping[str, Tensor], first: Mapping[str, int], rank: int
) -> _Written:
    """Writes the pieces of this rank."""
    arrays: dict[str, np.ndarray] = {}
    told: dict[str, tuple[DType, tuple[int, ...], list[Box]]] = {}
    for name, tensor in tensors.items():
        if tensor.device.placement is None:
            parts = [(whole_box(tensor.shape), tensor._array())] if first[name] == rank else []
        else:
            parts = list(_own_boxes(name, tensor))
        if parts:
            arrays |= {piece_name(name, box): part for box, part in parts}
            told[name] = (tensor.dtype, tuple(tensor.shape), [box for box, _ in parts])
    problem, size = "", 0
    try:
        size = write_pieces(path, arrays)
    except Exception as error:
        # Any error must be reported: the other ranks wait for this message. So it is for the index.
        problem = f"{type(error).__name__}: {error}"
    return _Written(problem, size, told, None)


def _own_boxes(name: str, tensor: Tensor) -> Iterator[tuple[Box, np.ndarray]]:
    """The boxes of a global tensor that this process writes; each is written by one holder."""
    buffer: Any = tensor.buffer()
    placement: Placement = tensor.device.placement
    states = nothing_partial(buffer.states)
    parts = buffer.world.box(buffer.parts, buffer.states, states, buffer.shape)
    holders: dict[Box, list[int]] = {}
    for number in range(placement.ranks.size):
        holders.setdefault(_box_of(number, states, buffer), []).append(number)
    for box, numbers in holders.items():
        writer = numbers[crc32(piece_name(name, box).encode()) % len(numbers)]
        if writer in parts:
            yield box, buffer.world.memory.get(parts[writer])


def _box_of(number: int, states: NdSbp, buffer: ShardedBuffer) -> Box:
    mesh = buffer.world.mesh
    place = tuple(int(k) for k in np.unravel_index(number, mesh))
    return tuple(local_box(buffer.shape, states, mesh, place))


def _write_index(folder: Path, answers: Sequence[_Written], generation: int) -> None:
    tensors: dict[str, Stored] = {}
    files: dict[str, int] = {}
    for rank, answer in enumerate(answers):
        file = file_name(generation, rank, len(answers))
        files[file] = answer.size
        for name, (dtype, shape, boxes) in answer.tensors.items():
            before = tensors[name].pieces if name in tensors else ()
            pieces = tuple(Piece(file, box) for box in boxes)
            tensors[name] = Stored(dtype, shape, (*before, *pieces))
    state = answers[0].state
    for answer in answers[1:]:
        _add_missing(state, answer.state)
    save_here(index_of(state, tensors, files, generation), folder / INDEX)
    remove_others(folder, files)


def _add_missing(state: Any, other: Any) -> None:
    """Adds what only another rank has: a pipeline stage, for example, has its own layers."""
    if isinstance(state, dict) and isinstance(other, dict):
        for key, value in other.items():
            if key in state:
                _add_missing(state[key], value)
            else:
                state[key] = value
    elif isinstance(state, list) and isinstance(other, list):
        for mine, theirs in zip(state, other):
            _add_missing(mine, theirs)
        state.extend(other[len(state) :])


def _raise_first(problems: Sequence[str], folder: Path) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            raise CheckpointError(
                f"rank {rank} cannot write to {folder}: {problem}",
                fix="fix that and save again; the previous checkpoint is intact",
            )


# --- reading ------------------------------------------------------------------------------------


class InShards:
    """A tensor in a folder; only the required parts are read."""

    def __init__(self, reader: ShardedReader, name: str) -> None:
        self._reader, self._name = reader, name
        self.dtype, self.shape, _ = reader.tensors[name]

    def whole(self) -> Tensor:
        """The whole value as a local tensor."""
        return from_array(self._read(None), self.dtype)

    def resharded(self, like: Tensor) -> Tensor:
        """Its value, sharded like `like`."""
        placement: Placement | None = like.device.placement
        if placement is None:
            return self.whole()
        buffer: Any = like.buffer()
        states = nothing_partial(buffer.states)
        world = buffer.world
        put = world.memory.put
        parts = {k: put(self._read(_box_of(k, states, buffer))) for k in world.owned}
        made = ShardedBuffer(parts, states, world, self.shape, self.dtype.numpy)
        return wrap(leaf(TensorType(self.shape, self.dtype, placement.device), made))

    def _read(self, box: Box | None) -> np.ndarray:
        try:
            return self._reader.read(self._name, box)
        except Damage as error:
            raise CheckpointError(
                f"cannot load {self._reader.folder}: {error}", fix=error.fix
            ) from None
