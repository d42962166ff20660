"""The text of a few kernels, for reading and as a witness of every change of the printer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaop.codegen.cuda.emit import emit
from metaop.compiler import schedule
from tests.cuda.cases import CASES, inputs_of, machine_of

_NAMES = (
    *("softmax rows", "gathered", "scatter max int8", "parts", "matmul float16"),
    *("a product used twice", "two products"),
)


@pytest.mark.parametrize("name", _NAMES)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    outputs = CASES[name]()
    plan = schedule(inputs_of(outputs), outputs, machine_of(name))
    texts = [emit(launch.nest, launch.nest.name) for launch in plan.launches]
    golden(name.replace(" ", "_") + ".cu", "\n".join(texts))
