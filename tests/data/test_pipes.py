"""Data pipes give what PyTorch's give."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metaop
from metaop.utils.data import DataLoader, IterDataPipe, functional_datapipe
from metaop.utils.data.datapipes import iter as pipes

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.utils.data.datapipes import iter as torch_pipes

CHAINS: dict[str, Callable[[Any], Any]] = {
    "map": lambda p: p.IterableWrapper(range(7)).map(lambda x: x * 2),
    "columns": lambda p: (
        p.IterableWrapper([(1, 2), (3, 4)])
        .map(lambda a: -a, input_col=0)
        .map(lambda a, b: a + b, input_col=[0, 1], output_col=-1)
    ),
    "keys": lambda p: p.IterableWrapper([{"a": 1}]).map(lambda a: a + 1, "a", "b"),
    "filter": lambda p: p.IterableWrapper(range(9)).filter(lambda x: x % 3 == 0),
    "batch": lambda p: p.IterableWrapper(range(7)).batch(3),
    "dropped": lambda p: p.IterableWrapper(range(7)).batch(3, drop_last=True),
    "nested": lambda p: p.IterableWrapper(range(8)).batch(2).batch(2).unbatch(-1),
    "zip": lambda p: p.IterableWrapper("abc").zip(p.IterableWrapper(range(2))),
    "concat": lambda p: p.IterableWrapper([1]).concat(p.IterableWrapper([2, 3])),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.filterwarnings("ignore")
def test_chains(name: str) -> None:
    assert list(CHAINS[name](pipes)) == list(CHAINS[name](torch_pipes))


def test_shuffling_and_collating() -> None:
    metaop.manual_seed(1)
    chain = pipes.IterableWrapper(range(20)).shuffle(buffer_size=6)
    first = list(chain)
    assert sorted(first) == list(range(20)) and first != list(range(20))
    batches = list(chain.batch(5).collate())
    assert len(chain.batch(5)) == 4 and batches[0].shape == (5,)
    assert [x.tolist() for x in DataLoader(pipes.IterableWrapper(range(4)), 2)] == [[0, 1], [2, 3]]


def test_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.bin", "below/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    found = list(pipes.FileLister(str(tmp_path), "*.txt"))
    assert found == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert len(list(pipes.FileLister(str(tmp_path), recursive=True))) == 4
    texts = []
    for _, file in pipes.FileOpener(found):
        with file:
            texts.append(file.read())
    assert texts == ["a.txt", "b.txt"]


def test_own_pipes() -> None:
    @functional_datapipe("doubled_for_the_test")
    class Doubled(IterDataPipe):
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Any:
            return (2 * x for x in self.source)

    assert list(pipes.IterableWrapper([1, 2]).doubled_for_the_test()) == [2, 4]
    with pytest.raises((RuntimeError, ValueError), match="taken"):
        functional_datapipe("map")(Doubled)
    with pytest.raises(AttributeError):
        _ = pipes.IterableWrapper([]).nothing_like_this
    with pytest.raises((RuntimeError, ValueError), match="Batch size"):
        pipes.IterableWrapper([]).batch(0)


def test_pipes_by_key() -> None:
    from metaop.utils.data import MapDataPipe

    class Words(MapDataPipe):
        def __init__(self, words: list[str]) -> None:
            self.words = words

        def __getitem__(self, index: int) -> str:
            return self.words[index]

        def __len__(self) -> int:
            return len(self.words)

    @functional_datapipe("louder")
    class Louder(MapDataPipe):
        def __init__(self, source: Any, end: str = "!") -> None:
            self.source, self.end = source, end

        def __getitem__(self, index: int) -> str:
            return self.source[index].upper() + self.end

        def __len__(self) -> int:
            return len(self.source)

    pipe = Words(["a", "b", "c"]).louder(end="?")
    assert list(DataLoader(pipe, 2)) == [["A?", "B?"], ["C?"]]
    assert "louder" not in IterDataPipe.functions and not hasattr(
        pipes.IterableWrapper([]), "louder"
    )
    with pytest.raises(AttributeError):
        pipe.softer()
    with pytest.raises(ValueError, match="already taken"):
        functional_datapipe("louder")(Words)
