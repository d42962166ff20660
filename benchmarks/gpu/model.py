"""How long a launch takes on a GPU: the slowest of what it asks for, each at its published rate.

    memory      bytes of buffers that are touched, each once, over the bandwidth; no multiprocessor
                takes more than a slice of the second cache gives
    arithmetic  operations over those of all cores
    products    operations of tensor cores over those of all of them
    issue       instructions of warps over those that schedulers start
    requests    sectors of 32 bytes that warps ask the first cache or shared memory for

Blocks are dealt out evenly, and the multiprocessor with the most work ends last: the tail. So a
launch with fewer blocks than multiprocessors takes as long as one with a block on each. Latencies
are not in it, nor the time of the host, so a step takes longer than is predicted here; nor is what
the second cache keeps from one launch to the next, which makes it shorter.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.gpu.machines import Machine

_WARP = 32
_SECTOR = 32
# Registers are given out to warps in units of so many, shared memory to blocks besides their own.
_REGISTER_UNIT = 256
_RESERVED_SHARED = 1024


class Demand(NamedTuple):
    """What one launch asks for.

    Its `pieces` of work are alike; each of the `blocks` does some, one after another. `threads` and
    `shared` bytes are those of a block, `registers` those of a thread, everything else that of the
    launch: `nbytes` of buffers, `operations` (on float64 if `is_double`), `instructions` of warps,
    `sectors`. `products` is the type of the factors of a contraction, else empty; of its operations
    tensor cores do `tensor_operations`, which may be more, where tiles reach past the result.
    """

    name: str
    pieces: int
    blocks: int
    threads: int
    registers: int
    shared: int
    nbytes: int
    operations: float
    instructions: float
    sectors: float
    products: str = ""
    is_double: bool = False
    tensor_operations: float = 0.0


class Prediction(NamedTuple):
    """The seconds of a launch, and of all its limits; `seconds` has the gap to the next one.

    `occupancy` is the share of threads that a multiprocessor holds at once, `waves` how often the
    blocks that fit at once are started. A launch `fills` the card if every multiprocessor has a
    block. `tensor` are the seconds of a contraction at the rate of tensor cores, whether or not it
    uses them.
    """

    seconds: float
    limits: dict[str, float]
    occupancy: float
    waves: float
    fills: bool
    tensor: float

    @property
    def limit(self) -> str:
        """What takes the time."""
        name = max(self.limits, key=self.limits.__getitem__)
        return "launch" if self.limits[name] < self.seconds / 2 else name


def resident_blocks(demand: Demand, machine: Machine) -> int:
    """How many blocks of a launch a multiprocessor holds at once; 0 if not even one."""
    warps = -(-demand.threads // _WARP)
    of_warp = -(-demand.registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return min(
        machine.blocks,
        machine.threads // (warps * _WARP),
        machine.registers // max(of_warp * warps, 1),
        machine.shared // (demand.shared + _RESERVED_SHARED),
    )


def predict(demand: Demand, machine: Machine) -> Prediction:
    """What a launch takes on a machine; raises ValueError where no block of it fits."""
    resident = resident_blocks(demand, machine)
    if not resident:
        raise ValueError(f"no block of {demand.name} fits a multiprocessor of {machine.name}")
    # The share of the work that the busiest multiprocessor has.
    share = -(-demand.pieces // machine.multiprocessors) / demand.pieces
    cores = machine.double_cores if demand.is_double else machine.cores
    clocks = {
        "arithmetic": max(demand.operations - demand.tensor_operations, 0) / (2 * cores),
        "issue": demand.instructions / machine.schedulers,
        "requests": demand.sectors * _SECTOR / machine.near_bytes,
    }
    limits = {name: share * count / machine.clock for name, count in clocks.items()}
    tensor = machine.tensor.get(demand.products, machine.flops)
    limits["products"] = share * machine.multiprocessors * demand.tensor_operations / tensor
    limits["memory"] = max(
        demand.nbytes / machine.bandwidth,
        share * demand.nbytes / (machine.far_bytes * machine.clock),
    )
    held = resident * -(-demand.threads // _WARP) * _WARP
    products = demand.operations if demand.products else 0
    return Prediction(
        machine.gap + max(limits.values()),
        limits,
        held / machine.threads,
        demand.blocks / (machine.multiprocessors * resident),
        demand.blocks >= machine.multiprocessors,
        products / tensor,
    )
