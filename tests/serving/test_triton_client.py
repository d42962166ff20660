"""A published client of the protocol works with the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import metaop
from metaop.serving.server import application, serving
from tests.serving.conftest import Running, floats, perceptron


@pytest.fixture
def client(running: Running) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(running.address.removeprefix("http://"), concurrency=4)
    yield made
    made.close()


def tensor(name: str, array: np.ndarray, datatype: str, is_binary: bool) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=is_binary)
    return made


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("none") and not client.is_model_ready("mlp", "2")
    assert client.get_server_metadata()["name"] == "metaop"
    assert client.get_model_metadata("mlp")["inputs"][0]["shape"] == [-1, 4]
    assert client.get_model_config("mlp")["input"][0]["data_type"] == "TYPE_FP32"
    states = client.get_model_repository_index()
    assert [(one["name"], one["state"]) for one in states] == [
        ("mlp", "READY"), ("mean", "READY"), ("table", "READY"),
    ]  # fmt: skip


@pytest.mark.parametrize("is_sent_binary", [False, True])
@pytest.mark.parametrize("is_binary", [False, True])
def test_inference(
    client: triton.InferenceServerClient, is_sent_binary: bool, is_binary: bool
) -> None:
    x = floats(3, 4)
    wanted = perceptron()(metaop.from_numpy(x)).detach().numpy()
    outputs = [triton.InferRequestedOutput("output", binary_data=is_binary)]
    sent = [tensor("input", x, "FP32", is_sent_binary)]
    for chosen in (outputs, None):
        answer = client.infer("mlp", sent, outputs=chosen, request_id="a")
        np.testing.assert_allclose(answer.as_numpy("output"), wanted, 1e-5, 1e-6)
        assert answer.get_response()["id"] == "a"


def test_two_inputs_one_of_them_in_bytes(client: triton.InferenceServerClient) -> None:
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    at = np.array([5, 0, 3])
    for is_binary in (False, True):
        sent = [tensor("at", at, "INT64", True), tensor("table", table, "FP32", is_binary)]
        answer = client.infer("table", sent)
        np.testing.assert_array_equal(answer.as_numpy("output.rows"), table[at] * 2)
        np.testing.assert_array_equal(answer.as_numpy("output.places"), at + 1)


def test_many_at_once(client: triton.InferenceServerClient) -> None:
    arrays = [floats(1 + k % 3, 4) for k in range(24)]
    sent = [client.async_infer("mlp", [tensor("input", x, "FP32", True)]) for x in arrays]
    module = perceptron()
    for x, one in zip(arrays, sent):
        wanted = module(metaop.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(one.get_result().as_numpy("output"), wanted, 1e-5, 1e-6)


def test_errors_reach_the_client(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"the program takes \['batch', 4\]"):
        client.infer("mlp", [tensor("input", floats(3, 5), "FP32", True)])
    with pytest.raises(InferenceServerException, match="takes 'FP32'"):
        client.infer("mlp", [tensor("input", np.zeros((1, 4)), "FP64", True)])
    with pytest.raises(InferenceServerException, match="'sequence_id'"):
        client.infer("mlp", [tensor("input", floats(1, 4), "FP32", True)], sequence_id=3)
    with pytest.raises(InferenceServerException, match="allow-control"):
        client.unload_model("mlp")


def test_loading_and_unloading(programs: Path) -> None:
    made = application([str(programs / "mlp.mo")], allow_control=True)
    with serving(made) as address:
        client = triton.InferenceServerClient(address.removeprefix("http://"))
        client.unload_model("mlp")
        assert not client.is_model_ready("mlp")
        with pytest.raises(InferenceServerException, match="'mlp' is not loaded"):
            client.infer("mlp", [tensor("input", floats(1, 4), "FP32", True)])
        with pytest.raises(InferenceServerException, match="no model 'mlp' is loaded"):
            client.unload_model("mlp")
        with pytest.raises(InferenceServerException, match="no model 'mean' to load"):
            client.load_model("mean")
        with pytest.raises(InferenceServerException, match="takes no parameters"):
            client.load_model("mlp", config="{}")
        client.load_model("mlp")
        assert client.is_model_ready("mlp")
        client.close()
