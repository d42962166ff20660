"""Normalisations and activations."""

from __future__ import annotations

import numpy as np

from metaop.onnx.exporting.rows.base import ROWS, Operands, Row, row
from metaop.operators import (
    activations,
    normalisation,
)


@row(normalisation.batch_norm_evaluation)
def _batch_norm(o: Operands) -> str:
    w, channels, dtype = o.w, o.type(0).shape[1], o.type(0).dtype
    weight = o.names[1] or w.array(np.ones(channels, dtype.numpy))
    bias = o.names[2] or w.array(np.zeros(channels, dtype.numpy))
    return w.node(
        "BatchNormalization", o.name(0), weight, bias, o.name(3), o.name(4),
        epsilon=float(o.attributes[0]),
    )  # fmt: skip


@row(normalisation.layer_norm)
def _layer_norm(o: Operands) -> str:
    shape, eps = o.attributes
    weight = o.names[1] or o.w.array(np.ones(shape, o.type(0).dtype.numpy), "ones")
    return o.w.node(
        "LayerNormalization", o.name(0), weight, o.names[2], axis=-len(shape), epsilon=float(eps)
    )


@row(normalisation.group_norm)
def _group_norm(o: Operands) -> str:
    groups, eps = o.attributes
    w, shape, dtype = o.w, o.type(0).shape, o.type(0).dtype
    rows = w.node("Reshape", o.name(0), w.integers([0, groups, -1]))
    ones, zeros = w.array(np.ones(groups, dtype.numpy)), w.array(np.zeros(groups, dtype.numpy))
    name = w.node("InstanceNormalization", rows, ones, zeros, epsilon=float(eps))
    name = w.node("Reshape", name, w.node("Shape", o.name(0)))
    for operator, operand in (("Mul", o.names[1]), ("Add", o.names[2])):
        if operand is not None:
            each = w.reshape(operand, [shape[1], *[1] * (len(shape) - 2)])
            name = w.node(operator, name, each)
    return name


@row(activations.softmax)
def _softmax(o: Operands) -> str:
    return _along(o, "Softmax")


@row(activations.log_softmax)
def _log_softmax(o: Operands) -> str:
    return _along(o, "LogSoftmax")


def _along(o: Operands, operator: str) -> str:
    name = o.w.cast(o.name(0), o.type(0).dtype, o.results[0].dtype)
    return o.w.node(operator, name, axis=o.attributes[0])


def _activation(operator: str, *keys: str) -> Row:
    def write(o: Operands) -> str:
        attributes = dict(zip(keys, map(float, o.attributes)))
        return o.w.node(operator, o.name(0), **attributes)

    return write


ROWS[activations.leaky_relu] = _activation("LeakyRelu", "alpha")
ROWS[activations.elu] = _activation("Elu", "alpha")
ROWS[activations.celu] = _activation("Celu", "alpha")
ROWS[activations.selu] = _activation("Selu")
ROWS[activations.softsign] = _activation("Softsign")
ROWS[activations.hardswish] = _activation("HardSwish")


@row(activations.hardsigmoid)
def _hardsigmoid(o: Operands) -> str:
    return o.w.node("HardSigmoid", o.name(0), alpha=1 / 6, beta=0.5)


@row(activations.hardtanh)
def _hardtanh(o: Operands) -> str:
    low, high = (o.w.number(one, o.type(0).dtype) for one in o.attributes)
    return o.w.node("Clip", o.name(0), low, high)


@row(activations.silu)
def _silu(o: Operands) -> str:
    return o.w.node("Mul", o.name(0), o.w.node("Sigmoid", o.name(0)))


@row(activations.gelu)
def _gelu(o: Operands) -> str | None:
    if o.w.version < 20:
        return None
    return o.w.node("Gelu", o.name(0), approximate=o.attributes[0])
