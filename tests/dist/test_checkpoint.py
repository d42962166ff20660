"""Sharded checkpoints: written on one mesh and read on another, by one process, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import metaop
from metaop import nn
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, NdSbp, Split
from metaop.distributed import checkpoint, distribute_tensor
from metaop.errors import CheckpointError
from metaop.serialization.sharded_format import ShardedReader

VALUE = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)
ROW = Placement("cpu", range(3), simulate=True)
MESH = Placement("cpu", [[0, 1], [2, 3]], simulate=True)
S0, S1 = Split(0), Split(1)
LIES: list[tuple[Placement, NdSbp]] = [
    (ROW, (BROADCAST,)),
    (ROW, (S0,)),
    (ROW, (S1,)),
    (ROW, (PARTIAL,)),
    (MESH, (S0, S0)),
    (MESH, (S1, S0)),
    (MESH, (BROADCAST, S1)),
]


def put(value: np.ndarray, lie: tuple[Placement, NdSbp]) -> metaop.Tensor:
    return distribute_tensor(metaop.tensor(value), *lie)


@pytest.mark.parametrize("source", LIES, ids=str)
def test_what_was_written_in_one_way_is_read_in_all(source: Any, tmp_path: Path) -> None:
    folder = tmp_path / "last"
    checkpoint.save({"value": put(VALUE, source)}, checkpoint_id=folder)
    for target in LIES:
        state = {"value": put(np.zeros_like(VALUE), target)}
        checkpoint.load(state, checkpoint_id=folder)
        np.testing.assert_array_equal(state["value"].numpy(), VALUE)
        if PARTIAL not in target[1]:
            assert state["value"].sbp == (target[1] if len(target[1]) > 1 else target[1][0])
    np.testing.assert_array_equal(metaop.load(folder)["value"].numpy(), VALUE)
    found: dict[str, Any] = {}
    checkpoint.load(found, checkpoint_id=folder)
    np.testing.assert_array_equal(found["value"].numpy(), VALUE)


def test_each_box_is_written_once(tmp_path: Path) -> None:
    state = {"half": put(VALUE, (MESH, (BROADCAST, S0))), "whole": put(VALUE, (ROW, (BROADCAST,)))}
    checkpoint.save(state, checkpoint_id=tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    assert sorted(load_file(file)) == ["half[0:4, 0:9]", "half[4:7, 0:9]", "whole[0:7, 0:9]"]


def test_only_the_boxes_of_a_rank_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    checkpoint.save({"value": put(VALUE, (ROW, (S1,)))}, checkpoint_id=tmp_path)
    boxes = []
    read = ShardedReader.read

    def noting(self: ShardedReader, name: str, box: Any = None) -> np.ndarray:
        boxes.append(box)
        return read(self, name, box)

    monkeypatch.setattr(ShardedReader, "read", noting)
    state = {"value": put(VALUE * 0, (ROW, (S0,)))}
    checkpoint.load(state, checkpoint_id=tmp_path)
    assert boxes == [((0, 3), (0, 9)), ((3, 5), (0, 9)), ((5, 7), (0, 9))]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,)], ids=str)
def test_all_types_and_shapes(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    value = metaop.ones(shape, dtype=getattr(metaop, dtype))
    checkpoint.save({"nest": [{"value": value}]}, checkpoint_id=tmp_path)
    found = metaop.load(tmp_path)["nest"][0]["value"]
    assert found.dtype is value.dtype and found.shape == value.shape
    assert bool((found == value).all())


def training(
    placement: Placement | None, lie: Any, name: str
) -> tuple[nn.Module, metaop.optim.Optimizer, Callable[[int], list[float]]]:
    metaop.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 6))
    x, y = metaop.tensor(VALUE), metaop.tensor(np.arange(7) % 6)
    if placement is not None:
        model.to_global(placement, lie)
        x, y = (distribute_tensor(v, placement, (BROADCAST,)) for v in (x, y))
    optimizer = getattr(metaop.optim, name)(model.parameters(), lr=0.05)
    schedule = metaop.optim.lr_scheduler.MultiStepLR(optimizer, [4, 7], 0.5)

    def run(steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    run.state = {"model": model, "optimizer": optimizer, "schedule": schedule}  # type: ignore[attr-defined]
    return model, optimizer, run


def test_numbers_on_a_placement(tmp_path: Path) -> None:
    value = metaop.tensor(3.0).to(ROW.device)
    number = metaop.full((), 7.0, placement=ROW, sbp=BROADCAST)
    checkpoint.save({"value": value, "number": number}, checkpoint_id=tmp_path)
    found = metaop.load(tmp_path)
    assert (found["value"].item(), found["number"].item()) == (3, 7)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop"])
def test_training_goes_on_on_another_mesh(name: str, tmp_path: Path) -> None:
    *_, alone = training(None, None, name)
    expected = alone(10)
    *_, before = training(ROW, {"*.weight": S0}, name)
    losses = before(5)
    checkpoint.save({**before.state, "losses": losses}, checkpoint_id=tmp_path)
    model, optimizer, after = training(Placement("cpu", [0, 1], simulate=True), S0, name)
    state = {**after.state, "losses": []}
    checkpoint.load(state, checkpoint_id=tmp_path)
    assert all(p.sbp == S0 for p in model.parameters())
    for values in optimizer.state_dict()["state"].values():
        assert all(v.sbp == S0 for v in values.values() if isinstance(v, metaop.Tensor) and v.ndim)
    np.testing.assert_allclose([*state["losses"], *after(5)], expected, rtol=1e-5)


def test_a_checkpoint_is_complete_or_not_there(tmp_path: Path, monkeypatch: Any) -> None:
    for number in (1, 2):
        checkpoint.save({"x": metaop.full((3,), number), "step": number}, checkpoint_id=tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
    with monkeypatch.context() as patch:

        def full(*arguments: Any) -> int:
            raise OSError("no space left on device")

        patch.setattr("metaop.distributed.shards.write_pieces", full)
        with pytest.raises(CheckpointError, match="rank 0 cannot write .* no space left"):
            checkpoint.save({"x": metaop.zeros(3), "step": 3}, checkpoint_id=tmp_path)
    found = metaop.load(tmp_path)
    assert found["step"] == 2 and found["x"].tolist() == [2, 2, 2]


def test_damage_is_named_and_nothing_changes(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    checkpoint.save({"a": put(VALUE, (ROW, (S0,))), "b": metaop.ones(2)}, checkpoint_id=folder)
    (file,) = folder.glob("*.safetensors")
    content = file.read_bytes()
    state = {"b": metaop.zeros(2), "a": put(VALUE * 0, (ROW, (S1,)))}

    def check(message: str) -> None:
        with pytest.raises(CheckpointError, match=message) as error:
            checkpoint.load(state, checkpoint_id=folder)
        assert str(folder) in str(error.value)
        assert state["b"].tolist() == [0, 0] and not state["a"].numpy().any()
        with pytest.raises(CheckpointError, match=message):
            metaop.load(folder)

    file.write_bytes(content[:-8])
    check(f"{file.name} has {len(content) - 8} bytes instead of {len(content)}")
    file.write_bytes(content.replace(b"a[0:3", b"z[0:3"))
    check(r"has no a\[0:3, 0:9\] of type float32")
    file.unlink()
    check(f"{file.name} is missing")
    (folder / "index.pth").unlink()
    check("no index.pth: it was never completely written")
    with pytest.raises(CheckpointError, match="No such file"):
        checkpoint.load(state, checkpoint_id=tmp_path / "other")


def test_another_shape_is_an_error(tmp_path: Path) -> None:
    checkpoint.save({"model": {"w": metaop.ones(2, 3)}}, checkpoint_id=tmp_path)
    with pytest.raises(CheckpointError, match=r"model/w has shape \[2, 3\] .* \[3, 2\] here"):
        checkpoint.load({"model": {"w": metaop.ones(3, 2)}}, checkpoint_id=tmp_path)


class Remembering(nn.Linear):
    """A module with a state that is not a tensor."""

    def __init__(self, seen: int = 0) -> None:
        super().__init__(2, 2)
        self.seen = seen

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


class Pair(nn.Module):
    """A module inside of another, as wrappers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)


def stepped(model: nn.Module) -> metaop.optim.Optimizer:
    optimizer = metaop.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = metaop.ones_like(parameter)
    optimizer.step()
    return optimizer


MISMATCHES: list[tuple[Callable[[], Any], Callable[[], Any], str]] = [
    (Pair, lambda: nn.Linear(2, 2), "x/weight.* not in .*x/module.weight.* only there"),
    (lambda: nn.Linear(2, 2), Pair, "x/module.weight.* not in .*x/weight.* only there"),
    (lambda: nn.Linear(2, 2, bias=False), lambda: nn.Linear(2, 2), "x/bias not in"),
    (lambda: nn.Linear(2, 2), lambda: nn.Linear(2, 2, bias=False), "x/bias only there"),
    (lambda: nn.Linear(3, 2), lambda: nn.Linear(2, 2), r"x/weight has shape \[2, 3\]"),
    (lambda: [nn.Linear(3, 2)], lambda: [nn.Linear(2, 2)], r"x/0/weight has shape \[2, 3\]"),
    (lambda: [metaop.ones(2)], lambda: [metaop.ones(2)] * 2, "x has 1 entries .* and 2 here"),
    (lambda: {"a": 1}, lambda: {"b": 1}, "x/b not in"),
    (lambda: {}, lambda: {"b": metaop.ones(2)}, "x/b not in"),
    (lambda: metaop.ones(2), lambda: metaop.ones(2, dtype=metaop.int64), "values of float32"),
    (lambda: metaop.ones(2, dtype=metaop.int64), lambda: metaop.ones(2).bool(), "of int64"),
    (lambda: metaop.ones(2), lambda: 3, "a tensor in the checkpoint and a int"),
    (lambda: 3, lambda: metaop.ones(2), "a int in the checkpoint and a Tensor"),
    (lambda: {"a": 1}, lambda: metaop.ones(2), "a dict in the checkpoint"),
    (lambda: 3, lambda: nn.Linear(2, 2), "a int in the checkpoint and a Linear"),
    (
        lambda: stepped(nn.Linear(2, 2)),
        lambda: stepped(nn.Linear(2, 2, bias=False)),
        r"groups of \[2\] parameters",
    ),
]


