"""The Open Inference Protocol over HTTP: answers, and what becomes of bad requests."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import metaop
from metaop.export.program import Input
from metaop.serving.datatypes import NAMES, datatype_of
from metaop.serving.protocol import HEADER, read_request, written_answer
from metaop.serving.refusal import Refusal
from metaop.unified_graph import dtype as dtypes
from tests.serving.conftest import Running, body, floats, perceptron

INPUTS = [Input("x", dtypes.float32, ("batch", 2)), Input("n", dtypes.int8, (2,))]


def test_what_the_server_tells_of_itself(running: Running) -> None:
    get = running.client.get
    assert get("/v2/health/live").json() == {"live": True}
    assert get("/v2/health/ready").json() == {"ready": True}
    about = get("/v2").json()
    assert about["name"] == "metaop" and about["version"] == metaop.__version__
    assert "binary_tensor_data" in about["extensions"]
    assert get("/v2/models/mlp").json() == {
        "name": "mlp",
        "versions": ["1"],
        "platform": "metaop",
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert get("/v2/models/mlp/versions/1").json() == get("/v2/models/mlp").json()
    assert get("/v2/models/mlp/ready").json() == {"name": "mlp", "ready": True}
    table = get("/v2/models/table").json()
    assert [one["datatype"] for one in table["inputs"]] == ["FP32", "INT64"]
    assert [one["datatype"] for one in table["outputs"]] == ["FP32", "INT64"]
    assert "dynamic_batching" in get("/v2/models/mlp/config").json()
    assert "dynamic_batching" not in get("/v2/models/mean/config").json()


def test_requests_in_json(running: Running) -> None:
    x = floats(3, 4)
    wanted = perceptron()(metaop.from_numpy(x)).detach().numpy()
    for path in ("/v2/models/mlp/infer", "/v2/models/mlp/versions/1/infer"):
        flat = body(x, id="seven")
        flat["inputs"][0]["data"] = x.ravel().tolist()  # type: ignore[index]
        for content in (body(x, id="seven"), flat):
            answer = running.client.post(path, json=content)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert found["id"] == "seven" and found["model_name"] == "mlp"
            (output,) = found["outputs"]
            assert output["shape"] == [3, 3] and output["datatype"] == "FP32"
            np.testing.assert_allclose(np.reshape(output["data"], (3, 3)), wanted, 1e-5, 1e-6)


def test_outputs_that_are_asked_for(running: Running) -> None:
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    content: Any = body(table, "table")
    content["inputs"].append({"name": "at", "shape": [2], "datatype": "INT64", "data": [5, 0]})
    content["outputs"] = [{"name": "output.places"}]
    found = running.client.post("/v2/models/table/infer", json=content).json()
    assert found["outputs"] == [
        {"name": "output.places", "datatype": "INT64", "shape": [2], "data": [6, 1]}
    ]


def test_the_description_has_every_address(running: Running) -> None:
    described = running.client.get("/openapi.json").json()
    found = {
        (path, method)
        for path, item in described["paths"].items()
        for method in item
        if method != "parameters"
    }
    routes = running.application.app.routes
    wanted = {(one.path, m.lower()) for one in routes for m in one.methods if m != "HEAD"}  # type: ignore[attr-defined]
    assert found == wanted
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert references == set(described["components"]["schemas"])
    names = [
        operation["operationId"]
        for item in described["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    assert len(set(names)) == len(names) == len(found)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/v3", 404, "/v3"),
        ("POST", "/v2", 405, "Method"),
        ("GET", "/v2/models/none", 404, "'none' is unknown"),
        ("GET", "/v2/models/mlp/versions/2/ready", 404, "no version '2'; loaded are 1"),
        ("POST", "/v2/models/none/infer", 404, "'none' is unknown"),
        ("POST", "/v2/models/..%2fmlp/infer", 404, ""),
        ("POST", "/v2/repository/models/mlp/unload", 403, "--allow-control"),
    ],
)
def test_addresses_that_there_are_not(
    running: Running, method: str, path: str, status: int, text: str
) -> None:
    answer = running.client.request(method, path)
    assert answer.status_code == status and text in answer.json()["error"]


GOOD = {"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "inputs"}, "no input 'inputs'; the model takes input FP32 ['batch', 4]"),
    ({"name": 3}, "has no name"),
    ({"datatype": "INT64"}, "has the datatype 'INT64', the model takes 'FP32'"),
    ({"datatype": "float32"}, "has the datatype 'float32'"),
    ({"datatype": None}, "has the datatype 'None'"),
    ({"shape": [1, 5], "data": [0] * 5}, "shape [1, 5], the program takes ['batch', 4]"),
    ({"shape": [4]}, "shape [4], the program takes ['batch', 4]"),
    ({"shape": [0, 4], "data": []}, "axis 'batch' is 0, the program takes sizes from 1"),
    ({"shape": [-1, 4]}, "not a list of sizes"),
    ({"shape": [1.0, 4]}, "not a list of sizes"),
    ({"shape": [True, 4]}, "not a list of sizes"),
    ({"shape": "1, 4"}, "not a list of sizes"),
    ({"shape": [1] * 65}, "not a list of sizes"),
    ({"shape": [1 << 62, 1 << 62]}, "its data have the shape [4]"),
    ({"shape": [2, 4]}, "8 elements; its data have the shape [4]"),
    ({"data": [[1, 2], [3, 4]]}, "its data have the shape [2, 2]"),
    ({"data": [[1, 2, 3], [4]]}, "not a regular nested list"),
    ({"data": ["1", 2, 3, 4]}, "its data have to be numbers"),
    ({"data": [None, 2, 3, 4]}, "its data have to be numbers"),
    ({"data": [{}, 2, 3, 4]}, "its data have to be numbers"),
    ({"data": [True, False, True, True]}, "its data have to be numbers"),
    ({"data": [1e39, 0, 0, 0]}, "too large for FP32"),
    ({"data": None}, "neither a list of data nor a binary_data_size"),
    ({"parameters": {"binary_data_size": 16}}, "both data and binary_data_size"),
    ({"parameters": {"shared_memory_region": "a"}}, "'shared_memory_region'; known here: binary"),
    ({"parameters": []}, "not a JSON object"),
]


@pytest.mark.parametrize(("change", "text"), BAD, ids=[text for _, text in BAD])
def test_bad_inputs(running: Running, change: dict[str, Any], text: str) -> None:
    answer = running.client.post("/v2/models/mlp/infer", json={"inputs": [{**GOOD, **change}]})
    assert answer.status_code == 400 and text in answer.json()["error"], answer.text


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b'{"inputs": [{"name": "input", "sha', "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 40000, "not JSON"),
    (b"[]", "not a JSON object"),
    (b"{}", "no list 'inputs'"),
    (b'{"inputs": {}}', "no list 'inputs'"),
    (b'{"inputs": []}', "the input 'input' is missing; the model takes input FP32"),
    (json.dumps({"inputs": [GOOD, GOOD]}).encode(), "'input' is in 'inputs' twice"),
    (json.dumps({"inputs": [GOOD], "id": 7}).encode(), "id of the request is not a string"),
    (json.dumps({"inputs": [GOOD], "outputs": [{"name": "x"}]}).encode(), "no output 'x'"),
    (json.dumps({"inputs": [GOOD], "parameters": {"priority": 1}}).encode(), "'priority'"),
    (
        json.dumps({"inputs": [GOOD], "parameters": {"binary_data_output": 1}}).encode(),
        "neither true nor false",
    ),
    (
        json.dumps(
            {
                "inputs": [GOOD],
                "outputs": [{"name": "output", "parameters": {"classification": 3}}],
            }
        ).encode(),
        "'classification'",
    ),
]


@pytest.mark.parametrize(("content", "text"), BAD_BODIES, ids=[text for _, text in BAD_BODIES])
def test_bad_bodies(running: Running, content: bytes, text: str) -> None:
    answer = running.client.post("/v2/models/mlp/infer", content=content)
    assert answer.status_code == 400 and text in answer.json()["error"], answer.text


def binary(size: Any, data: bytes, header: str | None = None, **change: Any) -> Any:
    """A body with one input in bytes, and the text of its header."""
    one = {**GOOD, "parameters": {"binary_data_size": size}, **change}
    del one["data"]
    text = json.dumps({"inputs": [one]}).encode()
    return text + data, str(len(text)) if header is None else header


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((16, b"\0" * 15), "has 15 bytes in the body, not 16"),
        ((16, b""), "has 0 bytes in the body, not 16"),
        ((16, b"\0" * 17), "1 bytes follow the last binary input"),
        ((15, b"\0" * 15), "has 16 bytes; binary_data_size is 15"),
        ((-16, b"\0" * 16), "binary_data_size is -16"),
        ((1 << 70, b"\0" * 16), "binary_data_size is 118059"),
        (("16", b"\0" * 16), "binary_data_size is 16"),
        ((True, b"\0" * 16), "binary_data_size is True"),
        ((16, b"\0" * 16, "99999"), "the body has"),
        ((16, b"\0" * 16, "-1"), "is '-1'"),
        ((16, b"\0" * 16, "abc"), "is 'abc'"),
        ((16, b"\0" * 16, "9" * 50), "the body has"),
        ((16, b"\0" * 16, "20"), "not JSON"),
    ],
)
def test_lengths_that_lie(running: Running, arguments: Any, text: str) -> None:
    content, header = binary(*arguments)
    answer = running.client.post("/v2/models/mlp/infer", content=content, headers={HEADER: header})
    assert answer.status_code == 400 and text in answer.json()["error"], answer.text


def test_a_huge_shape_with_bytes_takes_no_memory(running: Running) -> None:
    content, header = binary(1 << 66, b"", shape=[1 << 62, 4])
    answer = running.client.post("/v2/models/mlp/infer", content=content, headers={HEADER: header})
    assert answer.status_code == 400 and "in the body" in answer.json()["error"]


def test_bodies_are_taken_as_they_are(running: Running) -> None:
    answer = running.client.post(
        "/v2/models/mlp/infer", content=b"x", headers={"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415 and "'gzip'" in answer.json()["error"]


@pytest.mark.parametrize("dtype", NAMES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("is_binary", [False, True])
def test_every_datatype_there_and_back(dtype: dtypes.DType, is_binary: bool) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
    if dtype.kind != "bool":
        array = (array * 3).astype(dtype.numpy)
    outputs = {"y": (dtype, array)}
    written, headers = written_answer(
        "m", "1", None, outputs, read_request(*sent(array, dtype, is_binary)).outputs
    )
    length = int(headers.get(HEADER, len(written)))
    (described,) = json.loads(written[:length])["outputs"]
    assert described["datatype"] == datatype_of(dtype) and described["shape"] == [2, 3]
    if is_binary:
        assert written[length:] == array.tobytes()
        described = {**described, "parameters": {"binary_data_size": array.nbytes}}
    again = json.dumps({"inputs": [{**described, "name": "x"}]}).encode()
    request = read_request(
        again + written[length:], str(len(again)), [Input("x", dtype, (2, 3))], ["y"]
    )
    np.testing.assert_array_equal(request.inputs[0], array)
    assert request.inputs[0].dtype == dtype.numpy


def sent(array: np.ndarray, dtype: dtypes.DType, is_binary: bool) -> Any:
    one = {"name": "x", "shape": [2, 3], "datatype": datatype_of(dtype)}
    one["data"] = array.astype(bool if dtype.kind == "bool" else float).tolist()  # type: ignore
    if dtype.kind == "int":
        one["data"] = array.tolist()
    content = {"inputs": [one], "parameters": {"binary_data_output": is_binary}}
    return json.dumps(content).encode(), None, [Input("x", dtype, (2, 3))], ["y"]


def test_numbers_keep_their_bits_in_json() -> None:
    values = np.array([0.1, -0.0, 1e-45, np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    text, _ = written_answer(
        "m",
        "1",
        None,
        {"y": (dtypes.float32, values)},
        read_request(*sent(np.zeros((2, 3)), dtypes.float32, False)).outputs,
    )
    data = json.loads(text)["outputs"][0]["data"]
    assert np.array(data, np.float32).tobytes() == values.tobytes()
    short = np.array([0.1, 2], ml_dtypes.bfloat16)
    text, _ = written_answer(
        "m",
        "1",
        "",
        {"y": (dtypes.bfloat16, short)},
        read_request(*sent(np.zeros((2, 3)), dtypes.float32, False)).outputs,
    )
    assert np.array(json.loads(text)["outputs"][0]["data"], ml_dtypes.bfloat16).tolist() == (
        short.tolist()
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([128, 0], "do not fit INT8"),
        ([-129, 0], "do not fit INT8"),
        ([1 << 63, 0], "have to be integers in its range"),
        ([1 << 70, 0], "have to be integers"),
        ([1.0, 0], "have to be integers"),
    ],
)
def test_integers_that_do_not_fit(data: list[Any], text: str) -> None:
    content = {
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},
            {"name": "n", "shape": [2], "datatype": "INT8", "data": data},
        ]
    }
    with pytest.raises(Refusal, match=text):
        read_request(json.dumps(content).encode(), None, INPUTS, ["y"])


def test_truth_values_are_bytes_of_0_and_1() -> None:
    one = {
        "name": "x",
        "shape": [2],
        "datatype": "BOOL",
        "parameters": {"binary_data_size": 2},
    }
    text = json.dumps({"inputs": [one]}).encode()
    inputs = [Input("x", dtypes.bool_, (2,))]
    found = read_request(text + b"\1\0", str(len(text)), inputs, [])
    assert found.inputs[0].tolist() == [True, False]
    with pytest.raises(Refusal, match="neither 0 nor 1"):
        read_request(text + b"\2\0", str(len(text)), inputs, [])


SCRAPS: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e400, 1 << 70, "", "FP32", [], {}, [[]], [1], [[1, 2], [3]]),
    *([None], ["a"], [1 << 70], {"binary_data_size": 8}, {"name": "x"}),
]


def changed(value: Any, choose: random.Random) -> Any:
    """A nest in which one value, somewhere, is another one or is gone."""
    if choose.random() < 0.2 or not isinstance(value, (dict, list)) or not value:
        return choose.choice(SCRAPS)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key, copy = choose.choice(keys), value.copy()
    if choose.random() < 0.15:
        del copy[key]
    else:
        copy[key] = changed(value[key], choose)
    return copy


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_changed_is_told(seed: int) -> None:
    """A request that does not fit is refused, never taken for another one and never a fault."""
    choose = random.Random(seed)
    good = {
        "id": "a",
        "parameters": {"binary_data_output": True},
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1.0, 2.0]]},
            {
                "name": "n",
                "shape": [2],
                "datatype": "INT8",
                "parameters": {"binary_data_size": 2},
            },
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    refused = 0
    for _ in range(1500):
        content = good
        for _ in range(choose.randint(1, 3)):
            content = changed(content, choose)
        text = json.dumps(content).encode()
        if choose.random() < 0.2:
            text = text[: choose.randrange(len(text) + 1)]
        header = choose.choice([str(len(text))] * 8 + [str(len(text) + 1), "2", "x", None])
        try:
            found = read_request(text + b"\1\2", header, INPUTS, ["y"])
        except Refusal as refusal:
            assert refusal.status == 400 and len(refusal.message) < 500
            refused += 1
            continue
        x, n = found.inputs
        assert x.dtype == np.float32 and n.dtype == np.int8
        assert n.tobytes() == b"\1\2" or content["inputs"][1]["data"] is not None
    assert refused > 500
