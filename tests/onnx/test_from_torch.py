"""Networks that PyTorch exports: the same in metaop, eager and captured."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.onnx
from tests.models.comparison import torch_twin
from tests.onnx.networks import NETWORKS

torch = pytest.importorskip("torch")


def exported(model: Any, inputs: list[Any]) -> bytes:
    """What PyTorch's own exporter writes, with a dynamic batch."""
    file = io.BytesIO()
    names = [f"x{k}" for k in range(len(inputs))]
    with warnings.catch_warnings():
        # That this exporter will be replaced, and what tracing may miss.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, tuple(inputs), file, dynamo=False, opset_version=17, input_names=names,
            dynamic_axes={name: {0: "batch"} for name in names},
        )  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("name", ["mlp", "bert", "lstm", "unet", "whisper"])
def test_exports_of_torch_are_the_same_in_metaop(name: str) -> None:
    file, build, inputs = NETWORKS[name]
    torch.manual_seed(3)
    theirs = build(torch_twin(file)).eval()
    given = [torch.tensor(np.array(x.numpy())) for x in inputs()]
    net = metaop.onnx.load(exported(theirs, given))
    given = [torch.cat([x, x[:1]]) for x in given]
    with torch.no_grad():
        expected = theirs(*given)
    several = isinstance(expected, tuple)
    want = (expected[0] if several else expected).numpy()
    mine = [metaop.tensor(x.numpy()) for x in given]
    with metaop.no_grad(), warnings.catch_warnings():
        # A network that cannot be captured warns.
        warnings.simplefilter("error")
        for run in (net, copy.deepcopy(net), *[metaop.jit(net)] * 4):
            found = run(*mine)
            array = (found[0] if several else found).numpy()
            np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
