"""Pictures of graphs: valid, complete, and drawn such that nothing lies on anything else."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import metaop
import metaop.nn.functional as F
from metaop import inspect, nn
from metaop.compiler import PASSES
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Split
from metaop.errors import ArgumentError
from metaop.inspect.layered import depths, layered
from metaop.kernels import task

Box = tuple[float, float, float, float]
TAG = "{http://www.w3.org/2000/svg}"
STAGES = ["expand", *(one.name for one in PASSES)]


def normal(*shape: int) -> metaop.Tensor:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return metaop.tensor(values, requires_grad=True)


def training() -> list[metaop.Tensor]:
    x, w, v, b = normal(5, 8), normal(8, 16), normal(16, 4), normal(4)
    loss = F.cross_entropy(F.relu(x @ w) @ v + b, metaop.tensor([0, 1, 2, 3, 0]))
    loss.backward()
    return [loss, *(one.grad for one in (x, w, v, b) if one.grad is not None)]


def pieces() -> list[metaop.Tensor]:
    x, y = normal(6, 5), normal(3, 5)
    z = metaop.cat([x.exp(), y.sin(), x.cumsum(1)])
    return [z, z.sum(0), z.sort(1).values, z.index_add(0, metaop.tensor([2, 2, 1]), y)]


def loop() -> list[metaop.Tensor]:
    def step(carry: metaop.Tensor, x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        new = metaop.tanh(carry @ w + x)
        return new, new * 2

    w = normal(4, 4)
    last, outputs = metaop.scan(step, normal(3, 4), normal(7, 3, 4))
    return [last, outputs.sum()]


def drawn(picture: inspect.Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg)


def boxes_of(parent: ElementTree.Element) -> list[ElementTree.Element]:
    return [one for one in parent.findall(f"{TAG}g") if "data-name" in one.attrib]


def all_boxes(parent: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (one for one in parent.iter(f"{TAG}g") if "data-name" in one.attrib)


def edges_of(parent: ElementTree.Element, deep: bool = True) -> set[tuple[str, str]]:
    paths = parent.iter(f"{TAG}path") if deep else parent.findall(f"{TAG}path")
    edges = (one.attrib for one in paths if "data-from" in one.attrib)
    return {(one["data-from"], one["data-to"]) for one in edges}


def title_of(box: ElementTree.Element) -> str:
    return box.findtext(f"{TAG}title") or ""


def place_of(box: ElementTree.Element) -> Box:
    found = box.find(f"{TAG}rect")
    assert found is not None
    x, y, width, height = (float(found.attrib[key]) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def check_geometry(picture: inspect.Picture) -> None:
    root = drawn(picture)
    page = 0.0, 0.0, float(root.attrib["width"]), float(root.attrib["height"])
    check_inside(root, page)


def check_inside(parent: ElementTree.Element, around: Box) -> None:
    """Boxes keep within what is around them and apart, texts in boxes, edges out of them."""
    places = {box: place_of(box) for box in boxes_of(parent)}
    for one in places.values():
        assert around[0] <= one[0] and around[1] <= one[1]
        assert one[2] <= around[2] and one[3] <= around[3]
    for (a, b, c, d), (e, f, g, h) in combinations(places.values(), 2):
        assert c <= e or g <= a or d <= f or h <= b
    for path in parent.findall(f"{TAG}path"):
        check_edge(path, parent, list(places.values()))
    for box, (left, top, right, bottom) in places.items():
        free = top
        for text in box.findall(f"{TAG}text"):
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            # No usual monospace font of 11 pixels is wider, or reaches farther below its line.
            assert left < x and x + len(text.text or "") * 11 * 0.61 < right
            assert top < y - 9 and y + 3 < bottom
            free = y + 3
        check_inside(box, (left, free, right, bottom))


def check_edge(path: ElementTree.Element, parent: ElementTree.Element, places: list[Box]) -> None:
    words = [float(word) for word in re.findall(r"-?[\d.]+", path.attrib["d"])]
    (x, y), words = words[:2], words[2:]
    points = [(x, y)]
    ends = {path.attrib["data-from"]: (x, y)}
    while words:
        below, a, b, c, d, e, f = words[:7]
        words = words[7:]
        points += [(x, y + (below - y) * k / 8) for k in range(9)]
        for k in range(1, 17):
            t, u = k / 16, 1 - k / 16
            across = u**3 * x + 3 * u * u * t * a + 3 * u * t * t * c + t**3 * e
            points.append((across, u**3 * below + 3 * u * u * t * b + 3 * u * t * t * d + t**3 * f))
        x, y = e, f
    for left, top, right, bottom in places:
        for across, down in points:
            assert not (left < across < right and top + 0.2 < down < bottom - 0.2)
    ends[path.attrib["data-to"]] = (x, y)
    for name, (across, down) in ends.items():
        touching = [place_of(box) for box in boxes_of(parent) if box.attrib["data-name"] == name]
        assert any(
            left <= across <= right and min(abs(down - top), abs(down - bottom)) < 0.2
            for left, top, right, bottom in touching
        )


def lines_of(text: str) -> dict[str, tuple[str, set[str]]]:
    """The operator of each name of a printed graph, and the names that it reads."""
    found = {}
    for line in re.findall(r"^%\d+ = .*$", text, re.MULTILINE):
        name, _, rest = line.partition(" = ")
        found[name] = rest.split()[0], set(re.findall(r" (%\d+)(?=[ \n]|$)", rest))
    return found


def stage_text(tensors: list[metaop.Tensor], stage: str) -> str:
    """What `inspect.passes` prints after a stage."""
    parts = re.split(r"^--- \d+ (\w+): .*\n\n", inspect.passes(*tensors), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2]))
    for one in reversed(STAGES[: STAGES.index(stage) + 1]):
        if texts[one].strip() != "unchanged":
            return texts[one]
    raise AssertionError(stage)


@pytest.mark.parametrize("example", [training, pieces, loop])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_overlaps(example: Callable[[], list[metaop.Tensor]], stage: str) -> None:
    check_geometry(inspect.picture(*example(), stage=stage))


@pytest.mark.parametrize("example", [training, pieces])
@pytest.mark.parametrize("stage", STAGES[: STAGES.index("group")])
def test_graphs_are_complete(example: Callable[[], list[metaop.Tensor]], stage: str) -> None:
    tensors = example()
    expected = lines_of(stage_text(tensors, stage))
    root = drawn(inspect.picture(*tensors, stage=stage))
    assert {box.attrib["data-name"] for box in all_boxes(root)} == set(expected)
    assert edges_of(root) == {(source, name) for name in expected for source in expected[name][1]}
    kinds = {box.attrib["data-name"]: box.attrib["class"].split()[0] for box in all_boxes(root)}
    for name, (operator, _) in expected.items():
        known = operator in ("input", "constant", "index", "reindex", "reduce", "order")
        wanted = operator if known else "elementwise"
        wanted = {"constant": "input", "index": "input", "order": "other"}.get(wanted, wanted)
        assert kinds[name] in (wanted, "again")


@pytest.mark.parametrize("example", [training, pieces])
def test_kernels_are_complete(example: Callable[[], list[metaop.Tensor]]) -> None:
    tensors = example()
    text = stage_text(tensors, "group")
    expected = lines_of(text)
    root = drawn(inspect.picture(*tensors, stage="group"))
    kernels = [box for box in boxes_of(root) if box.attrib["class"] == "kernel"]
    rooted = re.findall(r"^\w+ kernel over .*: (%.*)$", text, re.MULTILINE)
    assert [box.attrib["data-name"] for box in kernels] == [
        f"kernel {k}" for k in range(len(rooted))
    ]
    seen: dict[str, set[str]] = {}
    for box, names in zip(kernels, rooted):
        inner = {one.attrib["data-name"] for one in all_boxes(box)} - {box.attrib["data-name"]}
        results = {
            one.attrib["data-name"] for one in all_boxes(box) if "result" in one.attrib["class"]
        }
        assert results == set(names.split(", "))
        for source, target in edges_of(box):
            seen.setdefault(target, set()).add(source)
        # What is read from memory has a buffer outside, which leads to the kernel.
        read = {
            one.attrib["data-name"] for one in all_boxes(box) if one.attrib["class"] == "buffer"
        }
        assert inner - read <= set(expected)
        if example is training:
            leading = {
                source for source, target in edges_of(root) if target == box.attrib["data-name"]
            }
            assert read == leading
        for name in inner - read:
            assert expected[name][1] == seen.get(name, set())
    computed = {name for name, (operator, _) in expected.items() if operator != "input"}
    assert computed <= {box.attrib["data-name"] for kernel in kernels for box in all_boxes(kernel)}


@pytest.mark.parametrize("example", [training, pieces, loop])
def test_launches_are_those_of_the_text(example: Callable[[], list[metaop.Tensor]]) -> None:
    tensors = example()
    text = inspect.kernels(*tensors)
    root = drawn(inspect.picture(*tensors, stage=STAGES[-1]))
    kernels = [box for box in boxes_of(root) if box.attrib["class"] == "kernel"]
    names = re.findall(r"^kernel (\w+)\(", text, re.MULTILINE)
    assert [title_of(box).split("(")[0] for box in kernels] == [f"kernel {one}" for one in names]
    for box in kernels:
        roles = re.findall(r"b\d+: (?:streamed )?(read|write|update)", title_of(box).split(")")[0])
        name, edges = box.attrib["data-name"], edges_of(root, deep=False)
        assert sum(target == name for _, target in edges) >= roles.count("read")
        written = len(roles) - roles.count("read")
        assert sum(source == name for source, _ in edges) == written
    offsets = re.findall(r" at (\d+)$", text, re.MULTILINE)
    shown = re.findall(r">at (\d+)<", inspect.picture(*tensors, stage=STAGES[-1]).svg)
    assert set(shown) <= set(offsets)


def test_the_step_of_a_loop_lies_inside_of_it() -> None:
    for stage in ("schedule_steps", "lower"):
        root = drawn(inspect.picture(*loop(), stage=stage))
        inside = [box for box in boxes_of(root) if boxes_of(box)]
        assert any(
            "kernel 0" in {one.attrib["data-name"] for one in all_boxes(box)} for box in inside
        )


def test_large_graphs_are_drawn_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_REROLL", "0")

    def chains() -> metaop.Tensor:
        total = x = normal(7)
        for k in range(150):
            total = total + (x * (k + 3)).sin().exp().cos().tanh()
        return total

    y = chains()
    expected = lines_of(inspect.graph(y))
    assert len(expected) > 1000
    short = inspect.picture(y)
    check_geometry(short)
    root = drawn(short)
    names = {box.attrib["data-name"] for box in all_boxes(root)}
    assert len(names) < len(expected) / 3
    titles = [title_of(box) for box in all_boxes(root)]
    told = {one for title in titles for one in re.findall(r"^(%\d+) = ", title, re.MULTILINE)}
    assert told == set(expected)
    whole = inspect.picture(y, limit=len(expected))
    assert {box.attrib["data-name"] for box in all_boxes(drawn(whole))} == set(expected)


def test_kernels_of_large_graphs_are_empty() -> None:
    tensors = training()
    full = drawn(inspect.picture(*tensors, stage="group"))
    short = drawn(inspect.picture(*tensors, stage="group", limit=3))
    assert edges_of(short) < edges_of(full)
    assert not any(boxes_of(box) for box in boxes_of(short))
    assert len(boxes_of(short)) == len(boxes_of(full))
    for stage in ("schedule_steps", "lower"):
        picture = inspect.picture(*loop(), stage=stage, limit=1)
        check_geometry(picture)
        assert not any(boxes_of(box) for box in boxes_of(drawn(picture)))


def test_what_a_rank_runs_between_collectives() -> None:
    ranks = Placement("cpu", range(3), simulate=True)
    x = metaop.ones(9, 6).to_global(ranks, Split(0))
    w = metaop.ones(6, 12).to_global(ranks, Split(1))
    y = (x @ w).exp().sum(0).to_global(sbp=BROADCAST)
    for stage in ("expand", "group", STAGES[-1]):
        picture = inspect.picture(y, stage=stage)
        check_geometry(picture)
        parts = boxes_of(drawn(picture))
        assert len(parts) > 1 and all(boxes_of(part) for part in parts)
        names = [part.attrib["data-name"] for part in parts]
        assert edges_of(drawn(picture), deep=False) == set(pairwise(names))
    kernels = [box for part in parts for box in boxes_of(part) if box.attrib["class"] == "kernel"]
    count = len(re.findall(r"^kernel ", inspect.kernels(y), re.MULTILINE))
    assert len(kernels) == count > 0


def test_kernels_of_users_are_boxes_as_others() -> None:
    @metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
    def doubled(x: metaop.Tensor, y: metaop.Tensor) -> None:
        y[task()] = x[task()] + x[task()]

    y = doubled(metaop.ones(5).exp()) * 3
    for stage in ("expand", "group", "lower"):
        picture = inspect.picture(y, stage=stage)
        check_geometry(picture)
        assert "doubled" in picture.svg
    kinds = {box.attrib["class"] for box in all_boxes(drawn(inspect.picture(y)))}
    assert "other" in kinds


def test_a_random_graph_is_laid_out_without_crossing_boxes() -> None:
    chance = random.Random(0)
    sizes = [(chance.uniform(10, 90), chance.uniform(10, 60)) for _ in range(400)]
    edges = {(chance.randrange(max(0, k - 30), k), k) for k in range(1, 400) for _ in range(2)}
    layout = layered(sizes, sorted(edges), depths(len(sizes), sorted(edges)))
    places = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(layout.corners, sizes)]
    assert min(one[0] for one in places) >= -1e-6
    assert max(one[2] for one in places) <= layout.width + 1e-6
    for (a, b, c, d), (e, f, g, h) in combinations(places, 2):
        assert c <= e or g <= a or d <= f or h <= b
    for (source, target), route in layout.routes.items():
        assert all(first[1] <= second[1] + 1e-6 for first, second in pairwise(route))
        assert route[0][1] == pytest.approx(places[source][3])
        assert route[-1][1] == pytest.approx(places[target][1])


def test_looking_runs_nothing_and_is_stable(tmp_path: Path) -> None:
    first, second = training(), training()
    picture = inspect.picture(*first)
    assert first[0].call.is_pending and picture.svg == inspect.picture(*second).svg
    assert picture._repr_svg_() == picture.svg and "svg=" not in repr(picture)
    assert "prefers-color-scheme:dark" in picture.svg
    picture.save(tmp_path / "graph.svg")
    assert ElementTree.parse(tmp_path / "graph.svg").getroot().tag == f"{TAG}svg"


def test_refused(tmp_path: Path) -> None:
    y = normal(3) * 2
    with pytest.raises(ArgumentError, match="no stage 'fuse'"):
        inspect.picture(y, stage="fuse")
    with pytest.raises(ArgumentError, match="runs no passes"):
        inspect.picture(y, stage="group", backend="reference")
    with pytest.raises(ArgumentError, match="limit must be at least 1"):
        inspect.picture(y, limit=0)
    with pytest.raises(ArgumentError, match="drawn as SVG"):
        inspect.picture(y).save(tmp_path / "graph.png")
    y.detach().numpy()
    with pytest.raises(ArgumentError, match="nothing is pending"):
        inspect.picture(y)


def test_networks_in_a_picture_of_kernels() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    y = net(normal(2, 3, 8, 8))
    check_geometry(inspect.picture(y, stage="group"))
    check_geometry(inspect.picture(y, stage="lower", backend="cuda"))


def test_long_edges_end_at_a_small_box_near_by() -> None:
    x = metaop.ones(3)
    x.numpy()
    first = y = x.exp()
    for _ in range(12):
        y = y.sin()
    z = y * first + y / first
    root = drawn(inspect.picture(z))
    check_geometry(inspect.picture(z))
    again = [box for box in boxes_of(root) if box.attrib["class"] == "again"]
    assert [box.attrib["data-name"] for box in again] == ["%1"] and "exp" in title_of(again[0])
    for path in root.iter(f"{TAG}path"):
        words = [float(word) for word in re.findall(r"-?[\d.]+", path.attrib["d"])]
        assert words[-1] - words[1] < 100
