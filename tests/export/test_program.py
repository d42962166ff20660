"""Programs in files: sizes, structures, gradients and names; compared with the function itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExportError,
    ShapeError,
)
from metaop.export import Dim
from metaop.nn import functional as F

random = np.random.default_rng(2)


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-6, 1e-6)


def perceptron() -> nn.Sequential:
    metaop.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_sizes_of_named_axes_vary(tmp_path: Path) -> None:
    model, x = perceptron(), metaop.rand(5, 4)
    metaop.export(model, x, tmp_path / "m.mo", dynamic={"input": {0: "batch"}})
    program = metaop.load_program(tmp_path / "m.mo")
    assert program.sizes[0].name == "batch" and program.sizes[0].min == 1
    assert list(program.weights) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for count in (5, 2, 1, 33, 7):
        x = metaop.rand(count, 4)
        same(program(x), model(x))
        same(program(input=x), model(x))
    with pytest.raises(ShapeError, match=r"'input' has the shape \[2, 5\]"):
        program(metaop.rand(2, 5))
    with pytest.raises(DTypeError, match="float64"):
        program(metaop.rand(2, 4).double())
    with pytest.raises(ArgumentTypeError, match="needs the argument 'input'"):
        program()
    with pytest.raises(ArgumentTypeError, match="takes the arguments input"):
        program(x, other=x)


def test_further_sizes_compile_nothing(tmp_path: Path) -> None:
    """A program is general like what is recorded: guards and numbers are followed on symbols."""

    def function(x: metaop.Tensor) -> metaop.Tensor:
        halved = F.max_pool1d(x, 2)
        return halved.repeat_interleave(2, 2) + x * x.shape[2] + x.softmax(-1).mean(-1, True)

    axes = [{1: "channels", 2: "length"}]
    program = metaop.export(function, metaop.rand(2, 3, 8), tmp_path / "m.mo", dynamic=axes)
    for shape in ((2, 3, 8), (2, 5, 12), (2, 4, 20), (2, 7, 6)):
        x = metaop.from_numpy(random.random(shape, np.float32))
        with metaop.no_grad():
            found = program(x).numpy()
        np.testing.assert_allclose(found, function(x).numpy(), 1e-5, 1e-6)
    assert re.search(r"^program\n  any sizes where", metaop.inspect.sizes(), re.MULTILINE)


def test_a_fixed_axis_stays_fixed(tmp_path: Path) -> None:
    metaop.export(perceptron(), metaop.rand(5, 4), tmp_path / "m.mo")
    program = metaop.load_program(tmp_path / "m.mo")
    with pytest.raises(ShapeError, match=r"takes \[5, 4\]"):
        program(metaop.rand(6, 4))


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """An image of odd size is halved and doubled again: the parts do not fit together."""

    def halved_and_doubled(x: metaop.Tensor) -> metaop.Tensor:
        halved = F.max_pool2d(x, 2)
        return metaop.cat((x, halved.repeat_interleave(2, 2).repeat_interleave(2, 3)), 1)

    x = metaop.rand(1, 2, 8, 8)
    axes = {"x": {2: "height", 3: "width"}}
    program = metaop.export(halved_and_doubled, x, tmp_path / "m.mo", dynamic=axes)
    for height, width in ((6, 14), (10, 4), (22, 18)):
        x = metaop.rand(1, 2, height, width)
        same(program(x), halved_and_doubled(x))
    with pytest.raises(ShapeError, match="does not hold for height = 7"):
        program(metaop.rand(1, 2, 7, 8))


def test_numbers_that_python_computes_from_sizes_follow_them(tmp_path: Path) -> None:
    def halves(x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        middle = x.shape[0] // 2 + 1
        return x[:middle] * x.shape[0], metaop.arange(x.shape[0]).float() / x.shape[0] ** 0.5

    program = metaop.export(halves, metaop.rand(8), tmp_path / "m.mo", dynamic=[{0: "n"}])
    for count in (8, 5, 11, 32, 6):
        x = metaop.rand(count)
        for found, wanted in zip(program(x), halves(x)):
            same(found, wanted)


def test_branches_by_size_are_refused(tmp_path: Path) -> None:
    def branches(x: metaop.Tensor) -> metaop.Tensor:
        return x * 2 if x.shape[0] > 20 else x.exp()

    with pytest.raises(ExportError, match="something else|own way|differ"):
        metaop.export(branches, metaop.rand(15), tmp_path / "m.mo", dynamic=[{0: "n"}])
    bounded = [{0: Dim("n", max=20)}]
    program = metaop.export(branches, metaop.rand(9), tmp_path / "m.mo", dynamic=bounded)
    same(program(x := metaop.rand(20)), x.exp())
    with pytest.raises(ShapeError, match="from 1 to 20"):
        program(metaop.rand(21))


def test_an_example_of_size_one_stands_for_others(tmp_path: Path) -> None:
    model = perceptron()
    program = metaop.export(model, metaop.rand(1, 4), tmp_path / "m.mo", dynamic=[{0: "batch"}])
    for count in (1, 2, 9):
        same(program(x := metaop.rand(count, 4)), model(x))


def test_size_one_is_left_out_where_it_is_special(tmp_path: Path) -> None:
    def squeezed(x: metaop.Tensor, y: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        return x.squeeze() * 2, y.exp()

    x = metaop.rand(3, 4)
    arguments, axes = (x, metaop.rand(5)), [{0: "a"}, {0: "b"}]
    program = metaop.export(squeezed, arguments, tmp_path / "m.mo", dynamic=axes)
    assert [(size.name, size.min) for size in program.sizes] == [("a", 2), ("b", 1)]
    same(program(metaop.ones(2, 4), metaop.ones(1))[0], metaop.full((2, 4), 2.0))
    with pytest.raises(ShapeError, match="'a' is 1, the program takes sizes from 2"):
        program(metaop.rand(1, 4), metaop.rand(1))
    with pytest.raises(ExportError, match="something else where 'a' is 1"):
        metaop.export(squeezed, (x[:1], x[0]), tmp_path / "m.mo", dynamic=axes)
    with pytest.raises(ExportError, match="something else where 'a' is 1"):
        axes[0] = {0: Dim("a", min=1)}
        metaop.export(squeezed, arguments, tmp_path / "m.mo", dynamic=axes)


def test_multiples(tmp_path: Path) -> None:
    def even_only(x: metaop.Tensor) -> metaop.Tensor:
        assert x.shape[0] % 4 == 0
        return x.cumsum(0)

    with pytest.raises(ExportError, match="multiple"):
        metaop.export(even_only, metaop.rand(8), tmp_path / "m.mo", dynamic=[{0: "n"}])
    axis = Dim("n", min=4, multiple=4)
    program = metaop.export(even_only, metaop.rand(8), tmp_path / "m.mo", dynamic=[{0: axis}])
    same(program(x := metaop.rand(20)), x.cumsum(0))
    with pytest.raises(ShapeError, match="multiples of 4"):
        program(metaop.rand(6))


def test_arguments_and_results_keep_their_structure(tmp_path: Path) -> None:
    def nest(pair: Any, table: Any, flag: bool, *rest: Any, scale: Any) -> Any:
        total = pair[0] + pair[1] + table["x"] + rest[0] * scale[0]
        return {"total": total, "parts": [pair[0], (total > 0, 3, None)], "same": rest[0]}

    a, b = metaop.rand(2, 3), metaop.rand(3)
    arguments = ((a, b), {"x": b}, True, a)
    with pytest.raises(ArgumentTypeError, match="scale"):
        metaop.export(nest, arguments, tmp_path / "m.mo")
    named = {"pair": (a, b), "table": {"x": b}, "flag": True, "scale": [a]}

    def without_rest(pair: Any, table: Any, flag: bool, scale: Any) -> Any:
        return nest(pair, table, flag, a, scale=scale)

    program = metaop.export(without_rest, named, tmp_path / "m.mo")
    assert [one.name for one in program.inputs] == ["pair.0", "pair.1", "table.x", "scale.0"]
    assert program.outputs == ["output.total", "output.parts.0", "output.parts.1.0", "output.same"]
    found, wanted = program(**named), without_rest(**named)
    assert list(found) == list(wanted) and found["parts"][1][1:] == (3, None)
    same(found["total"], wanted["total"])
    same(found["same"], a)
    named["flag"] = False
    with pytest.raises(ArgumentTypeError, match="flag is False, but the program was exported for"):
        program(**named)


def test_gradients_go_through_a_program(tmp_path: Path) -> None:
    model = perceptron()
    program = metaop.export(model, metaop.rand(5, 4), tmp_path / "m.mo", dynamic=[{0: "batch"}])
    x = metaop.rand(6, 4, requires_grad=True)
    program.weights["2.weight"].requires_grad_()
    (program(x) ** 2).sum().backward()
    found, weight = x.grad, program.weights["2.weight"].grad
    x.grad = None
    (model(x) ** 2).sum().backward()
    same(found, x.grad)
    same(weight, model[2].weight.grad)


def test_a_program_keeps_its_weights(tmp_path: Path) -> None:
    model, x = perceptron(), metaop.rand(5, 4)
    wanted = model(x)
    program = metaop.export(model, x, tmp_path / "m.mo")
    with metaop.no_grad():
        model[0].weight.zero_()
    same(program(x), wanted)
    assert sorted(metaop.load(tmp_path / "m.mo")) == sorted(program.weights)
    program.save(tmp_path / "again.mo")
    assert (tmp_path / "again.mo").read_bytes() == (tmp_path / "m.mo").read_bytes()


def test_all_types_and_special_numbers(tmp_path: Path) -> None:
    half = metaop.tensor([1.5, -2.0]).to(metaop.bfloat16)

    def function(x: metaop.Tensor, k: metaop.Tensor, m: metaop.Tensor) -> Any:
        masked = x.masked_fill(m, -float("inf")).softmax(-1)
        padded = F.pad(x, (1, 1), value=float("inf"))
        return masked, padded, (k % 3).to(metaop.int8), x.sort(-1)[1], half * 2, x.double().sqrt()

    x = metaop.rand(3, 4)
    arguments = (x, metaop.arange(5), x > 0.5)
    program = metaop.export(function, arguments, tmp_path / "m.mo")
    for found, wanted in zip(program(*arguments), function(*arguments)):
        assert found.dtype is wanted.dtype
        np.testing.assert_array_equal(found.float().numpy(), wanted.float().numpy())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x.detach()[None],
        lambda x: metaop.ones(2) * 3,
        lambda x: (x.sum(), x),
        lambda x: x[:0].reshape(0, 3).sum(1),
        lambda x: metaop.tensor([1, 2, 3]),
    ],
)
def test_functions_that_hardly_compute(function: Any, tmp_path: Path) -> None:
    x = metaop.rand(4)
    program = metaop.export(function, x, tmp_path / "m.mo")
    found, wanted = program(x), function(x)
    for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, wanted)]):
        assert one.shape == other.shape and one.dtype is other.dtype
        same(one, other)


def test_indices_are_checked_when_a_program_runs(tmp_path: Path) -> None:
    table = nn.Embedding(5, 3)
    program = metaop.export(table, metaop.tensor([1, 4]), tmp_path / "m.mo")
    same(program(metaop.tensor([0, 3])), table(metaop.tensor([0, 3])))
    with pytest.raises(IndexError, match="7"):
        program(metaop.tensor([1, 7])).sum().item()


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"y": {0: "n"}}, "no input is called 'y'"),
        ({"input": {2: "n"}}, "has no axis 2"),
        ({"input": {0: 3}}, "names no axis"),
        ({"input": {0: "a b"}}, "not a valid axis name"),
        ({"input": {0: Dim("n", 6)}}, "may be Dim"),
        ({"input": {0: Dim("n", max=5, min=5)}}, "fewer than two sizes"),
        ("batch", "dynamic is 'batch'"),
    ],
)
def test_wrong_axes_are_refused(dynamic: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        metaop.export(perceptron(), metaop.rand(5, 4), tmp_path / "m.mo", dynamic=dynamic)


def test_a_name_without_the_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"end in \.mo"):
        metaop.export(perceptron(), metaop.rand(5, 4), tmp_path / "m.pth")
    assert not list(tmp_path.iterdir())
