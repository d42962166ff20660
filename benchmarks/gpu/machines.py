"""What NVIDIA publishes about the GPUs that steps are predicted for.

Sources, by the name of the table's row:

- A100: the white paper "NVIDIA A100 Tensor Core GPU Architecture", datasheet of the A100 80 GB SXM.
- H100: the white paper "NVIDIA H100 Tensor Core GPU Architecture", datasheet of the H100 SXM.
- H200: datasheet of the H200 SXM; everything but the memory is that of the H100.
- Limits of a multiprocessor: "CUDA C++ Programming Guide", technical specifications by compute
  capability; 1 KB of shared memory that each block takes besides: the tuning guides of both.
- The gap between two launches: "Getting Started with CUDA Graphs" (NVIDIA, 2019), where kernels of
  2.9 microseconds follow each other every 3.8. It was measured on a V100.
"""

from __future__ import annotations

from typing import NamedTuple


class Machine(NamedTuple):
    """One GPU; rates are for a clock of one multiprocessor, `clock` and `bandwidth` for a second.

    `cores` and `double_cores` do one multiplication and addition of float32 and float64 in a clock,
    `schedulers` start one instruction of a warp. `tensor` has dense operations of tensor cores in a
    second by the type of the factors; those of float32 are rounded to TF32.
    """

    name: str
    architecture: str
    multiprocessors: int
    clock: float
    cores: int
    double_cores: int
    bandwidth: float
    shared: int
    tensor: dict[str, float]
    schedulers: int = 4
    threads: int = 2048
    blocks: int = 32
    registers: int = 1 << 16
    # Bytes that loads and stores pass through the first cache or shared memory.
    near_bytes: int = 128
    # Bytes from the second cache: what one of its slices gives.
    far_bytes: int = 64
    # Seconds from the end of a kernel to the start of the next one that waits already.
    gap: float = 0.9e-6

    @property
    def flops(self) -> float:
        """Operations of float32 in a second; a multiplication and addition are two."""
        return 2 * self.multiprocessors * self.cores * self.clock


_HOPPER_TENSOR = {"float32": 494.7e12, "float16": 989.4e12, "bfloat16": 989.4e12}
_AMPERE_TENSOR = {"float32": 156e12, "float16": 312e12, "bfloat16": 312e12}
_H100 = Machine(
    "H100", "sm_90", 132, 1.98e9, 128, 64, 3.35e12, 228 << 10, _HOPPER_TENSOR
)  # fmt: skip
MACHINES = {
    machine.name: machine
    for machine in (
        Machine("A100", "sm_80", 108, 1.41e9, 64, 32, 2.039e12, 164 << 10, _AMPERE_TENSOR),
        _H100,
        _H100._replace(name="H200", bandwidth=4.8e12),
    )
}
