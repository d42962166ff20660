"""Attention over long sequences, whose scores would need much more memory than its results."""

from __future__ import annotations

from typing import Any

from benchmarks.frameworks import Framework
from benchmarks.workload import workload

_HEADS, _SIZE = 8, 64


def _register(length: int, causal: bool) -> None:
    # Two products of all pairs of tokens forward, five backward with the scores made again.
    pairs = _HEADS * length * length * _SIZE
    name = f"attention, {_HEADS} heads, {length} tokens{', causal' if causal else ''}"

    @workload("attention", name, flops=2 * 2 * pairs, tolerance=1e-4)
    def forward(f: Framework) -> Any:
        inputs = [f.normal(1, _HEADS, length, _SIZE, seed=seed) for seed in range(3)]
        attend = f.functional.scaled_dot_product_attention
        return lambda: attend(*inputs, is_causal=causal)

    @workload("attention", f"{name}, forward+backward", flops=2 * 7 * pairs, tolerance=1e-4)
    def both(f: Framework) -> Any:
        shape = (1, _HEADS, length, _SIZE)
        inputs = [f.normal(*shape, seed=seed, requires_grad=True) for seed in range(3)]
        given = f.normal(*shape, seed=3)
        attend = f.functional.scaled_dot_product_attention

        def run() -> list[Any]:
            result = attend(*inputs, is_causal=causal)
            return [result, *f.library.autograd.grad(result, inputs, given)]

        return run


for _length in (512, 1024, 2048):
    for _causal in (False, True):
        _register(_length, _causal)
