"""Gradients for users: `grad`, `backward`, `Function`, `functional`, `gradcheck`."""

from typing import Any as _Any

from metaop.autograd import forward_ad, functional, graph
from metaop.autograd.anomaly import detect_anomaly, set_detect_anomaly
from metaop.autograd.function import Function, once_differentiable
from metaop.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from metaop.autograd.gradients import backward, grad
from metaop.autograd.threads import set_multithreading_enabled
from metaop.autograd.variable import Variable
from metaop.tensor.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def __getattr__(name: str) -> _Any:
    if name == "profiler":
        # PyTorch's older name. The profiler watches optimizers, which stand above this package.
        import metaop

        return metaop.profiler
    raise AttributeError(f"module 'metaop.autograd' has no attribute {name!r}")
