"""Workloads on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import MetaOp


class OnGpu(MetaOp):
    """This repository, with all tensors on the current GPU; `finish` waits for it."""

    def __init__(self, weights: list[dict[str, np.ndarray]]) -> None:
        super().__init__(weights)
        compute = self.finish

        def finish() -> None:
            compute()
            self.library.cuda.synchronize()

        self.finish = finish  # type: ignore[method-assign]

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        """A tensor with a copy of `array` on the GPU."""
        result = super().tensor(array).to("cuda")
        return result.requires_grad_() if requires_grad else result

    def module(self, module: Any) -> Any:
        """The module with the weights that all frameworks share, on the GPU."""
        return super().module(module).to("cuda")

    def numpy(self, value: Any) -> np.ndarray:
        """The values as an array of its own."""
        return np.array(value.detach().numpy(force=True))
