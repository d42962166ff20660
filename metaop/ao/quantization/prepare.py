"""From a float model to one with quantised layers: calibrate or train, then convert."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from metaop import nn
from metaop.ao.nn import qat, quantized
from metaop.ao.quantization.qconfig import (
    QConfig,
    default_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    is_for_training,
)
from metaop.ao.quantization.stubs import DeQuantStub, QuantStub
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.unified_graph.dtype import DType, int8

_OBSERVED = (nn.Linear, nn.Conv1d, nn.Conv2d)
_TRAINED = {
    nn.Linear: qat.Linear,
    nn.Conv1d: qat.Conv1d,
    nn.Conv2d: qat.Conv2d,
    nn.Embedding: qat.Embedding,
}
_STATIC: dict[type, Any] = {
    nn.Linear: quantized.Linear,
    nn.Conv1d: quantized.Conv1d,
    nn.Conv2d: quantized.Conv2d,
    nn.Embedding: quantized.Embedding,
    qat.Linear: quantized.Linear,
    qat.Conv1d: quantized.Conv1d,
    qat.Conv2d: quantized.Conv2d,
    qat.Embedding: quantized.Embedding,
}
_DYNAMIC: dict[type, Any] = {
    nn.Linear: quantized.dynamic.Linear,
    qat.Linear: quantized.dynamic.Linear,
    nn.Embedding: quantized.Embedding,
}


def prepare(model: Module, inplace: bool = False) -> Module:
    """The model with layers that observe their inputs; run it on representative data.

    It covers linear layers, convolutions over one and two dimensions, and embeddings whose own
    `qconfig` is `float_qparams_weight_only_qconfig`. A layer uses its `qconfig`, or that of the
    nearest enclosing module that has one; None keeps it in floats.

    Example:
        model.qconfig = get_default_qconfig()
        observed = prepare(model.eval())
    """
    model = model if inplace else copy.deepcopy(model)
    for module, config in list(_configured(model)):
        if is_for_training(config):
            raise ArgumentError(
                f"prepare: the qconfig of {type(module).__name__} is for training",
                fix="use get_default_qconfig, or prepare_qat",
            )
        module.qconfig = config
        if type(module) in _OBSERVED:
            module.activation_pre_process = config.activation().to(module.weight.device)
            module.register_forward_pre_hook(_observe)
    return _some_take_part(model, "prepare")


def prepare_qat(model: Module, inplace: bool = False) -> Module:
    """The model with layers that round their inputs and weights; train it like any other.

    It covers the same layers as `prepare`; embeddings need `default_embedding_qat_qconfig`.
    With `inplace` the parameters stay the same objects.

    Example:
        model.qconfig = get_default_qat_qconfig()
        trained = prepare_qat(model.train())
    """
    if not model.training:
        raise ArgumentError("prepare_qat is for models in training mode", fix="call model.train()")
    model = model if inplace else copy.deepcopy(model)
    changed = {}
    for module, config in list(_configured(model)):
        if not is_for_training(config):
            raise ArgumentError(
                f"prepare_qat: the qconfig of {type(module).__name__} is not for training",
                fix="use get_default_qat_qconfig, or prepare",
            )
        module.qconfig = config
        changed[module] = qat.trained(module, _TRAINED[type(module)])
    return _some_take_part(_with(model, changed), "prepare_qat")


def convert(
    model: Module, mapping: Mapping[type, Any] | None = None, inplace: bool = False
) -> Module:
    """The model with its prepared or trained layers replaced by quantised ones.

    `mapping` maps the class of a layer to a class with a `from_float`; the default covers the
    layers of `prepare` and `prepare_qat`. `QuantStub` and `DeQuantStub` become `nn.Identity`.
    """
    model = model if inplace else copy.deepcopy(model)
    table = _STATIC if mapping is None else mapping
    changed: dict[Module, Module] = {}
    for module in model.modules():
        made = table.get(type(module))
        if isinstance(module, (QuantStub, DeQuantStub)):
            changed[module] = nn.Identity()
        elif made is not None and module.__dict__.get("qconfig") is not None:
            changed[module] = made.from_float(module)
            changed[module].train(module.training)
    return _with(model, changed)


def quantize(
    model: Module, run: Callable[..., Any], arguments: Iterable[Any] = (), inplace: bool = False
) -> Module:
    """`prepare`, `run(model, *arguments)`, and `convert` of a model with a `qconfig`."""
    model = prepare(model.eval() if inplace else copy.deepcopy(model).eval(), inplace=True)
    run(model, *arguments)
    return convert(model, inplace=True)


def quantize_qat(
    model: Module, run: Callable[..., Any], arguments: Iterable[Any] = (), inplace: bool = False
) -> Module:
    """`prepare_qat`, `run(model, *arguments)`, which trains, and `convert`."""
    model = prepare_qat((model if inplace else copy.deepcopy(model)).train(), inplace=True)
    run(model, *arguments)
    return convert(model.eval(), inplace=True)


def quantize_dynamic(
    model: Module,
    qconfig_spec: Mapping[Any, QConfig | None] | Iterable[Any] | None = None,
    dtype: DType = int8,
    inplace: bool = False,
) -> Module:
    """The model with layers that compute the range of their inputs at each call.

    `qconfig_spec` names types or names of layers (`nn.Linear`, `nn.Embedding`), as a set or as a
    dictionary to configurations; the default is all linear layers. Weights are `dtype`, int8.
    Recurrent layers stay in floats.

    Example:
        quantize_dynamic(model, {nn.Linear})
    """
    if dtype is not int8:
        raise ArgumentError(
            f"quantize_dynamic: weights cannot be {dtype.name}",
            fix="use metaop.int8, or model.to(dtype) for floats of 16 bits",
        )
    if qconfig_spec is None:
        qconfig_spec = {nn.Linear}
    if not isinstance(qconfig_spec, Mapping):
        qconfig_spec = dict.fromkeys(qconfig_spec)
    model = model if inplace else copy.deepcopy(model)
    unused = set(qconfig_spec)
    changed = {}
    for name, module in model.named_modules():
        key = name if name in qconfig_spec else type(module)
        if key not in qconfig_spec:
            continue
        unused.discard(key)
        if type(module) not in _DYNAMIC:
            raise ArgumentError(
                f"quantize_dynamic: {type(module).__name__} has no quantised form",
                fix="name linear layers and embeddings only",
            )
        is_table = isinstance(module, nn.Embedding)
        usual = float_qparams_weight_only_qconfig if is_table else default_dynamic_qconfig
        module.qconfig = qconfig_spec[key] or usual
        changed[module] = _DYNAMIC[type(module)].from_float(module)
        changed[module].train(module.training)
        del module.qconfig
    names = sorted(key for key in unused if isinstance(key, str))
    if names:
        raise ArgumentError(
            f"quantize_dynamic: the model has no layers {names}", fix="use names of named_modules"
        )
    return _with(model, changed)


def _observe(module: Any, arguments: tuple[Any, ...]) -> None:
    module.activation_pre_process(arguments[0])


def _configured(model: Module) -> Iterator[tuple[Any, QConfig]]:
    """The layers to quantise, each with its configuration."""

    def visit(module: Module, around: QConfig | None) -> Iterator[tuple[Any, QConfig]]:
        config = module.__dict__.get("qconfig", around)
        if config is not None and type(module) in _TRAINED:
            is_own = "qconfig" in module.__dict__
            if is_own or not isinstance(module, nn.Embedding):
                yield module, config
            return
        for child in module.children():
            yield from visit(child, config)

    seen = set()
    for module, config in visit(model, None):
        if module not in seen:
            seen.add(module)
            yield module, config


def _some_take_part(model: Module, operator: str) -> Module:
    if not any(hasattr(module, "qconfig") for module in model.modules()):
        raise ArgumentError(
            f"{operator}: no layer of the model has a qconfig",
            fix="set model.qconfig = metaop.ao.quantization.get_default_qconfig()",
        )
    return model


def _with(model: Module, changed: Mapping[Module, Module]) -> Module:
    """The model with some modules replaced; the model itself may be one of them."""
    for module in list(model.modules()):
        if module in changed:
            continue
        for name, child in module._modules.items():
            if child in changed:
                module._modules[name] = changed[child]
    return changed.get(model, model)
