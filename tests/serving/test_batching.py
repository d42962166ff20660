"""Requests that are computed together: whose results are whose, who waits, who is to blame."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

import metaop
from metaop.serving.application import Limits
from metaop.serving.metrics import Metrics
from metaop.serving.model import Model
from metaop.serving.scheduler import Scheduler
from metaop.serving.server import application, serving
from tests.serving.conftest import Running, against_mean, body, floats, perceptron

random = np.random.default_rng(5)
TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)


def places(values: Sequence[int], table: np.ndarray = TABLE) -> Any:
    content: Any = body(table, "table")
    at = {"name": "at", "shape": [len(values)], "datatype": "INT64", "data": list(values)}
    content["inputs"].append(at)
    return content


def metric(text: str, name: str, model: str) -> float:
    match = re.search(rf'^{name}{{model="{model}",version="1"}} (\S+)$', text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def post_all(address: str, requests: Sequence[tuple[str, Any]]) -> list[httpx.Response]:
    """The answers to requests that are sent at once."""

    async def run() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
            sent = [client.post(f"/v2/models/{name}/infer", json=one) for name, one in requests]
            return await asyncio.gather(*sent)

    return asyncio.run(run())


def test_results_are_never_mixed_up(running: Running) -> None:
    """Three models, requests of 1 to 10 rows, of which some have other tables or are wrong."""
    module = perceptron()
    requests: list[tuple[str, Any]] = []
    wanted: list[np.ndarray | None] = []
    for number in range(150):
        kind, rows = number % 5, int(random.integers(1, 11))
        x = floats(rows, 4)
        if kind < 2:
            requests.append(("mlp", body(x, id=str(number))))
            wanted.append(module(metaop.from_numpy(x)).detach().numpy())
        elif kind == 2:
            requests.append(("mean", body(x, "values", id=str(number))))
            wanted.append(against_mean(metaop.from_numpy(x)).numpy())
        else:
            table = TABLE + number % 2
            at = random.integers(0, 6, rows)
            if number % 7 == 0:
                at[-1] = 6
            requests.append(("table", {**places(at.tolist(), table), "id": str(number)}))
            wanted.append(None if at[-1] == 6 else table[at] * 2)
    before = running.client.get("/metrics").text
    # So that many wait when the first ones are computed.
    release = Event()
    running.application.scheduler.thread.submit(release.wait)
    loop = asyncio.new_event_loop()
    try:
        future = loop.run_in_executor(None, post_all, running.address, requests[:60])
        while "metaop_requests_held 60.0" not in running.client.get("/metrics").text:
            pass
        release.set()
        answers = loop.run_until_complete(future)
    finally:
        release.set()
        loop.close()
    for start in range(60, len(requests), 45):
        answers += post_all(running.address, requests[start : start + 45])
    for number, (answer, expected) in enumerate(zip(answers, wanted, strict=True)):
        if expected is None:
            assert answer.status_code == 400, answer.text
            assert "index 6 is out of range" in answer.json()["error"]
            continue
        assert answer.status_code == 200, answer.text
        assert answer.json()["id"] == str(number)
        output = answer.json()["outputs"][0]
        found = np.reshape(output["data"], output["shape"])
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    after = running.client.get("/metrics").text
    for model, is_joined in (("mlp", True), ("mean", False), ("table", True)):
        computed, answered = (
            metric(after, name, model) - metric(before, name, model)
            for name in ("metaop_compute_seconds_count", "metaop_request_seconds_count")
        )
        assert computed < answered if is_joined else computed == answered


class Gathering:
    """A scheduler whose thread is held while requests gather; `runs` are those of each run."""

    def __init__(self, most_rows: int, delay: float, model: Model) -> None:
        self.scheduler, self.model = Scheduler(most_rows, delay, Metrics()), model
        self.runs: list[list[int]] = []
        run = model.run

        def noted(requests: Any) -> Any:
            self.runs.append([len(one[0]) for one in requests])
            return run(requests)

        model.run = noted  # type: ignore[method-assign]

    async def answers(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        release = Event()
        self.scheduler.start()
        held = self.scheduler.thread.submit(release.wait)
        sent = [asyncio.ensure_future(self.scheduler.submit(self.model, [x])) for x in arrays]
        await asyncio.sleep(0)
        release.set()
        held.result()
        found = await asyncio.gather(*sent)
        await self.scheduler.close()
        return found


def test_batches_are_full_and_no_larger(programs: Path) -> None:
    model = Model("mlp", "1", metaop.load_program(programs / "mlp.mo"))
    gathering = Gathering(8, 0.0, model)
    arrays = [floats(rows, 4) for rows in (3, 3, 3, 20, 1, 2, 5)]
    found = asyncio.run(gathering.answers(arrays))
    assert gathering.runs == [[3, 3], [3], [20], [1, 2, 5]]
    for x, (result,) in zip(arrays, found):
        wanted = perceptron()(metaop.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(result, wanted, 1e-5, 1e-6)


def test_numbers_of_rows_that_were_compiled_are_preferred(programs: Path) -> None:
    model = Model("mlp", "1", metaop.load_program(programs / "mlp.mo"))
    model.warm_up(8)
    assert list(model.usual) == [1, 2, 4, 8]
    gathering = Gathering(8, 0.0, model)
    arrays = [floats(rows, 4) for rows in (1,) * 15 + (3, 3, 2, 5, 9)]
    found = asyncio.run(gathering.answers(arrays))
    assert gathering.runs == [[1] * 8, [1] * 4, [1] * 3 + [3], [3, 2], [5], [9]]
    for x, (result,) in zip(arrays, found):
        wanted = perceptron()(metaop.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(result, wanted, 1e-5, 1e-6)


def test_a_full_batch_does_not_wait_and_no_request_waits_for_ever(programs: Path) -> None:
    model = Model("mlp", "1", metaop.load_program(programs / "mlp.mo"))
    full = Gathering(4, 3600.0, model)
    asyncio.run(asyncio.wait_for(full.answers([floats(1, 4) for _ in range(8)]), 60))
    assert full.runs == [[1] * 4, [1] * 4]
    few = Gathering(1000, 0.05, model)
    asyncio.run(asyncio.wait_for(few.answers([floats(1, 4) for _ in range(3)]), 60))
    assert few.runs == [[1] * 3]


def test_rows_stay_within_the_bounds_of_a_program(tmp_path: Path) -> None:
    axes = {"input": {0: metaop.export.Dim("batch", max=6, multiple=2)}}
    metaop.export(perceptron(), metaop.rand(4, 4), tmp_path / "m.mo", dynamic=axes)
    model = Model("m", "1", metaop.load_program(tmp_path / "m.mo"))
    gathering = Gathering(32, 0.0, model)
    found = asyncio.run(gathering.answers([floats(2, 4) for _ in range(5)]))
    assert gathering.runs == [[2, 2, 2], [2, 2]]
    assert [len(one) for (one,) in found] == [2] * 5


def test_only_who_is_to_blame_gets_an_error(programs: Path) -> None:
    model = Model("table", "1", metaop.load_program(programs / "table.mo"))
    requests = [[TABLE, np.array(at)] for at in ([1], [7, 0], [2, 3], [-9])]
    found = model.run(requests)
    assert [isinstance(one, metaop.errors.DimensionError) for one in found] == [0, 1, 0, 1]
    np.testing.assert_array_equal(found[2][0], TABLE[[2, 3]] * 2)  # type: ignore[index]


def test_a_request_keeps_its_body(programs: Path) -> None:
    """A program may write results over its inputs; those of a request are not its own."""
    model = Model("mlp", "1", metaop.load_program(programs / "mlp.mo"))
    x = floats(5, 4)
    copy = x.copy()
    model.run([[x]])
    model.run([[x], [x]])
    np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_a_server_without_joining(programs: Path, delay: float) -> None:
    made = application([str(programs / "mlp.mo")], Limits(most_rows=1, delay=delay))
    x = floats(2, 4)
    with serving(made) as address:
        answers = post_all(address, [("mlp", body(x))] * 5)
    assert [answer.status_code for answer in answers] == [200] * 5
    text = made.metrics.text().decode()
    assert metric(text, "metaop_compute_seconds_count", "mlp") == 5
