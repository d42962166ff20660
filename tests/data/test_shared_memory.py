"""Tensors in memory that processes share: hogwild training, and everything that writes tensors."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.multiprocessing as mp
from metaop import nn, optim
from metaop.errors import MetaopError

METHODS = ("fork", "spawn")


def train(rank: int, model: nn.Module, optimizer: str) -> None:
    """PyTorch's hogwild example: every process trains the same weights, without a lock."""
    metaop.manual_seed(rank)
    steps = getattr(optim, optimizer)(model.parameters(), lr=0.05)
    for _ in range(60):
        inputs = metaop.randn(16, 4)
        steps.zero_grad()
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        steps.step()


def run(method: str, function: Callable[..., Any], *arguments: Any, processes: int = 1) -> None:
    context: Any = mp.get_context(method)
    started = [
        context.Process(target=function, args=(rank, *arguments)) for rank in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * processes


@pytest.mark.parametrize(("method", "optimizer"), [("fork", "SGD"), ("spawn", "Adam")])
def test_hogwild_processes_train_one_model(method: str, optimizer: str) -> None:
    model = nn.Linear(4, 1)
    model.share_memory()
    assert all(parameter.is_shared() for parameter in model.parameters())
    view = model.weight.detach()[0]
    metaop.manual_seed(9)
    inputs = metaop.randn(64, 4)
    before = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean().item()
    run(method, train, model, optimizer, processes=2)
    after = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean().item()
    assert after < 0.1 * before
    np.testing.assert_array_equal(view.numpy(), model.weight.detach().numpy()[0])


WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(3),
    "fill_": lambda x: x.fill_(7),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(metaop.arange(6.0).reshape(2, 3)),
    "index": lambda x: x.__setitem__((0, slice(1, 3)), 5.0),
    "row": lambda x: x[1].sub_(4),
    "data": lambda x: x.data.add_(2),
    "detach": lambda x: x.detach().mul_(2),
    "transposed": lambda x: x.t().add_(metaop.ones(3, 2)),
    "twice": lambda x: x.add_(1).mul_(2),
    "random": lambda x: (metaop.manual_seed(3), x.normal_()),
    "init": lambda x: nn.init.constant_(x, 0.5),
}


def write(rank: int, tensors: dict[str, Any]) -> None:
    with metaop.no_grad():
        for name, tensor in tensors.items():
            assert tensor.is_shared()
            WRITES[name](tensor)


@pytest.mark.parametrize("method", METHODS)
def test_every_write_of_one_process_is_seen_by_the_other(method: str) -> None:
    start = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    shared = {name: metaop.tensor(start).share_memory_() for name in WRITES}
    run(method, write, shared)
    for name, tensor in shared.items():
        wanted = metaop.tensor(start)
        WRITES[name](wanted)
        np.testing.assert_array_equal(tensor.numpy(), wanted.numpy(), err_msg=name)


def double(rank: int, queue: Any, module: Any) -> None:
    queue.get(timeout=300).mul_(2)
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})
    queue.put("done")


def test_what_goes_through_a_queue_and_load_state_dict_write_the_memory() -> None:
    context: Any = mp.get_context("spawn")
    queue, back = context.Queue(), None
    tensor = metaop.ones(5, dtype=metaop.bfloat16).share_memory_()
    module = nn.BatchNorm1d(2)
    module.share_memory()
    queue.put(tensor)
    process = context.Process(target=double, args=(0, queue, module))
    process.start()
    process.join(120)
    back = queue.get(timeout=300)
    assert process.exitcode == 0 and back == "done"
    assert (tensor == 2).all() and (module.weight == 2).all()
    assert (module.running_mean == 1).all() and module.num_batches_tracked.item() == 1


def test_gradients_and_captured_steps_go_on_working() -> None:
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    model.share_memory()
    memory = [parameter.buffer().address for parameter in model.parameters()]
    x = metaop.randn(5, 3)
    for one in (model, twin):
        steps = optim.SGD(one.parameters(), lr=0.1, momentum=0.9)

        @metaop.jit
        def step(batch: Any, one: Any = one, steps: Any = steps) -> Any:
            loss = (one(batch) ** 2).sum()
            steps.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(one.parameters(), 1.0)
            steps.step()
            return loss

        for _ in range(8):
            step(x)
    for ours, theirs in zip(model.parameters(), twin.parameters()):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    assert memory == [parameter.buffer().address for parameter in model.parameters()]
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in model.parameters())


def test_shared_counters_and_states_of_optimizers_stay_shared() -> None:
    weight = nn.Parameter(metaop.ones(3))
    steps = optim.Adam([weight], lr=0.1)
    weight.sum().backward()
    steps.step()
    for value in steps.state[weight].values():
        value.share_memory_()
    steps.step()
    assert all(value.is_shared() for value in steps.state[weight].values())
    assert steps.state[weight]["step"].item() == 2
    adagrad = optim.Adagrad([weight], lr=0.1)
    adagrad.share_memory()
    assert all(value.is_shared() for value in adagrad.state[weight].values())


def test_what_is_shared_and_what_is_not() -> None:
    tensor = metaop.ones(2, 3)
    peer, row = tensor.detach(), tensor[0]
    assert not tensor.is_shared() and not row.is_shared()
    assert tensor.share_memory_() is tensor and tensor.share_memory_().is_shared()
    assert row.is_shared() and tensor.data.is_shared()
    peer.add_(1)
    assert (tensor == 2).all() and (row == 2).all()
    for copied in (tensor.clone(), tensor + 0, copy.deepcopy(tensor)):
        assert not copied.is_shared()
    again = pickle.loads(pickle.dumps(tensor))
    assert not again.is_shared() and (again == tensor).all()
    assert metaop.ones(0).share_memory_().is_shared()
    assert nn.Parameter(tensor).is_shared()
    tensor.data = metaop.zeros(2, 3)
    assert not tensor.is_shared()


def test_a_view_is_shared_with_its_storage() -> None:
    tensor = metaop.zeros(4)
    tensor[1:].share_memory_()
    assert tensor.is_shared()


def test_tensors_in_one_process_only_are_refused() -> None:
    from metaop.dist.placement import Placement
    from metaop.distributed import distribute_tensor, sbp

    two = Placement("cpu", ranks=[0, 1], simulate=True)
    spread = distribute_tensor(metaop.ones(4), two, sbp.split(0))
    with pytest.raises(MetaopError, match=r"share_memory_ of a global tensor[\s\S]*metaop run"):
        spread.share_memory_()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system shows no descriptors")
def test_memory_goes_with_its_tensor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    tensors = [metaop.ones(1000).share_memory_() for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) >= before + 20
    del tensors
    assert len(os.listdir("/proc/self/fd")) == before
