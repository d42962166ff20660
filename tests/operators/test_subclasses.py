"""Classes below Tensor: the program beside this file prints the same with PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import metaop

pytest.importorskip("torch")


def printed(library: str) -> list[str]:
    program = Path(__file__).with_name("subclasses.py")
    command = [sys.executable, str(program), library]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_results_are_of_the_classes_that_pytorch_gives() -> None:
    assert printed("metaop") == printed("torch")


def test_parameters_override_nothing() -> None:
    assert not metaop.overrides.has_torch_function([metaop.nn.Parameter(metaop.ones(1))])
    assert metaop.overrides.is_tensor_like(metaop.ones(1))
    assert not metaop.overrides.is_tensor_like([1.0])


def test_attached_attributes_are_copied_without_the_fields() -> None:
    x = metaop.ones(2)
    x.tag = [1]
    assert x.__dict__.copy() == {"tag": [1]}
    x.__dict__ = {"other": 2}
    assert x.other == 2 and not hasattr(x, "tag") and x.tolist() == [1.0, 1.0]


def test_functions_of_pytorch_refuse_tensors_of_metaop() -> None:
    """PyTorch asks any class that has `__torch_function__`."""
    torch = pytest.importorskip("torch")
    for x in (metaop.ones(2), metaop.nn.Parameter(metaop.ones(2))):
        for call in (torch.relu, torch.nn.functional.relu, torch.ones(2).add):
            with pytest.raises(TypeError):
                call(x)


def test_a_value_of_a_class_is_kept_when_parameters_are_overwritten() -> None:
    """Its only handle is of the class; it is read after the step that overwrites what it read."""
    program = """
import metaop
class Kept(metaop.Tensor): pass
x, nn = metaop.linspace(0, 1, 50)[:, None].as_subclass(Kept), metaop.nn
layers = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = metaop.optim.SGD(layers.parameters(), lr=0.1)
plain = x.as_subclass(metaop.Tensor)
for n in (50, 31, 47):
    before = float(((layers(plain[:n]) - plain[:n] ** 2) ** 2).mean())
    loss = ((layers(x[:n]) - x[:n] ** 2) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert abs(float(loss) - before) < 1e-6, (float(loss), before)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
