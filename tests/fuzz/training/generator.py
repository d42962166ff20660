"""Random training programs, by seed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.training.catalogue import ENTRIES, JOINS, MODULES
from tests.fuzz.training.compare import truth
from tests.fuzz.training.functions import ACTIVATIONS, KEPT, OTHERS, READS, WRITES
from tests.fuzz.training.loops import (
    BACKWARDS,
    BETWEEN,
    CLIPS,
    LOSSES,
    OPTIMIZERS,
    PREPARATIONS,
    SCHEDULERS,
    TERMS,
)
from tests.fuzz.training.program import Body, Operation, Program, Unfit, text

# Batch sizes, a digit for each step. The second size makes a program for any; smaller ones and
# larger, in captured functions too, are bound to it.
_BATCHES = "222 222 333 111 443 331 232 125 2354 4273".split()
_JIT_BATCHES = "2222 3333 2223332 1111 222333666 5533222777".split()
# The module that models have most of, by the rank of what comes in.
_USUAL = {3: "Conv1d", 4: "Conv2d"}


class Generator:
    """The draws of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def program(self) -> Program:
        """A program that PyTorch runs and that rounding does not decide."""
        while True:
            model = self._model()
            for _ in range(4):
                drawn = self._with_habits(self._with_loop(model))
                # Other numbers may be refused where those of the draw were not.
                with contextlib.suppress(Unfit):
                    if truth(text(drawn), 0) is not None:
                        return drawn

    def _pick(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.random.integers(len(options)))]

    def _chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def _model(self) -> Program:
        """A program whose model is drawn, and nothing else."""
        shape, tokens = self._input()
        written = Body(shape, tokens)
        operations: list[Operation] = []
        length = int(self.random.integers(2, 9))
        while len(operations) < length or not written.modules:
            for one in self._next(written):
                try:
                    written.add(one)
                except Unfit:
                    break
                operations.append(one)
        if self._chance(0.3):
            operations.append(Operation(self._pick(ACTIVATIONS)))
        if self._chance(0.12):  # as programs that log their activations do
            operations = [part for one in operations for part in (one, self._read())]
        return Program(shape, tuple(operations), "mse", OPTIMIZERS[0], tokens=tokens)

    def _with_loop(self, model: Program) -> Program:
        jit = self._chance(0.15)
        return replace(
            model,
            loss=self._pick(LOSSES),
            optimizer=self._pick(OPTIMIZERS),
            batches=tuple(map(int, self._pick(_JIT_BATCHES if jit else _BATCHES))),
            jit=jit,
            flat=self._chance(0.3),
            hold_result=self._chance(0.7),
            hold_kept=self._pick(("no", "last", "last", "all")),
            observe=self._pick(("end", "end", "clones", "reads")),
        )

    def _with_habits(self, program: Program) -> Program:
        """What only some training loops do."""
        loss_reads = [read.replace("x", "loss") for read in ("float(x)", "x.item()", "str(x)")]
        habits: list[tuple[float, dict[str, Any]]] = [
            (0.15, {"accumulate": 2}),
            (0.15, {"auxiliary": True}),
            (0.2, {"input_gradient": not program.tokens}),
            (0.1, {"frozen": True}),
            (0.3, {"set_to_none": False}),
            (0.15, {"read_before": self._pick(READS)}),
            (0.3, {"read_after": self._pick([*loss_reads, *loss_reads, *READS])}),
            (0.12, {"term": self._pick(TERMS.values())}),
            (0.1, {"backward": self._pick(BACKWARDS)}),
            (0.07, {"twice": True}),
            (0.1, {"decay": True}),
            (0.2, {"clip": self._pick(CLIPS)}),
            (0.15, {"scheduler": self._pick(SCHEDULERS)}),
            (0.15, {"evaluate": True}),
            (0.1, {"prepare": self._pick(PREPARATIONS)}),
            (0.2, {"between": self._pick(BETWEEN)}),
        ]
        for probability, changes in habits:
            if self._chance(probability):
                program = replace(program, **changes)
        return program

    def _input(self) -> tuple[tuple[int, ...], int]:
        """The shape of the input without the batch, and how many tokens there are."""
        kind = self._pick(
            ("picture",) * 5 + ("sequence",) * 2 + ("rows",) * 2 + ("tokens", "volume")
        )
        if kind == "picture":
            high, wide = self._pick((1, 1, 2, 3, 4, 5, 7)), self._pick((1, 1, 2, 3, 5, 6, 7))
            return (self._pick((1, 2, 3, 4, 8, 64)), high, wide), 0
        if kind == "sequence":
            return (self._pick((1, 2, 3, 5, 8)), self._pick((1, 2, 4, 6))), 0
        if kind == "volume":
            return (self._pick((1, 2)), *(self._pick((1, 2, 3, 4)) for _ in range(3))), 0
        if kind == "rows":
            return (self._pick((1, 2, 3, 5, 8, 16)),), 0
        return (self._pick((1, 3, 5)),), 7

    def _next(self, written: Body) -> list[Operation]:
        """The next operations of a model."""
        kind = self.random.random()
        if kind < 0.15:
            return [self._with_options(_USUAL.get(written.value.ndim, "Linear"))]
        if kind < 0.45:
            return [self._entry(MODULES, written.value.ndim)]
        if kind < 0.65:
            return [Operation(self._pick(ACTIVATIONS))]
        if kind < 0.77:
            return [self._entry(OTHERS, written.value.ndim)]
        if kind < 0.86:
            return [Operation("keep", text=self._pick(KEPT))]
        if kind < 0.89:
            return [self._read()]
        if kind < 0.91:
            return [Operation("write", text=self._pick(WRITES))]
        if kind < 0.96 and written.value.ndim == 4:
            return self._fire()
        branches = tuple(self._branch(written.value.ndim) for _ in range(2))
        return [Operation("branch", text=self._pick(JOINS), branches=branches)]

    def _read(self) -> Operation:
        return Operation("read", text=self._pick(READS))

    def _entry(self, entries: dict[str, Any], rank: int) -> Operation:
        kind = self._pick([name for name, entry in entries.items() if rank in entry.ranks])
        return self._with_options(kind)

    def _with_options(self, kind: str, **given: Any) -> Operation:
        drawn = {name: self._pick(values) for name, values in ENTRIES[kind].options.items()}
        return Operation(kind, tuple({**drawn, **given}.items()))

    def _branch(self, rank: int) -> tuple[Operation, ...]:
        """A branch that often keeps the shape."""
        steps = []
        for _ in range(int(self.random.integers(0, 3))):
            if self._chance(0.5):
                steps.append(Operation(self._pick(ACTIVATIONS)))
            else:
                steps.append(self._entry(MODULES, rank))
        return tuple(steps)

    def _fire(self) -> list[Operation]:
        """The module of SqueezeNet: 1x1, then 1x1 and padded 3x3 side by side."""
        plain = {"stride": 1, "dilation": 1, "groups": 1, "mode": "zeros", "bias": True}
        one = {**plain, "kernel": 1, "padding": 0}
        three = {**plain, "kernel": 3, "padding": 1}
        relu = Operation("relu")
        return [
            self._with_options("Conv2d", **one),
            relu,
            Operation(
                "branch",
                text="cat",
                branches=(
                    (self._with_options("Conv2d", **one), relu),
                    (self._with_options("Conv2d", **three), relu),
                ),
            ),
        ]
