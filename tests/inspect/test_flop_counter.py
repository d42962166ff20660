"""FlopCounterMode counts what PyTorch's counts, forward and backward, by module."""

from __future__ import annotations

from typing import Any

import pytest

import metaop
from metaop.errors import UnsupportedError
from metaop.utils.flop_counter import FlopCounterMode

torch = pytest.importorskip("torch")
Theirs = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode


def network(library: Any) -> Any:
    nn = library.nn

    class Network(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.window = nn.Conv2d(3, 8, 3, padding=1)
            self.down = nn.Conv2d(8, 4, 3, stride=2)
            self.norm = nn.BatchNorm2d(4)
            self.head = nn.Sequential(nn.Linear(49, 12), nn.ReLU(), nn.Linear(12, 1))

        def forward(self, x: Any) -> Any:
            x = self.norm(self.down(self.window(x).relu())).flatten(2)
            return self.head(x) @ library.ones(2, 1, 5)

    return Network()


def counted(library: Any, counter: Any, backward: bool) -> tuple[int, dict[str, int]]:
    model, x = network(library), library.randn(2, 3, 16, 16)
    with counter(display=False) as flops:
        y = model(x)
        if backward:
            y.sum().backward()
    by_module = {name: sum(counts.values()) for name, counts in flops.get_flop_counts().items()}
    return flops.get_total_flops(), by_module


def test_the_forward_counts_as_in_pytorch_by_module() -> None:
    assert counted(metaop, FlopCounterMode, False) == counted(torch, Theirs, False)


def test_gradients_count_as_in_pytorch() -> None:
    ours, theirs = (
        counted(metaop, FlopCounterMode, True),
        counted(torch, Theirs, True),
    )
    assert ours[0] == theirs[0]


def test_attention_counts_both_products() -> None:
    q, k = metaop.randn(2, 3, 5, 4), metaop.randn(2, 3, 7, 4)
    with FlopCounterMode(display=False) as flops:
        metaop.nn.functional.scaled_dot_product_attention(q, k, k)
    assert flops.get_total_flops() == 2 * (2 * 2 * 3 * 5 * 7 * 4)


def test_elementwise_work_and_what_lies_outside_count_as_none() -> None:
    x = metaop.randn(4, 4)
    counter = FlopCounterMode(display=False)
    assert counter.get_total_flops() == 0
    with counter:
        metaop.nn.functional.layer_norm(x * x, (4,)).sum()
    x @ x
    assert counter.get_total_flops() == 0


def test_an_error_inside_leaves_the_counter(capsys: pytest.CaptureFixture[str]) -> None:
    counter = FlopCounterMode(depth=1)
    with pytest.raises(ValueError), counter:
        metaop.ones(2, 3) @ metaop.ones(3, 4)
        raise ValueError
    metaop.ones(2, 3) @ metaop.ones(3, 4)
    assert counter.get_total_flops() == 48
    assert "Global" in capsys.readouterr().out
    with pytest.raises(UnsupportedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={"matmul": len})
