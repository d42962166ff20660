"""Bodies of inference requests and answers: JSON, followed by tensors as plain bytes.

See the Open Inference Protocol (KServe, version 2) and Triton's extension for binary tensors. A
body is JSON alone, or JSON of as many bytes as the header `Inference-Header-Content-Length` says
followed by the bytes of tensors in the order of the inputs: row-major, little-endian.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from metaop.export.program import Input
from metaop.serving.datatypes import datatype_of
from metaop.serving.refusal import Refusal
from metaop.unified_graph.dtype import DType

HEADER = "Inference-Header-Content-Length"
_KINDS = {"bool": "b", "int": "iu", "float": "iuf"}
_JSON_KINDS = {"bool": "true or false", "int": "integers in its range", "float": "numbers"}


class Wanted(NamedTuple):
    """An output that a request asks for, and whether it is returned as bytes."""

    name: str
    is_binary: bool


class InferenceRequest(NamedTuple):
    """A request that matches a program in names, types and numbers of elements."""

    id: str | None
    inputs: list[np.ndarray]
    outputs: list[Wanted]


def read_request(
    body: bytes, header: str | None, inputs: Sequence[Input], outputs: Sequence[str]
) -> InferenceRequest:
    """The request in a body; `header` is the text of the header `HEADER`.

    `inputs` and `outputs` are those of the program. Raises Refusal (400), which says what is wrong.
    """
    length = len(body) if header is None else _json_length(header, len(body))
    content = _parsed(body[:length])
    identifier = content.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise Refusal(400, "the id of the request is not a string")
    parameters = _parameters(content, "the request", ("binary_data_output",))
    given, end = _tensors(content, inputs, memoryview(body), length)
    if end != len(body):
        raise Refusal(400, f"{len(body) - end} bytes follow the last binary input")
    is_binary = _flag(parameters, "binary_data_output", "the request")
    arrays = []
    for one in inputs:
        if one.name not in given:
            raise Refusal(400, f"the input {one.name!r} is missing; {_listing(inputs)}")
        arrays.append(given[one.name])
    return InferenceRequest(identifier, arrays, _wanted(content, outputs, is_binary))


def _json_length(header: str, total: int) -> int:
    if not (header.isascii() and header.isdigit() and len(header) < 16) or int(header) > total:
        raise Refusal(400, f"{HEADER} is {header[:40]!r}, the body has {total} bytes")
    return int(header)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Refusal(400, "the body is not a JSON object")
    return content


def _parameters(content: Any, owner: str, known: Sequence[str]) -> dict[str, Any]:
    """The parameters of a part of the request. Those without effect are refused."""
    found = content.get("parameters", {})
    if not isinstance(found, dict):
        raise Refusal(400, f"the parameters of {owner} are not a JSON object")
    for name in found:
        if name not in known:
            raise Refusal(
                400, f"{owner} has the parameter {name[:100]!r}; known here: {', '.join(known)}"
            )
    return found


def _flag(parameters: Mapping[str, Any], name: str, owner: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise Refusal(400, f"{name} of {owner} is neither true nor false")
    return value


def _items(content: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    found = content.get(field)
    if not isinstance(found, list):
        raise Refusal(400, f"the request has no list {field!r}")
    names = set()
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise Refusal(400, f"an element of {field!r} has no name")
        if one["name"] in names:
            raise Refusal(400, f"{one['name'][:100]!r} is in {field!r} twice")
        names.add(one["name"])
    return found


# --- inputs -------------------------------------------------------------------------------------


def _tensors(
    content: Mapping[str, Any], inputs: Sequence[Input], body: memoryview, offset: int
) -> tuple[dict[str, np.ndarray], int]:
    """The arrays by name, and where the bytes of the last one end."""
    known = {one.name: one for one in inputs}
    found = {}
    for one in _items(content, "inputs"):
        name = one["name"]
        if name not in known:
            raise Refusal(400, f"there is no input {name[:100]!r}; {_listing(inputs)}")
        dtype = known[name].dtype
        if one.get("datatype") != datatype_of(dtype):
            raise Refusal(
                400,
                f"input {name!r} has the datatype {str(one.get('datatype'))[:40]!r}, the model "
                f"takes {datatype_of(dtype)!r}",
            )
        shape = _shape(one.get("shape"), name)
        parameters = _parameters(one, f"input {name!r}", ("binary_data_size",))
        if "binary_data_size" not in parameters:
            found[name] = _from_json(one.get("data"), shape, dtype, name)
            continue
        if "data" in one:
            raise Refusal(400, f"input {name!r} has both data and binary_data_size")
        size, needed = parameters["binary_data_size"], prod(shape) * dtype.itemsize
        if type(size) is not int or size != needed:
            raise Refusal(
                400,
                f"input {name!r} of the shape {shape} and type {datatype_of(dtype)} has {needed} "
                f"bytes; binary_data_size is {str(size)[:40]}",
            )
        if offset + size > len(body):
            raise Refusal(
                400, f"input {name!r} has {len(body) - offset} bytes in the body, not {size}"
            )
        found[name] = _from_bytes(body[offset : offset + size], shape, dtype, name)
        offset += size
    return found, offset


def _listing(inputs: Sequence[Input]) -> str:
    texts = [f"{one.name} {datatype_of(one.dtype)} {list(one.shape)}" for one in inputs]
    return f"the model takes {', '.join(texts)}"


def _shape(given: Any, name: str) -> list[int]:
    is_legal = isinstance(given, list) and len(given) <= 64
    if not is_legal or any(type(extent) is not int or extent < 0 for extent in given):
        raise Refusal(
            400, f"the shape of input {name!r} is {str(given)[:100]}, not a list of sizes"
        )
    return given


def _from_bytes(data: memoryview, shape: list[int], dtype: DType, name: str) -> np.ndarray:
    if dtype.kind == "bool":
        flags = np.frombuffer(data, np.uint8)
        if flags.size and flags.max() > 1:
            raise Refusal(400, f"input {name!r} has bytes that are neither 0 nor 1")
        return flags.view(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def _from_json(data: Any, shape: list[int], dtype: DType, name: str) -> np.ndarray:
    """The array of a list, flat or nested as its shape says."""
    if not isinstance(data, list):
        raise Refusal(400, f"input {name!r} has neither a list of data nor a binary_data_size")
    try:
        found = np.asarray(data)
    except (ValueError, OverflowError):
        raise Refusal(400, f"the data of input {name!r} are not a regular nested list") from None
    if found.size and found.dtype.kind not in _KINDS[dtype.kind]:
        raise Refusal(
            400,
            f"input {name!r} is {datatype_of(dtype)}: its data have to be "
            f"{_JSON_KINDS[dtype.kind]}",
        )
    if found.size != prod(shape) or (found.ndim > 1 and list(found.shape) != shape):
        raise Refusal(
            400,
            f"input {name!r} has the shape {shape}, {prod(shape)} elements; its data have the "
            f"shape {list(found.shape)}",
        )
    if dtype.kind == "int" and found.size:
        if found.min() < dtype.lowest or found.max() > dtype.highest:
            raise Refusal(400, f"the data of input {name!r} do not fit {datatype_of(dtype)}")
    with np.errstate(over="ignore"):
        made = found.astype(dtype.numpy).reshape(shape)
    if dtype.kind == "float" and found.size:
        is_too_large = np.isinf(made.astype(np.float64)) & np.isfinite(found.reshape(shape))
        if is_too_large.any():
            raise Refusal(400, f"the data of input {name!r} are too large for {datatype_of(dtype)}")
    return made


# --- outputs ------------------------------------------------------------------------------------


def _wanted(content: Mapping[str, Any], outputs: Sequence[str], is_binary: bool) -> list[Wanted]:
    if "outputs" not in content:
        return [Wanted(name, is_binary) for name in outputs]
    found = []
    for one in _items(content, "outputs"):
        name = one["name"]
        if name not in outputs:
            raise Refusal(
                400, f"there is no output {name[:100]!r}; the model gives {', '.join(outputs)}"
            )
        parameters = _parameters(one, f"output {name!r}", ("binary_data",))
        chosen = {"binary_data": is_binary, **parameters}
        found.append(Wanted(name, _flag(chosen, "binary_data", f"output {name!r}")))
    return found


def written_answer(
    model: str,
    version: str,
    identifier: str | None,
    outputs: Mapping[str, tuple[DType, np.ndarray]],
    wanted: Sequence[Wanted],
) -> tuple[bytes, dict[str, str]]:
    """The body of an answer, and its headers."""
    described, parts = [], []
    for name, is_binary in wanted:
        dtype, array = outputs[name]
        one: dict[str, Any] = {"name": name, "datatype": datatype_of(dtype)}
        one["shape"] = list(array.shape)
        if is_binary:
            part = np.ascontiguousarray(array).tobytes()
            one["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        else:
            # 16-bit floats are written as lists of wider numbers.
            is_short = dtype.kind == "float" and dtype.itemsize == 2
            one["data"] = (array.astype(np.float32) if is_short else array).ravel().tolist()
        described.append(one)
    content = {"model_name": model, "model_version": version, "outputs": described}
    if identifier is not None:
        content["id"] = identifier
    text = json.dumps(content).encode()
    if not parts:
        return text, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", HEADER: str(len(text))}
    return b"".join([text, *parts]), headers
