"""Finding the operator whose gradient is NaN."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from metaop.differentiation import tape
from metaop.errors import GradientError, describe_location
from metaop.tensor.core import wrap
from metaop.tensor.gradient_names import gradient_name
from metaop.unified_graph.recording import Call, watched


def _refuse_nan(call: Call, gradients: Sequence[Call | None]) -> None:
    """GradientError when a gradient that `call` passes on has a NaN; computes it to see."""
    for position, gradient in enumerate(gradients):
        if gradient is None or not gradient.type.differentiable:
            continue
        if np.isnan(wrap(gradient).numpy(force=True)).any():
            where = describe_location(call.location)
            raise GradientError(
                f"Function '{gradient_name(call)}' returned nan values in its {position}th output"
                + (f"; it was called at {where}" if where else "")
            )


class set_detect_anomaly:
    """Looks for NaN in every gradient that a backward pass computes, one by one.

    The error (GradientError) names the operator and the source line that called it, which is
    remembered of every call meanwhile. `check_nan=False` only remembers the lines. Slow: gradients
    are computed apart from each other. Also a context manager.

    >>> with metaop.autograd.set_detect_anomaly(False):
    ...     metaop.ones(1)
    tensor([1.])
    """

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        self._previous = watched.locations, list(tape.watchers)
        watched.locations = bool(mode)
        tape.watchers[:] = [_refuse_nan] if mode and check_nan else []

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        watched.locations, tape.watchers[:] = self._previous


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a context manager.

    A NaN in a gradient raises GradientError there. It warns that backward passes are slow inside.

    >>> import warnings
    >>> x = metaop.zeros(1, requires_grad=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     try:
    ...         with metaop.autograd.detect_anomaly():
    ...             (x.sqrt() * 0).sum().backward()
    ...     except metaop.errors.GradientError:
    ...         print("a gradient is NaN")
    a gradient is NaN
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )
