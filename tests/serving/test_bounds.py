"""Bodies that are too large, too slow or cut off, and more requests than a server holds."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import httpx
import pytest

from metaop.serving.application import Application, Limits
from metaop.serving.server import application, serving
from tests.serving.conftest import Running, body, floats


@pytest.fixture
def small(programs: Path) -> Iterator[tuple[Application, str]]:
    """A server that holds four requests, whose bodies have to come in a tenth of a second."""
    limits = Limits(8, 0.0, 4, 1 << 16, 0.1)
    made = application([str(programs / "mlp.mo")], limits)
    with serving(made) as address:
        yield made, address


def test_more_requests_than_are_held(small: tuple[Application, str]) -> None:
    """Each request has an answer: those that are held the result, the others 429."""
    made, address = small
    release = Event()
    made.scheduler.thread.submit(release.wait)

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=address, timeout=300) as client:
            post = "/v2/models/mlp/infer"
            sent = [
                asyncio.ensure_future(client.post(post, json=body(floats(500, 4))))
                for _ in range(40)
            ]
            done: set[asyncio.Future[httpx.Response]] = set()
            while len(done) < 36:
                done, _ = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)
                done = {one for one in sent if one.done()}
            assert {one.result().status_code for one in done} == {429}
            # The server is alive, and says what it holds.
            assert "metaop_requests_held 4.0" in (await client.get("/metrics")).text
            release.set()
            answers = await asyncio.gather(*sent)
            again = await client.post(post, json=body(floats(2, 4)))
            assert again.status_code == 200
            return answers

    try:
        answers = asyncio.run(run())
    finally:
        release.set()
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == 4 and statuses.count(429) == 36
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["Retry-After"]) > 0
            assert "holds 4 requests" in answer.json()["error"]
        else:
            assert answer.json()["outputs"][0]["shape"] == [500, 3]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_that_are_too_large(running: Running, is_chunked: bool) -> None:
    text = json.dumps(body(floats(4, 4))).encode()

    def parts() -> Iterator[bytes]:
        for start in range(0, len(text), 100):
            yield text[start : start + 100]
        yield b" " * ((1 << 16) - len(text))

    good = parts() if is_chunked else b"".join(parts())
    answer = running.client.post("/v2/models/mlp/infer", content=good)
    assert answer.status_code == 200
    large = iter([b"".join(parts()), b" "]) if is_chunked else b"".join(parts()) + b" "
    answer = running.client.post("/v2/models/mlp/infer", content=large)
    assert answer.status_code == 413 and "65536 bytes" in answer.json()["error"]
    answer = running.client.post("/v2/repository/index", content=b" " * 66000)
    assert answer.status_code == 413


def test_a_body_that_does_not_come(small: tuple[Application, str]) -> None:
    _, address = small
    place = urlsplit(address)
    assert place.hostname and place.port
    head = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), 60) as connection:
        connection.sendall(head + b'{"inputs"')
        with connection.makefile("rb") as answer:
            assert b" 408 " in answer.readline()
            assert b"did not arrive in 0.1 s" in answer.read()


def test_clients_that_go_away(running: Running) -> None:
    """What they held is free again."""
    place = urlsplit(running.address)
    assert place.hostname and place.port
    head = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
    for _ in range(100):
        with socket.create_connection((place.hostname, place.port), 60) as connection:
            connection.sendall(head + b'{"inputs"')
    answer = running.client.post("/v2/models/mlp/infer", json=body(floats(2, 4)))
    while answer.status_code == 429:
        answer = running.client.post("/v2/models/mlp/infer", json=body(floats(2, 4)))
    assert answer.status_code == 200
    while "metaop_requests_held 0.0" not in running.client.get("/metrics").text:
        pass
