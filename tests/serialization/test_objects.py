"""Whole modules, optimizers and objects of the user, and checkpoints that hold them."""

from __future__ import annotations

import importlib
import io
import threading
import zipfile
from argparse import Namespace
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from random import Random
from typing import Any, NamedTuple

import pytest

import metaop
from metaop import load, nn, optim, save
from metaop.errors import CheckpointError


class Net(nn.Module):
    """A module with everything: tied weights, a function, a buffer, a hook, a cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.GRU(3, 3))
        self.head = nn.Linear(3, 3)
        self.head.weight = self.body[0].weight
        self.activation = nn.functional.relu
        self.register_buffer("scale", metaop.full((3,), 2.0))
        self.sizes = {"in": 3, "out": [3, (3,)]}
        self.head.register_forward_hook(double)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.activation(self.body(x)[0])) * self.scale


def double(module: nn.Module, inputs: Any, output: metaop.Tensor) -> metaop.Tensor:
    return output * 2


@dataclass
class Settings:
    """A class of the user, with values that the pickle shares."""

    width: int = 3
    parts: list[Any] = field(default_factory=list)


class Vocabulary:
    """It says itself what is kept of it, and how often one was made."""

    made = 0

    def __init__(self, words: list[str]) -> None:
        self.words = {word: k for k, word in enumerate(words)}
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"words": self.words}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Vocabulary.made += 1
        self.__init__(list(state["words"]))  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words


class Colour(Enum):
    RED = "red"


class Pair(NamedTuple):
    first: Any
    second: Any

    class Kind:
        """A class within another one."""


class Slots:
    """Its attributes are in slots; it is made by a call."""

    __slots__ = ("value", "other")

    def __init__(self, value: int) -> None:
        self.value, self.other = value, [value]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self.value == other.value


class Table(dict):  # type: ignore[type-arg]
    """A dictionary with an attribute."""


SHARED = [1, 2]
OBJECTS: dict[str, Any] = {
    "namespace": Namespace(rate=0.1, names=["a"]),
    "data class": Settings(4, [SHARED, SHARED]),
    "own state": Vocabulary(["a", "b"]),
    "enumeration": [Colour.RED, Colour.RED],
    "named tuple": Pair(1, Pair.Kind),
    "slots": Slots(3),
    "dictionary": Table(a=1),
    "default dictionary": defaultdict(list, a=[1]),
    "queue": deque([1, 2], maxlen=3),
    "path": PurePosixPath("/a/b"),
    "date": datetime(2020, 1, 2, 3),
    "fraction": Fraction(1, 3),
    "function": partial(int, base=2).func,
    "range": [range(3), slice(1, 2), bytearray(b"ab"), ...],
    "random numbers": Random(0).getstate(),
}


def again(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return load(file, **options)


def test_a_module_comes_back_whole() -> None:
    net, x = Net().eval(), metaop.randn(4, 3)
    read = again(net, weights_only=False)
    assert type(read) is Net and not read.training and read.sizes == net.sizes
    assert read(x).tolist() == net(x).tolist()
    assert read.head.weight is read.body[0].weight
    read.train().requires_grad_(False).head.register_forward_hook(double)
    assert read.eval()(x).tolist() == (net(x) * 2).tolist()


def test_a_checkpoint_with_modules_trains_on() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)

    def step(net: Any, optimizer: Any, schedule: Any) -> list[float]:
        optimizer.zero_grad()
        net(metaop.ones(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()
        return [*net.weight.flatten().tolist(), *schedule.get_last_lr()]

    step(net, optimizer, schedule)
    everything = {"net": net, "optimizer": optimizer, "schedule": schedule, "args": Namespace(a=1)}
    read = again(everything, weights_only=False)
    assert read["args"] == Namespace(a=1) and read["schedule"].optimizer is read["optimizer"]
    assert step(read["net"], read["optimizer"], read["schedule"]) == step(net, optimizer, schedule)


@pytest.mark.parametrize("weights_only", [None, True])
def test_whole_objects_are_read_only_of_trusted_files(weights_only: bool | None) -> None:
    with pytest.raises(CheckpointError, match=r"(?s)Linear.*weights_only=False"):
        again(nn.Linear(1, 1), weights_only=weights_only)


def test_what_no_import_finds_is_refused() -> None:
    class Local(nn.Module):
        pass

    with pytest.raises(CheckpointError, match=r"Local: it cannot be imported"):
        again(Local())
    module = nn.Linear(1, 1)
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(CheckpointError, match=r"lambda"):
        again(module)


@pytest.mark.parametrize("writer", ["metaop", "torch"])
@pytest.mark.parametrize("reader", ["metaop", "torch"])
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_all_classes_are_exchanged(name: str, writer: str, reader: str) -> None:
    torch = pytest.importorskip("torch")
    libs = {"metaop": metaop, "torch": torch}
    file, value = io.BytesIO(), OBJECTS[name]
    libs[writer].save({"value": value, "weights": libs[writer].ones(2)}, file)
    file.seek(0)
    found = libs[reader].load(file, weights_only=False)
    assert found["value"] == value and type(found["value"]) is type(value)
    assert found["weights"].tolist() == [1, 1]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_every_protocol_of_trusted_files_is_read(protocol: int, new: bool) -> None:
    torch = pytest.importorskip("torch")
    file, values = io.BytesIO(), [*OBJECTS.values(), torch.ones(2)]
    torch.save(values, file, pickle_protocol=protocol, _use_new_zipfile_serialization=new)
    file.seek(0)
    *found, weights = load(file, weights_only=False)
    assert found == values[:-1] and weights.tolist() == [1, 1]


def test_the_survey_of_a_file_makes_no_objects() -> None:
    Vocabulary.made = 0
    read = again([Vocabulary(["a"]), Settings(parts=[SHARED, SHARED])], weights_only=False)
    assert Vocabulary.made == 1
    assert read[1].parts[0] is read[1].parts[1]


def test_tensors_within_objects_share_memory() -> None:
    weights = nn.Parameter(metaop.ones(3))
    read = again(Settings(parts=[weights, Table(view=weights.detach()[1:])]), weights_only=False)
    with metaop.no_grad():
        read.parts[0].fill_(2)
    assert read.parts[1]["view"].tolist() == [2, 2]


def test_classes_that_the_user_lists_are_safe() -> None:
    serialization, value = metaop.serialization, [Settings(5), Slots(2)]
    with pytest.raises(CheckpointError, match=r"Settings, which is not on the list"):
        again(value)
    with serialization.safe_globals([Settings]), pytest.raises(CheckpointError, match="Slots"):
        again(value)
    with serialization.safe_globals([Settings, (Slots, f"{__name__}.Slots")]):
        assert again(value) == value
    # What is listed may be made, and nothing else may be called.
    file = io.BytesIO()
    save([Settings(5), Colour.RED], file)
    file.seek(0)
    with serialization.safe_globals([Settings]), pytest.raises(CheckpointError, match="Colour"):
        load(file)


def test_classes_that_no_import_finds_are_named() -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    save(Settings(), file)
    stored = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(stored, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"Settings", b"Absentee"))
    stored.seek(0)
    with pytest.raises(CheckpointError, match=r"it needs .*Absentee"):
        load(stored, weights_only=False)
    file = io.BytesIO()
    torch.save(torch.nn.Linear(1, 1), file)
    file.seek(0)
    with pytest.raises(CheckpointError, match=r"(?s)torch\.nn.*state_dict"):
        load(file, weights_only=False)


def test_lists_of_safe_classes_are_kept() -> None:
    torch = pytest.importorskip("torch")
    for lib in (metaop, torch):
        serialization = importlib.import_module(f"{lib.__name__}.serialization")
        before = set(serialization.get_safe_globals())
        serialization.add_safe_globals([set, Counter])
        with serialization.safe_globals([dict]):
            assert set(serialization.get_safe_globals()) == {*before, set, Counter, dict}
        assert set(serialization.get_safe_globals()) == {*before, set, Counter}
        serialization.clear_safe_globals()
        assert serialization.get_safe_globals() == []
        serialization.add_safe_globals([*before])
