"""Streams of tokens: each text is what the decoder would write alone, whoever writes beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import metaop
from metaop.serving.application import Application, Limits
from metaop.serving.decoder import Decoder, Sampling, Text
from metaop.serving.model import Model
from metaop.serving.server import application, serving
from tests.serving.writer import CONTEXT, HEADS, VOCABULARY, WIDTH, Writer

random = np.random.default_rng(2)


def writer() -> Writer:
    metaop.manual_seed(4)
    return Writer().eval()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("writer") / "writer.mo"
    memory = metaop.zeros(3, HEADS, CONTEXT, WIDTH // HEADS)
    example = (metaop.tensor([[1], [2], [3]]), metaop.tensor([0, 3, 1]), memory, memory)
    metaop.export(writer(), example, path, dynamic=[{0: "batch"}] * 4)
    return path


@pytest.fixture(scope="module")
def served(file: Path, programs: Path) -> Iterator[tuple[Application, str]]:
    sources = [str(file), str(programs / "mlp.mo")]
    made = application(sources, Limits(most_rows=2, most_held=16))
    with serving(made) as address:
        yield made, address


def expected(tokens: list[int], count: int, end: int | None = None) -> list[int]:
    """The likeliest tokens, each from all before it at once."""
    module, written = writer(), list(tokens)
    for _ in range(count):
        written.append(int(module.whole(written).argmax()))
        if written[-1] == end:
            break
    return written[len(tokens) :]


async def stream(client: httpx.AsyncClient, content: Any) -> list[int]:
    found = []
    path = "/v2/models/writer/generate_stream"
    async with client.stream("POST", path, json=content) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line:
                one = json.loads(line.removeprefix("data: "))
                assert one["model_name"] == "writer" and one["model_version"] == "1"
                found.append(one["token"])
    return found


def streams(address: str, requests: list[Any]) -> list[list[int]]:
    async def run() -> list[list[int]]:
        async with httpx.AsyncClient(base_url=address, timeout=300) as client:
            return await asyncio.gather(*[stream(client, one) for one in requests])

    return asyncio.run(run())


def test_texts_that_are_written_at_the_same_time(served: tuple[Application, str]) -> None:
    """More texts than rows, of unlike lengths, so that they come and go between steps."""
    requests = []
    for number in range(14):
        tokens = random.integers(0, VOCABULARY, 1 + number % 5).tolist()
        requests.append({"tokens": tokens, "count": 1 + number % 8})
    requests[3]["end"] = expected(requests[3]["tokens"], 8)[1]
    requests[3]["count"] = 8
    found = streams(served[1], requests)
    for one, tokens in zip(requests, found, strict=True):
        assert tokens == expected(one["tokens"], one["count"], one.get("end"))
    assert len(found[3]) <= 2
    assert found == [streams(served[1], [one])[0] for one in requests]


def test_drawn_texts_follow_their_seeds(served: tuple[Application, str]) -> None:
    base = {"tokens": [1, 2], "count": 10, "temperature": 1.5}
    requests = [{**base, "seed": seed} for seed in (1, 2, 1)]
    requests += [{**base, "seed": 3, "top_k": 1}, {**base, "temperature": 0}]
    first, second, third, likeliest, greedy = streams(served[1], requests)
    assert first == third != second
    assert likeliest == greedy == expected([1, 2], 10)


def test_tokens_are_drawn_as_likely_as_they_are() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    for sampling, wanted in (
        (Sampling(1 << 20, 1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(1 << 20, 1.0, 2), [0.625, 0.375, 0, 0]),
        (Sampling(1 << 20, 0.5), np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
    ):
        text = Text([0], sampling)
        drawn = [text.advance(logits) for _ in range(3000)]
        counts = np.bincount(drawn, minlength=4)  # type: ignore[arg-type]
        # Four standard deviations of a share of 3000 are at most 0.037.
        np.testing.assert_allclose(counts / 3000, wanted, atol=0.037)
        assert all(counts[k] == 0 for k in range(4) if wanted[k] == 0)


def test_other_requests_are_answered_meanwhile(served: tuple[Application, str]) -> None:
    """What a stream holds is free when its client has gone."""
    _, address = served
    with httpx.Client(base_url=address, timeout=300) as client:
        path = "/v2/models/writer/generate_stream"
        for _ in range(20):
            with client.stream("POST", path, json={"tokens": [1], "count": 12}) as answer:
                next(answer.iter_lines())
        while "metaop_requests_held 0.0" not in client.get("/metrics").text:
            pass
    assert streams(address, [{"tokens": [5], "count": 3}]) == [expected([5], 3)]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tokens": []}, "non-empty list of integers from 0 to 10"),
        ({"tokens": [11]}, "from 0 to 10"),
        ({"tokens": [-1]}, "from 0 to 10"),
        ({"tokens": [1.0]}, "from 0 to 10"),
        ({"tokens": "text"}, "from 0 to 10"),
        ({"count": 12}, "2 tokens and count = 12 do not fit the context of 12"),
        ({"count": None}, "count = None"),
        ({"count": 0}, "count is not an integer from 1"),
        ({"count": True}, "count is not an integer from 1"),
        ({"temperature": -1}, "temperature is not a number from 0"),
        ({"temperature": "hot"}, "temperature is not a number from 0"),
        ({"top_k": 0}, "top_k is not an integer from 1"),
        ({"seed": -1}, "seed is not an integer from 0"),
        ({"beams": 2}, "unknown field 'beams'"),
    ],
)
def test_requests_that_are_refused(
    served: tuple[Application, str], change: dict[str, Any], text: str
) -> None:
    content = {"tokens": [1, 2], "count": 3, **change}
    answer = httpx.post(f"{served[1]}/v2/models/writer/generate_stream", json=content, timeout=300)
    assert answer.status_code == 400 and text in answer.json()["error"]


def test_other_programs_are_no_decoders(served: tuple[Application, str]) -> None:
    content = {"tokens": [1], "count": 1}
    answer = httpx.post(f"{served[1]}/v2/models/mlp/generate_stream", json=content, timeout=300)
    assert answer.status_code == 400
    assert "'mlp' is not a decoder: it has no tokens (batch, 1) first" in answer.json()["error"]


def test_a_step_that_fails_ends_its_texts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = application([str(file)], Limits(most_rows=1))
    step = Decoder.step

    def failing(decoder: Decoder, texts: Any) -> Any:
        if texts[0].position == 2:
            raise metaop.errors.ArgumentError("something is wrong here")
        return step(decoder, texts)

    monkeypatch.setattr(Decoder, "step", failing)
    with serving(made) as address:
        content = {"tokens": [1], "count": 4}
        url = f"{address}/v2/models/writer/generate_stream"
        lines = httpx.post(url, json=content, timeout=300).text.split("\n\n")[:-1]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert [one.get("token") for one in events[:2]] == expected([1], 2)
    assert events[2:] == [{"error": "something is wrong here"}]


def test_one_row_where_a_program_takes_two(tmp_path: Path) -> None:
    """Rows that nobody asked for are added, and change nothing."""
    memory = metaop.zeros(2, HEADS, CONTEXT, WIDTH // HEADS)
    example = (metaop.tensor([[1], [2]]), metaop.tensor([0, 3]), memory, memory)
    axis = metaop.export.Dim("batch", min=2, multiple=2)
    program = metaop.export(writer(), example, tmp_path / "w.mo", dynamic=[{0: axis}] * 4)
    decoder = Decoder(Model("w", "1", program))
    first, second = Text([3], Sampling(4)), Text([7, 1], Sampling(4))
    found: list[int | None] = []
    for texts in ([first], [first, second], [second], [second]):
        for text, row in zip(texts, decoder.step(texts)):
            found.append(text.advance(row))
    wanted, other = expected([3], 2), expected([7, 1], 2)
    assert found == [wanted[0], wanted[1], None, *other]
