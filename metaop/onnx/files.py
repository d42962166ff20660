"""Reads the protocol buffers of a network, and the tensors in them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, numpy_helper

from metaop.errors import CheckpointError, UnsupportedError
from metaop.onnx.values import numpy_type

Source = "str | os.PathLike[str] | bytes | IO[bytes] | ModelProto"

_FIX = "download or export the file again"


def read_model(source: Any) -> tuple[ModelProto, Path | None]:
    """The model in a file or in bytes, or a given model, and the folder for its external data.

    Raises CheckpointError if it contains no model.
    """
    if isinstance(source, ModelProto):
        return source, None
    folder = None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        folder, content, name = path.parent, path.read_bytes(), str(path)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        content, name = bytes(source), "the bytes"
    else:
        content, name = source.read(), getattr(source, "name", "the stream")
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise CheckpointError(f"{name}: not an ONNX model: {error}", fix=_FIX) from None
    if not model.HasField("graph") or not model.opset_import:
        raise CheckpointError(
            f"{name}: not an ONNX model: a graph or the operator set is missing", fix=_FIX
        )
    return model, folder


def check_versions(model: ModelProto) -> dict[str, int]:
    """The version of each operator domain that a model requires.

    Raises UnsupportedError for versions newer than the onnx package supports.
    """
    newest = {"": onnx.defs.onnx_opset_version()}
    versions: dict[str, int] = {}
    for one in model.opset_import:
        domain = normalised(one.domain)
        versions[domain] = one.version
        if one.version > newest.get(domain, one.version):
            raise UnsupportedError(
                f"the network is written for operator set {one.version}, and onnx "
                f"{onnx.__version__} knows {newest[domain]}",
                fix="install a newer onnx, or export for an older operator set",
            )
    return versions


def normalised(domain: str) -> str:
    """The canonical name of an operator domain; ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def read_tensor(proto: TensorProto, folder: Path | None) -> np.ndarray:
    """The values of a tensor in a file, or in a file of external data beside it.

    Raises CheckpointError if the values do not fill the shape, or are outside of `folder`.
    """
    name = proto.name or "a constant"
    if any(extent < 0 for extent in proto.dims):
        raise CheckpointError(f"{name}: illegal shape {list(proto.dims)}", fix=_FIX)
    if proto.data_location == TensorProto.EXTERNAL:
        proto = _with_external_data(proto, folder, name)
    try:
        numpy_type(proto.data_type)
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{name}: damaged tensor: {error}", fix=_FIX) from None
    if array.shape != tuple(proto.dims):
        raise CheckpointError(
            f"{name}: {array.shape} values for the shape {list(proto.dims)}", fix=_FIX
        )
    return array.astype(object) if array.dtype.kind in "US" else array


def _with_external_data(proto: TensorProto, folder: Path | None, name: str) -> TensorProto:
    """The tensor with its bytes from an external data file."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise CheckpointError(
            f"{name}: its values are in another file, {entries.get('location')!r}",
            fix="load the network from the path of its file",
        )
    root = folder.resolve()
    path = (root / entries.get("location", "")).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise CheckpointError(
            f"{name}: external data {entries.get('location')!r} is not a file in the folder of the "
            "network",
            fix="put the data file beside the file of the network",
        )
    bits = _bits(proto.data_type)
    expected = (math.prod(proto.dims) * bits + 7) // 8
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
    except ValueError:
        raise CheckpointError(f"{name}: invalid offset of external data", fix=_FIX) from None
    if offset < 0 or length != expected or offset + length > path.stat().st_size:
        raise CheckpointError(
            f"{name}: {expected} bytes expected at {offset} of {path.name}, which has "
            f"{path.stat().st_size}",
            fix=_FIX,
        )
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(length)
    filled = TensorProto()
    filled.CopyFrom(proto)
    filled.ClearField("external_data")
    filled.ClearField("data_location")
    filled.raw_data = content
    return filled


def _bits(element_type: int) -> int:
    import ml_dtypes

    found = numpy_type(element_type)
    try:
        return int(ml_dtypes.iinfo(found).bits)
    except (ValueError, TypeError):
        return found.itemsize * 8
