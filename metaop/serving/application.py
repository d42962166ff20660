"""The endpoints of the Open Inference Protocol (KServe, version 2), and a few others."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from metaop.serving.body import BodyReader
from metaop.serving.decoder import Decoder
from metaop.serving.generation import Generation, event, read_text
from metaop.serving.metrics import Metrics
from metaop.serving.model import Model
from metaop.serving.openapi import description
from metaop.serving.protocol import HEADER, InferenceRequest, read_request, written_answer
from metaop.serving.refusal import Refusal, refusal_of
from metaop.serving.repository import Repository
from metaop.serving.scheduler import Scheduler
from metaop.version import __version__

_EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository"]
# Larger bodies are read off the event loop, which meanwhile answers other requests.
_LARGE = 1 << 16
_log = logging.getLogger("metaop.serving")


class Limits(NamedTuple):
    """The limits of a server.

    They are: rows computed together, seconds that a request waits for others, requests held at
    once, bytes of a body, and seconds until it has arrived.
    """

    most_rows: int = 32
    delay: float = 0.002
    most_held: int = 256
    most_bytes: int = 64 << 20
    body_seconds: float = 60.0


DEFAULTS = Limits()


class Application:
    """Answers all requests. `app` is the ASGI application.

    With `allow_control` clients may load and unload the models that the server has files for.
    """

    def __init__(
        self, repository: Repository, limits: Limits = DEFAULTS, allow_control: bool = False
    ) -> None:
        self.repository, self._limits, self._allow_control = repository, limits, allow_control
        self.metrics = Metrics()
        self.scheduler = Scheduler(limits.most_rows, limits.delay, self.metrics)
        self._bodies = BodyReader(limits.most_bytes, limits.body_seconds)
        self._held, self._is_ready = 0, False
        self._generations: dict[Model, Generation] = {}
        self.app = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={
                Refusal: _refused,
                HTTPException: _refused,
                Exception: _refused,
            },
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.scheduler.start()
        self._is_ready = True
        yield
        self._is_ready = False
        await self.scheduler.close()

    def _routes(self) -> list[Route]:
        found = [
            Route("/v2", self._server, methods=["GET"]),
            Route("/v2/health/live", self._live, methods=["GET"]),
            Route("/v2/health/ready", self._ready, methods=["GET"]),
            Route("/v2/repository/index", self._index, methods=["POST"]),
            Route("/v2/repository/models/{name}/load", self._load, methods=["POST"]),
            Route("/v2/repository/models/{name}/unload", self._unload, methods=["POST"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
        ]
        for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            found += [
                Route(path, self._model, methods=["GET"]),
                Route(path + "/ready", self._model_ready, methods=["GET"]),
                Route(path + "/config", self._configuration, methods=["GET"]),
                Route(path + "/infer", self._infer, methods=["POST"]),
                Route(path + "/generate_stream", self._generate, methods=["POST"]),
            ]
        return found

    # --- metadata -------------------------------------------------------------------------------

    async def _server(self, request: Request) -> Response:
        return JSONResponse({"name": "metaop", "version": __version__, "extensions": _EXTENSIONS})

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, request: Request) -> Response:
        return JSONResponse({"ready": self._is_ready}, 200 if self._is_ready else 503)

    async def _metrics(self, request: Request) -> Response:
        text = self.metrics.text()
        return Response(text, headers={"Content-Type": self.metrics.content_type})

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description())

    async def _model(self, request: Request) -> Response:
        model = self._named(request)
        return JSONResponse(
            {
                "name": model.name,
                "versions": self.repository.versions(model.name),
                "platform": "metaop",
                **model.metadata(),
            }
        )

    async def _model_ready(self, request: Request) -> Response:
        model = self._named(request)
        return JSONResponse({"name": model.name, "ready": True})

    async def _configuration(self, request: Request) -> Response:
        model = self._named(request)
        described = {
            part: [
                {
                    "name": one["name"],
                    "data_type": f"TYPE_{one['datatype']}",
                    "dims": one["shape"],
                }
                for one in tensors
            ]
            for part, tensors in zip(("input", "output"), model.metadata().values())
        }
        configuration: dict[str, Any] = {
            "name": model.name,
            "platform": "metaop",
            # Shapes have all axes, even if requests are joined.
            "max_batch_size": 0,
            **described,
        }
        if model.counted is not None:
            microseconds = round(self._limits.delay * 1e6)
            configuration["dynamic_batching"] = {"max_queue_delay_microseconds": microseconds}
        return JSONResponse(configuration)

    def _named(self, request: Request) -> Model:
        return self.repository.get(request.path_params["name"], request.path_params.get("version"))

    # --- the repository -------------------------------------------------------------------------

    async def _index(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        states = await run_in_threadpool(self.repository.index)
        if _object(body).get("ready", False):
            states = [one for one in states if one.state == "READY"]
        return JSONResponse([one._asdict() for one in states])

    async def _load(self, request: Request) -> Response:
        return await self._controlled(request, self.repository.load)

    async def _unload(self, request: Request) -> Response:
        return await self._controlled(request, self.repository.unload)

    async def _controlled(self, request: Request, change: Callable[[str], None]) -> Response:
        if not self._allow_control:
            raise Refusal(403, "this server was started without --allow-control")
        parameters = _object(await self._bodies.read(request)).get("parameters", {})
        # The official clients always send this one.
        if not isinstance(parameters, dict) or set(parameters) - {"unload_dependents"}:
            raise Refusal(400, "this request takes no parameters: the server defines its models")
        await self.scheduler.call(change, request.path_params["name"])
        return JSONResponse({})

    # --- inference ------------------------------------------------------------------------------

    async def _infer(self, request: Request) -> Response:
        return await self._holding(request, self._answer)

    async def _generate(self, request: Request) -> Response:
        return await self._holding(request, self._stream)

    async def _holding(
        self, request: Request, answer: Callable[[Request, Model], Awaitable[Response]]
    ) -> Response:
        """Holds a request until its answer is ready, answers it, and counts it."""
        start, model = time.perf_counter(), None
        if self._held >= self._limits.most_held:
            await self._bodies.discard(request)
            self.metrics.answered(None, 429, time.perf_counter() - start)
            raise self._overloaded()
        self._hold(1)
        status = 500
        try:
            model = await self._chosen(request)
            response = await answer(request, model)
            status = response.status_code
            if isinstance(response, StreamingResponse):
                response.body_iterator = self._held_while(response.body_iterator)
            return response
        except ClientDisconnect:
            status = 499
            return Response(status_code=status)  # the client has disconnected
        except Exception as error:
            response = _refused(request, error)
            status = response.status_code
            return response
        finally:
            self._hold(-1)
            self.metrics.answered(model, status, time.perf_counter() - start)

    def _hold(self, count: int) -> None:
        self._held += count
        self.metrics.held.set(self._held)

    async def _held_while(self, parts: Any) -> AsyncIterator[Any]:
        """Yields the parts of a stream, whose request is held until its last one."""
        self._hold(1)
        try:
            async for part in parts:
                yield part
        finally:
            await parts.aclose()
            self._hold(-1)

    async def _chosen(self, request: Request) -> Model:
        try:
            return self._named(request)
        except Refusal:
            await self._bodies.discard(request)
            raise

    async def _stream(self, request: Request, model: Model) -> Response:
        body = await self._bodies.read(request)
        generation = self._generations.get(model)
        if generation is None:
            generation = Generation(
                Decoder(model),
                self.scheduler,
                self._limits.most_rows,
                lambda: self._generations.pop(model, None),
            )
        text = read_text(_object(body), generation.decoder)

        async def events() -> AsyncIterator[bytes]:
            described = {"model_name": model.name, "model_version": model.version}
            # Only now is it certain that the client is reading.
            tokens = self._generations.setdefault(model, generation).tokens(text)
            try:
                async for token in tokens:
                    yield event({**described, "token": token})
            except Exception as error:
                yield event({"error": _told(request, error).message})
            finally:
                await tokens.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _answer(self, request: Request, model: Model) -> Response:
        body = await self._bodies.read(request)

        def read() -> InferenceRequest:
            return read_request(
                body, request.headers.get(HEADER), model.inputs, model.program.outputs
            )

        is_large = len(body) > _LARGE
        parsed = await run_in_threadpool(read) if is_large else read()
        results = await self.scheduler.submit(model, parsed.inputs)
        outputs = {name: (dtype, array) for (name, dtype, _), array in zip(model.outputs, results)}

        def write() -> tuple[bytes, dict[str, str]]:
            return written_answer(model.name, model.version, parsed.id, outputs, parsed.outputs)

        is_large = sum(array.nbytes for array in results) > _LARGE
        content, headers = await run_in_threadpool(write) if is_large else write()
        return Response(content, headers=headers)

    def _overloaded(self) -> Refusal:
        return Refusal(
            429,
            f"the server holds {self._held} requests, its limit: try again",
            {"Retry-After": "1"},
        )


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body that may be empty."""
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Refusal(400, "the body is not a JSON object")
    return content


def _told(request: Request, error: Exception) -> Refusal:
    """The error that a client sees; errors that the client did not cause are logged."""
    if isinstance(error, HTTPException):
        text = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return Refusal(error.status_code, text, error.headers or {})
    refusal = refusal_of(error)
    if refusal is None:
        _log.error("%s failed", request.url.path, exc_info=error)
        refusal = Refusal(500, "the server failed; see its log")
    return refusal


def _refused(request: Request, error: Exception) -> Response:
    """The answer to any error."""
    refusal = _told(request, error)
    return JSONResponse({"error": refusal.message}, refusal.status, dict(refusal.headers))