@pytest.mark.parametrize("name", ["last", "last.pt"])
@pytest.mark.parametrize(("saved", "here", "message"), MISMATCHES)
def test_what_does_not_fit_is_an_error_and_changes_nothing(
    saved: Any, here: Any, message: str, name: str, tmp_path: Path
) -> None:
    checkpoint.save({"y": metaop.ones(2), "x": saved()}, checkpoint_id=tmp_path / name)
    state = {"y": metaop.zeros(2), "x": here()}
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(state, checkpoint_id=tmp_path / name)
    assert state["y"].tolist() == [0, 0]


def test_names_may_be_skipped_on_demand(tmp_path: Path) -> None:
    source, target = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
    bias = target.bias.detach().clone()
    checkpoint.save({"model": source, "epoch": 3}, checkpoint_id=tmp_path)
    state = {"model": target, "epoch": 0, "best": 1.5}
    checkpoint.load(state, checkpoint_id=tmp_path, strict=False)
    assert bool((target.weight == source.weight).all()) and bool((target.bias == bias).all())
    assert (state["epoch"], state["best"]) == (3, 1.5)


def test_objects_in_lists_states_that_are_no_tensors_and_fresh_optimizers(tmp_path: Path) -> None:
    models = [Remembering(5), nn.Linear(2, 2).double()]
    fresh = metaop.optim.Adam(models[0].parameters())
    checkpoint.save({"models": models, "optimizer": fresh}, checkpoint_id=tmp_path)
    others = [Remembering(), nn.Linear(2, 2)]
    optimizer = stepped(others[0])
    checkpoint.load({"models": others, "optimizer": optimizer}, checkpoint_id=tmp_path)
    assert others[0].seen == 5 and not optimizer.state_dict()["state"]
    for one, other in zip(models, others):
        np.testing.assert_allclose(
            one.weight.detach().numpy(), other.weight.detach().numpy(), rtol=1e-6
        )


def test_a_graph_takes_the_state_of_one_that_is_built_alike() -> None:
    class Step(nn.Graph):
        def __init__(self, optimizers: int) -> None:
            super().__init__()
            self.model = nn.Linear(2, 2)
            for _ in range(optimizers):
                self.add_optimizer(metaop.optim.SGD(self.model.parameters(), lr=0.1))

    with pytest.raises(CheckpointError, match=r"\['model'\] and 2 optimizers"):
        Step(2).load_state_dict(Step(1).state_dict())
