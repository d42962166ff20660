"""metaop as an ONNX backend, for `onnx.backend.test` and tools with that interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

import metaop
from metaop.errors import DeviceError
from metaop.onnx.module import Network
from metaop.onnx.values import to_host


class Prepared(BackendRep):  # type: ignore[misc]
    """A network that takes and returns NumPy arrays, and lists of them."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in order, which can also be accessed by name.

        `inputs` are a list in the order of the file, a dict by name, or one array.
        """
        if kwargs:
            raise metaop.errors.ArgumentError(f"run has no options {sorted(kwargs)}")
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        with metaop.no_grad():
            found = self._network(**inputs) if isinstance(inputs, dict) else self._network(*inputs)
        values = found if isinstance(found, tuple) else (found,)
        names = [port.name for port in self._network.outputs]
        return namedtupledict("Outputs", names)(*(to_host(value) for value in values))


class MetaopBackend(Backend):  # type: ignore[misc]
    """The interface of `onnx.backend.base.Backend`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """A network that can be run repeatedly."""
        if not cls.supports_device(device):
            raise DeviceError(f"this machine has no device {device!r}", fix="use CPU")
        super().prepare(model, device, **kwargs)
        network = Network(model)
        kind = device.partition(":")[0].lower()
        return Prepared(network if kind == "cpu" else network.to(device.lower()))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node, for arrays in the order of its inputs."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        present = [name for name in node.input if name]
        given = zip(present, inputs)
        ports = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), None
            )
            for name, array in given
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", ports, outputs)
        imports = [onnx.helper.make_opsetid(node.domain, version)]
        network = Network(onnx.helper.make_model(graph, opset_imports=imports))
        return Prepared(network).run(list(inputs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether this machine has "CPU", "CUDA" or "CUDA:1"."""
        kind = device.partition(":")[0].upper()
        return kind == "CPU" or (kind == "CUDA" and metaop.cuda.is_available())


prepare = MetaopBackend.prepare
run_model = MetaopBackend.run_model
run_node = MetaopBackend.run_node
supports_device = MetaopBackend.supports_device
is_compatible = MetaopBackend.is_compatible
