"""Files that are damaged, foreign or hostile give clear errors and touch nothing."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import CheckpointError, ShapeError
from metaop.export.container import KEY


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The header of a file, its program, and its weights."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"][KEY]), content[8 + length :]


def joined(header: dict[str, Any], program: Any, weights: bytes) -> bytes:
    header = {**header, "__metadata__": {KEY: json.dumps(program)}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + weights


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small program with all operators: a table, a convolution, an order, numbers of sizes."""
    path = tmp_path_factory.mktemp("whole") / "m.mo"
    table, convolution = nn.Embedding(5, 3), nn.Conv1d(3, 4, 3, padding=1)

    def function(tokens: metaop.Tensor) -> metaop.Tensor:
        x = convolution(table(tokens).transpose(1, 2)).mean(2)
        return x.sort(1)[0] + x[:, metaop.arange(4)] / tokens.shape[1] + (x > 0.5).any(1, True)

    metaop.export(function, metaop.tensor([[1, 2, 3]]), path, dynamic=[{1: "length"}])
    metaop.load_program(path)(metaop.tensor([[1, 2, 3, 4]])).numpy()
    return path.read_bytes()


def load(content: bytes, folder: Path) -> metaop.export.Program:
    path = folder / "damaged.mo"
    path.write_bytes(content)
    return metaop.load_program(path)


def test_truncated_files(whole: bytes, tmp_path: Path) -> None:
    for length in [0, 4, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        with pytest.raises(CheckpointError, match=r"cannot load .*damaged\.mo"):
            load(whole[:length], tmp_path)


def test_garbled_bytes_give_no_other_error(whole: bytes, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    header = struct.unpack("<Q", whole[:8])[0]
    for _ in range(400):
        content = bytearray(whole)
        for place in random.integers(0, 8 + header, random.integers(1, 4)):
            content[place] = random.integers(0, 256)
        try:
            program = load(bytes(content), tmp_path)
        except CheckpointError:
            continue
        assert isinstance(program, metaop.export.Program)


def nodes_of(program: Any, kind: str) -> list[dict[str, Any]]:
    return [node for node in program["nodes"] if node["op"] == kind]


def change(kind: str, key: str, value: Any) -> Callable[[Any], None]:
    def changed(program: Any) -> None:
        nodes_of(program, kind)[-1][key] = value

    return changed


def set_in(program: Any, *path: Any, value: Any) -> None:
    for step in path[:-1]:
        program = program[step]
    program[path[-1]] = value


def beyond(program: Any) -> None:
    """The first map reads behind the end of its tensor."""
    node = nodes_of(program, "reindex")[0]
    node["map"][0] = [10**6, *(node["map"][0][1:] if isinstance(node["map"][0], list) else ())]
    node.pop("where", None)


def before(program: Any) -> None:
    node = nodes_of(program, "reduce")[-1]
    node["map"][0] = -1


def wide_lookup(program: Any) -> None:
    """A table is looked up at 10 ** 6 places, of which it has 5."""
    text = json.dumps(program["nodes"])
    at = text.index('["at"')
    end = text.index("]", text.index("], ", text.index("]]", at)) + 2)
    program["nodes"] = json.loads(text[:end].rpartition(" ")[0] + " 1000000" + text[end:])


def wide_lookup_in_a_guard(program: Any) -> None:
    """What a guard reads lies behind the end, where another guard would forbid it."""
    node = next(node for node in program["nodes"] if '"at"' in json.dumps(node))
    place = [1, [1, ["axis", 1]]]
    node["where"] = [
        ["within", place, 3],
        ["within", [0, [1, ["at", 1, [0, place], 5]]], 4],
    ]


def deep(program: Any) -> None:
    expression: Any = 1
    for _ in range(200):
        expression = [0, [1, ["//", expression, 2]]]
    nodes_of(program, "index")[-1]["value"] = expression


def cycle(program: Any) -> None:
    node = nodes_of(program, "elementwise")[0]
    node["in"][0] = program["nodes"].index(node)


HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "a newer version": (lambda p: p.update(version=2), "version 2; this metaop reads version 1"),
    "no version": (lambda p: p.pop("version"), "does not have the fields"),
    "another field": (lambda p: p.update(code="import os"), "does not have the fields"),
    "nodes of another type": (
        lambda p: p.update(nodes={}),
        "'nodes' of its program is not a valid",
    ),
    "an unknown operator": (change("reduce", "op", "exec"), "'exec' is unknown"),
    "an unknown function": (change("elementwise", "function", "__import__"), "is unknown"),
    "an unknown reducer": (change("reduce", "reducer", "eval"), "is unknown"),
    "an unknown type": (change("reduce", "dtype", "object"), "'object' is unknown"),
    "another type": (change("reindex", "dtype", "int8"), "does not become a int8"),
    "a negative extent": (change("constant", "shape", [-1]), "none of 0 to"),
    "a huge extent": (change("constant", "shape", [2**50]), "none of 0 to|too large"),
    "a huge tensor": (change("constant", "shape", [2**40, 2**40]), "too large"),
    "an extent that is a text": (change("constant", "shape", ["__class__"]), "not a number"),
    "an extent that is true": (change("constant", "shape", [True]), "not a number"),
    "bits of another length": (change("constant", "bits", "00"), "is not a "),
    "an index behind the end": (beyond, "may leave its axis|damaged"),
    "an index before the start": (before, "may leave its axis"),
    "a lookup behind the end": (wide_lookup, "may leave its axis"),
    "a guard that reads behind the end": (wide_lookup_in_a_guard, "may leave its axis"),
    "an expression without end": (deep, "nested too deeply"),
    "a cycle": (cycle, "does not exist yet"),
    "an input that is none": (change("input", "number", 7), "no input 7"),
    "a weight that is none": (change("weight", "number", -1), "no weight -1"),
    "a result that is none": (
        lambda p: set_in(p, "outputs", 0, "node", value=10**9),
        "does not exist yet",
    ),
    "other weights": (lambda p: p["weights"].pop(), "weights do not match"),
    "numbers that divide by zero": (
        lambda p: p["numbers"].append(["//", "length", 0]),
        "cannot be computed|divisor",
    ),
    "numbers that never end": (
        lambda p: p["numbers"].extend([["sum", [2**47, "length"]], ["sum", ["#0"] * 10]]),
        "too large|damaged|no ",
    ),
    "numbers of numbers to come": (
        lambda p: p["numbers"].append(["sum", [1, "#99"]]),
        "not a number that is known",
    ),
    "an unknown number": (lambda p: p["numbers"].append(["eval", "length"]), "unknown operator"),
    "a size with another example": (
        lambda p: p["sizes"][0].update(example=0),
        "impossible bounds|example",
    ),
    "a size that is code": (lambda p: p["sizes"][0].update(name="a; b"), "no legal name"),
    "a guard that is none": (lambda p: p["guards"].append([1, "or", ""]), "'or' is unknown"),
    "a guard that does not hold": (
        lambda p: p["guards"].append([1, "<", "one is less"]),
        "one is less does not hold",
    ),
    "results of a strange structure": (
        lambda p: p.update(results={"tensor": 9}),
        "no legal structure",
    ),
    "results nested without end": (
        lambda p: p.update(results=json.loads('{"list":[' * 99 + "]}" * 99)),
        "no legal structure",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs(name: str, whole: bytes, tmp_path: Path) -> None:
    header, program, weights = parts(whole)
    tamper, message = HOSTILE[name]
    changed = copy.deepcopy(program)
    tamper(changed)
    assert changed != program
    with pytest.raises(CheckpointError, match=message):
        load(joined(header, changed, weights), tmp_path)


def test_every_field_is_looked_at(whole: bytes, tmp_path: Path) -> None:
    """Whatever stands in the place of a value: the file is refused, or the program is legal."""
    header, program, weights = parts(whole)
    places: list[tuple[Any, ...]] = []

    def visit(value: Any, path: tuple[Any, ...]) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            places.append((*path, key))
            if isinstance(inner, (dict, list)):
                visit(inner, (*path, key))

    visit(program, ())
    random = np.random.default_rng(0)
    for number in random.choice(len(places), 300, replace=False):
        for value in (None, -1, 1 << 70, "x", [], {}, 0.5):
            changed = copy.deepcopy(program)
            set_in(changed, *places[number], value=value)
            try:
                load(joined(header, changed, weights), tmp_path)
            except CheckpointError:
                continue


def test_sizes_are_checked_anew_in_every_call(tmp_path: Path) -> None:
    """A map that is legal for the example, and leaves its tensor for another size."""
    path = tmp_path / "m.mo"
    metaop.export(lambda x: x * metaop.ones(8), metaop.rand(4, 8), path, dynamic=[{0: "n"}])
    header, program, weights = parts(path.read_bytes())
    node = {"op": "reindex", "in": [0], "dtype": "float32", "shape": [2]}
    program["numbers"].append(["sum", [2, "n"], [-8]])
    start = f"#{len(program['numbers']) - 1}"
    program["nodes"].append({**node, "map": [[start, [1, ["axis", 0]]], 0]})
    program["outputs"][0]["node"] = len(program["nodes"]) - 1
    changed = load(joined(header, program, weights), tmp_path)
    assert changed(metaop.ones(4, 8)).shape == (2,)
    with pytest.raises(ShapeError, match="no form for n = 9.*may leave its axis"):
        changed(metaop.ones(9, 8))


def test_kinds_of_weights(whole: bytes, tmp_path: Path) -> None:
    header, program, weights = parts(whole)
    with pytest.raises(CheckpointError, match="none of its weights"):
        load(joined(header, {**program, "parameters": ["other"]}, weights), tmp_path)
    # Older files do not tell them.
    del program["parameters"], program["buffers"]
    assert load(joined(header, program, weights), tmp_path).content["buffers"] == []


def test_other_files(tmp_path: Path) -> None:
    metaop.save({"a": metaop.ones(2)}, tmp_path / "tensors.safetensors")
    with pytest.raises(CheckpointError, match=r"no program\s.*\n.*metaop\.load"):
        metaop.load_program(tmp_path / "tensors.safetensors")
    metaop.save({"a": metaop.ones(2)}, tmp_path / "tensors.pth")
    with pytest.raises(CheckpointError, match="it is not a program"):
        metaop.load_program(tmp_path / "tensors.pth")
    with pytest.raises(FileNotFoundError):
        metaop.load_program(tmp_path / "absent.mo")
