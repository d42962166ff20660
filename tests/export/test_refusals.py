"""What cannot be exported is refused, with the line that does it, and nothing has changed."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import ExportError, UnsupportedError

kept: list[metaop.Tensor] = []
counter = metaop.zeros(3)
shared = nn.Parameter(metaop.ones(3))


def reads(x: metaop.Tensor) -> metaop.Tensor:
    return x if (x * 2).sum() > 0 else -x  # here


def reads_an_input(x: metaop.Tensor) -> metaop.Tensor:
    return x * float(x[0].detach().numpy())  # here


def reads_through_numpy(x: metaop.Tensor) -> metaop.Tensor:
    return metaop.from_numpy(np.sort(x.numpy()))  # here


def solves(x: metaop.Tensor) -> metaop.Tensor:
    return metaop.linalg.eigvalsh(metaop.outer(x, x))  # here


def draws(x: metaop.Tensor) -> metaop.Tensor:
    return x + metaop.rand(3)  # here


def drops(x: metaop.Tensor) -> metaop.Tensor:
    return metaop.dropout(x, 0.5, True)  # here


def counts(x: metaop.Tensor) -> metaop.Tensor:
    counter.add_(1)  # here
    return x + counter


def writes_a_view(x: metaop.Tensor) -> metaop.Tensor:
    counter[1:].mul_(2)  # here
    return x + counter


def writes_a_detached_parameter(x: metaop.Tensor) -> metaop.Tensor:
    shared.detach().mul_(2)  # here
    return x + shared


def writes_its_input(x: metaop.Tensor) -> metaop.Tensor:
    return x.relu_()  # here


def keeps(x: metaop.Tensor) -> metaop.Tensor:
    kept.append(x * 2)
    return x + 1


def seeds(x: metaop.Tensor) -> metaop.Tensor:
    metaop.manual_seed(3)  # here
    return x + 1


def returns_an_object(x: metaop.Tensor) -> Any:
    return x, {1, 2}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads, "reads a value"),
        (reads_an_input, "reads a value"),
        (reads_through_numpy, "reads a value"),
        (solves, "reads a value"),
        (draws, "cannot draw random numbers"),
        (drops, "cannot draw random numbers"),
        (counts, "add_ writes a tensor of shape"),
        (writes_a_view, "writes a tensor of shape"),
        (writes_a_detached_parameter, "writes a tensor of shape"),
        (writes_its_input, "relu_ writes a tensor of shape"),
        (keeps, "keeps a tensor of shape"),
        (seeds, "seeds a generator"),
        (returns_an_object, "output.1 is a set"),
    ],
)
def test_what_a_file_cannot_hold(
    function: Callable[..., Any], message: str, tmp_path: Path
) -> None:
    kept.clear()
    with pytest.raises(ExportError, match=message) as caught:
        metaop.export(function, metaop.rand(3), tmp_path / "m.mo")
    text = str(caught.value)
    assert "fix: " in text
    lines, first = inspect.getsourcelines(function)
    marked = [first + k for k, line in enumerate(lines) if "# here" in line]
    assert all(f"{Path(__file__).name}:{line} in {function.__name__}" in text for line in marked)
    assert not list(tmp_path.iterdir())
    assert counter.tolist() == [0, 0, 0] and shared.tolist() == [1, 1, 1]


def test_other_threads_may_write_meanwhile(tmp_path: Path) -> None:
    written = metaop.zeros(2)

    def waits(x: metaop.Tensor) -> metaop.Tensor:
        other = threading.Thread(target=lambda: written.add_(1).tolist())
        other.start()
        other.join()
        return x * 2

    program = metaop.export(waits, metaop.rand(3), tmp_path / "m.mo")
    assert written.tolist() == [1, 1] and program(metaop.ones(3)).tolist() == [2, 2, 2]


class Trained(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.layer(x)  # here


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.Dropout(0.5)])
def test_modules_in_training(layer: nn.Module, tmp_path: Path) -> None:
    model, x = Trained(layer), metaop.rand(3, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ExportError, match=r"in forward\n  fix: call eval\(\)"):
        metaop.export(model, x, tmp_path / "m.mo")
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name].numpy())
    program = metaop.export(model.eval(), x, tmp_path / "m.mo")
    np.testing.assert_allclose(program(x).numpy(), model(x).detach().numpy(), 1e-6, 1e-6)


def test_constants_of_the_host_that_follow_sizes(tmp_path: Path) -> None:
    def masked(x: metaop.Tensor) -> metaop.Tensor:
        return x * metaop.from_numpy(np.tri(x.shape[0], dtype=np.float32))  # here

    with pytest.raises(ExportError, match=r"(?s)the host makes.*in masked.*metaop\.arange"):
        metaop.export(masked, metaop.rand(4, 4), tmp_path / "m.mo", dynamic=[["n", "n"]])
    program = metaop.export(masked, metaop.rand(4, 4), tmp_path / "m.mo")
    x = metaop.rand(4, 4)
    np.testing.assert_array_equal(program(x).numpy(), masked(x).numpy())


def test_numbers_that_follow_sizes_in_strange_ways(tmp_path: Path) -> None:
    def scaled(x: metaop.Tensor) -> metaop.Tensor:
        return x * math.sin(x.shape[0])  # here

    def turned(x: metaop.Tensor) -> metaop.Tensor:
        return x.roll(x.shape[0] * 3 % 7 + 2, 0)  # here

    for function in (scaled, turned):
        with pytest.raises(ExportError, match=f"(?s)in {function.__name__}.*fix: "):
            metaop.export(function, metaop.rand(8), tmp_path / "m.mo", dynamic=[{0: "n"}])


def test_constant_results_that_follow_sizes(tmp_path: Path) -> None:
    def counted(x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        return x + 1, metaop.from_numpy(np.zeros(x.shape[0]))

    with pytest.raises(ExportError, match="the host makes is another one"):
        metaop.export(counted, metaop.rand(8), tmp_path / "m.mo", dynamic=[{0: "n"}])


def test_complex_numbers_are_pairs(tmp_path: Path) -> None:
    x = metaop.complex(metaop.rand(3), metaop.rand(3))
    with pytest.raises(UnsupportedError, match="view_as_real"):
        metaop.export(lambda x: x.abs(), x, tmp_path / "m.mo")

    def inside(pairs: metaop.Tensor) -> metaop.Tensor:
        return (metaop.view_as_complex(pairs) * 2j).exp().abs()

    pairs = metaop.view_as_real(x)
    metaop.export(inside, pairs, tmp_path / "m.mo")
    found = metaop.export.load_program(tmp_path / "m.mo")(pairs)
    np.testing.assert_allclose(found.numpy(), inside(pairs).numpy(), rtol=1e-6)


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def doubled(x: Any, y: Any) -> None:
    i = metaop.kernels.task()
    y[i] = x[i] * 2


def test_a_custom_kernel_is_code(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="doubled is a custom kernel"):
        metaop.export(lambda x: doubled(x) + 1, metaop.rand(3), tmp_path / "m.mo")
