"""Counts and times of a server, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from metaop.serving.model import Model

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class Metrics:
    """The counters of one server; several servers may run in a process."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "metaop_requests",
            "Answered inference requests; the model is empty for requests that name none.",
            (*_MODEL, "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "metaop_request_seconds",
            "From the first byte of a request to its response.",
            _MODEL,
            buckets=_SECONDS,
            registry=registry,
        )
        self._waiting = Histogram(
            "metaop_queue_seconds",
            "From reading a request to the start of its computation.",
            _MODEL,
            buckets=_SECONDS,
            registry=registry,
        )
        self._computing = Histogram(
            "metaop_compute_seconds",
            "Computations, of one or several requests.",
            _MODEL,
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Histogram(
            "metaop_batch_rows", "Rows per computation.", _MODEL, buckets=_ROWS, registry=registry
        )
        self.held = Gauge("metaop_requests_held", "Pending inference requests.", registry=registry)

    def answered(self, model: Model | None, status: int, seconds: float) -> None:
        """Records an answer to an inference request."""
        name, version = ("", "") if model is None else (model.name, model.version)
        self._requests.labels(name, version, str(status)).inc()
        if model is not None:
            self._seconds.labels(name, version).observe(seconds)

    def computed(self, model: Model, rows: int, seconds: float, waited: Sequence[float]) -> None:
        """Records a computation, and how long each of its requests had waited."""
        labels = model.name, model.version
        self._rows.labels(*labels).observe(rows)
        self._computing.labels(*labels).observe(seconds)
        for one in waited:
            self._waiting.labels(*labels).observe(one)

    def text(self) -> bytes:
        """All metrics in Prometheus format."""
        return generate_latest(self._registry)
