"""The words of `torch.jit` and `torch.export` that write and read programs, as PyTorch has them."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, scripting
from metaop.errors import ArgumentError, CheckpointError, DTypeError, ExportError, ShapeError
from metaop.export import Dim

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
random = np.random.default_rng(5)


def near(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-5, 1e-6)


def pictures(lib: Any) -> Any:
    return lib.nn.Sequential(
        lib.nn.Conv2d(3, 4, 3, padding=1), lib.nn.BatchNorm2d(4), lib.nn.ReLU(), lib.nn.Dropout(),
        lib.nn.AdaptiveAvgPool2d(2), lib.nn.Flatten(), lib.nn.Linear(16, 5),
    )  # fmt: skip


def both(build: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A network of each library, with the same weights."""
    ours, theirs = build(metaop).eval(), build(torch).eval()
    for name, value in theirs.state_dict().items():
        ours.state_dict()[name].copy_(metaop.from_numpy(value.numpy()))
    return ours, theirs


def reloaded(saved: Any, lib: Any = metaop) -> Any:
    file = io.BytesIO()
    jit = scripting if lib is metaop else lib.jit
    jit.save(saved, file)
    file.seek(0)
    return jit.load(file, map_location="cpu")


@pytest.mark.parametrize("batch", [1, 2])
def test_a_traced_module_runs_for_other_sizes_after_loading(batch: int) -> None:
    ours, theirs = both(pictures)
    example = random.random((batch, 3, 8, 8), np.float32)
    ours = reloaded(scripting.trace(ours, metaop.from_numpy(example)))
    theirs = reloaded(torch.jit.trace(theirs, torch.from_numpy(example)), torch)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    names = [[name for name, _ in one.named_parameters()] for one in (ours, theirs)]
    assert sorted(names[0]) == sorted(names[1])
    for shape in ((batch, 3, 8, 8), (5, 3, 8, 8), (1, 3, 10, 6), (3, 3, 9, 7)):
        x = random.random(shape, np.float32)
        near(ours(metaop.from_numpy(x)), theirs(torch.from_numpy(x)))


def test_a_traced_module_is_the_module() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    traced: Any = scripting.trace(model, metaop.ones(1, 2))
    assert isinstance(traced, scripting.ScriptModule) and isinstance(traced, nn.Sequential)
    assert traced[0] is model[0] and list(traced.parameters()) == list(model.parameters())
    traced.eval().extra = 3
    assert not model.training and model.extra == 3 and repr(traced) == repr(model)
    assert scripting.freeze(traced) is traced and scripting.script(traced) is traced
    assert copy.deepcopy(traced)[0].weight is not model[0].weight
    file = io.BytesIO()
    metaop.save(traced, file)
    file.seek(0)
    assert type(metaop.load(file, weights_only=False)) is nn.Sequential


def attention(lib: Any) -> Any:
    class Encoder(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = lib.nn.Embedding(20, 8)
            self.layer = lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.layer(self.table(ids) * mask[:, :, None]).mean(1)

    return Encoder()


def test_inputs_share_the_sizes_that_have_to_be_equal() -> None:
    ours, theirs = both(attention)
    ids, mask = random.integers(0, 20, (2, 5)), np.ones((2, 5), np.float32)
    pair = metaop.from_numpy(ids), metaop.from_numpy(mask)
    loaded = reloaded(scripting.trace(ours, pair))
    ids, mask = random.integers(0, 20, (3, 9)), random.random((3, 9), np.float32)
    near(
        loaded(metaop.from_numpy(ids), mask=metaop.from_numpy(mask)),
        theirs(torch.from_numpy(ids), torch.from_numpy(mask)),
    )
    with pytest.raises(ShapeError):
        loaded(*pair[:1], metaop.ones(2, 6))


def test_a_size_that_cannot_vary_is_fixed() -> None:
    traced = scripting.trace(lambda x: x.reshape(-1, 12) * metaop.ones(2, 1), metaop.ones(4, 6))
    loaded = reloaded(traced)
    near(loaded(metaop.ones(4, 6)), metaop.ones(2, 12))
    with pytest.raises(ShapeError, match="takes"):
        loaded(metaop.ones(8, 6))
    branching = scripting.trace(lambda x: x * 2 if len(x) > 3 else x, metaop.ones(2, 5))
    assert reloaded(branching)(metaop.ones(2, 7)).shape == (2, 7)
    with pytest.raises(ShapeError, match="takes"):
        reloaded(branching)(metaop.ones(4, 5))


def test_functions_keywords_and_loaded_programs() -> None:
    def scaled(x: metaop.Tensor, *, by: metaop.Tensor) -> dict[str, metaop.Tensor]:
        """Multiplies."""
        return {"y": x * by}

    kwargs = {"by": metaop.tensor(2.0)}
    traced: Any = scripting.trace(scaled, (metaop.ones(2),), example_kwarg_inputs=kwargs)
    assert traced.__name__ == "scaled" and traced.__doc__ == "Multiplies."
    assert not hasattr(scaled, "save")
    again = reloaded(reloaded(traced))
    assert again(metaop.ones(3), by=metaop.tensor(4.0))["y"].tolist() == [4, 4, 4]


def test_traces_of_forward_are_those_of_the_module() -> None:
    model = nn.Linear(2, 1)
    x = metaop.ones(3, 2)
    loaded = reloaded(scripting.trace_module(model, {"forward": x}))
    assert list(loaded.state_dict()) == list(
        reloaded(scripting.trace(model.forward, x)).state_dict()
    )
    near(loaded(x), model(x))
    other: Any = scripting.trace_module(model, {"forward": x, "extra_repr": ()})
    with pytest.raises(ArgumentError, match="has no example inputs"):
        other.save(io.BytesIO())


FRESH = """
    import sys
    import metaop
    from metaop import scripting
    program = scripting.load("net.pt")
    near = program(metaop.arange(12.0).reshape(4, 3))
    assert metaop.allclose(near, metaop.load("wanted.pt"), atol=1e-6)
    exported = metaop.export.load("net.pt").module()
    assert metaop.equal(exported(metaop.arange(12.0).reshape(4, 3)), near)
    assert metaop.equal(metaop.load_program("net.pt")(metaop.arange(12.0).reshape(4, 3)), near)
    print(*program.state_dict())
"""


def test_another_process_needs_no_source(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.unused = nn.Linear(3, 2), nn.Linear(1, 1)

        def forward(self, x: metaop.Tensor) -> metaop.Tensor:
            return self.layer(x).tanh()

    model: Any = scripting.trace(Own(), metaop.ones(1, 3))
    model.save(tmp_path / "net.pt")
    metaop.save(model(metaop.arange(12.0).reshape(4, 3)).detach(), tmp_path / "wanted.pt")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FRESH)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert set(done.stdout.split()) == set(model.state_dict())


def test_a_loaded_module_is_trained_copied_and_saved() -> None:
    layers = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
    model = nn.Sequential(*layers).eval()
    x = metaop.rand(6, 3)
    loaded = reloaded(scripting.trace(model, x))
    before = copy.deepcopy(loaded)
    optimizers = [metaop.optim.SGD(one.parameters(), lr=0.1) for one in (model, loaded)]
    for one, optimizer in zip((model, loaded), optimizers):
        one(x).square().sum().backward()
        optimizer.step()
    near(reloaded(loaded)(x), model(x))
    assert not metaop.allclose(before(x), model(x))
    before.load_state_dict(model.state_dict())
    near(before(x), model(x))
    with pytest.raises(DTypeError, match="computes with metaop.float32"):
        loaded.double()(x.double())


def test_scripted_modules_ask_for_examples() -> None:
    scripted: Any = scripting.script(nn.Linear(2, 1))
    for save in (scripted.save, lambda file: scripting.save(nn.Linear(2, 1), file)):
        with pytest.raises(ArgumentError, match=r"fix: trace it: torch.jit.trace"):
            save(io.BytesIO())


def test_what_cannot_be_saved() -> None:
    traced: Any = scripting.trace(nn.Dropout(0.5), metaop.ones(2))
    with pytest.raises(ExportError, match="call eval"):
        traced.save(io.BytesIO())


def test_other_files_are_refused(tmp_path: Path) -> None:
    layer, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
    torch.jit.save(torch.jit.trace(layer, x), tmp_path / "scripted.pt")
    torch.export.save(torch.export.export(layer, (x,)), tmp_path / "exported.pt2")
    torch.save(layer.state_dict(), tmp_path / "weights.pt")
    for load in (scripting.load, metaop.export.load, metaop.load_program):
        for name in ("scripted.pt", "exported.pt2"):
            with pytest.raises(CheckpointError, match="a program of PyTorch"):
                load(tmp_path / name)
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "absent.pt")
    # As CLIP reads its weights.
    with open(tmp_path / "weights.pt", "rb") as file:
        with pytest.raises(RuntimeError, match=r"fix: read tensors with metaop\.load"):
            scripting.load(file)
        assert sorted(metaop.load(file)) == ["bias", "weight"]
    (tmp_path / "cut.pt").write_bytes((tmp_path / "scripted.pt").read_bytes()[:300])
    with pytest.raises(CheckpointError, match="damaged"):
        scripting.load(tmp_path / "cut.pt")


def two_inputs(lib: Any) -> Any:
    class Pair(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = lib.nn.Linear(3, 2)
            self.register_buffer("offset", lib.ones(2))
            self.register_buffer("hidden", lib.ones(2), persistent=False)

        def forward(self, x: Any, rest: Any) -> Any:
            return self.layer(x) + rest[0]["y"] * self.offset + self.hidden

    return Pair()


@pytest.mark.parametrize("how", ["named", "ordered", "automatic", "demanded"])
def test_exported_programs_are_those_of_pytorch(how: str) -> None:
    def program(lib: Any, mod: Any) -> Any:
        batch = lib.export.Dim("batch")
        automatic = {0: lib.export.Dim.AUTO, 1: lib.export.Dim.STATIC}
        demanded = {0: lib.export.Dim.DYNAMIC}
        named = {0: batch, 1: None}
        axes: Any = {
            "named": {"x": named, "rest": [{"y": named}]},
            "ordered": (named, [{"y": (batch, None)}]),
            "automatic": {"x": automatic, "rest": [{"y": automatic}]},
            "demanded": {"x": demanded, "rest": [{"y": demanded}]},
        }
        args, rest = (lib.ones(4, 3),), [{"y": lib.ones(4, 1)}]
        return lib.export.export(mod, args, {"rest": rest}, dynamic_shapes=axes[how])

    ours, theirs = both(two_inputs)
    ours, theirs = program(metaop, ours), program(torch, theirs)
    file = io.BytesIO()
    metaop.export.save(ours, file)
    file.seek(0)
    x, y = random.random((7, 3), np.float32), random.random((7, 1), np.float32)
    wanted = theirs.module()(torch.from_numpy(x), rest=[{"y": torch.from_numpy(y)}])
    for one in (ours, metaop.export.load(file)):
        assert isinstance(one, metaop.export.ExportedProgram)
        near(one.module()(metaop.from_numpy(x), rest=[{"y": metaop.from_numpy(y)}]), wanted)
        assert sorted(one.state_dict) == sorted(theirs.state_dict)
        assert one.module() is one.module()


def test_sizes_without_dynamic_shapes_are_fixed() -> None:
    for lib in (metaop, torch):
        program = lib.export.export(lib.nn.ReLU(), (lib.ones(2, 3),), strict=True)
        with pytest.raises((ShapeError, AssertionError)):
            program.module()(lib.ones(4, 3))


def test_several_positional_arguments_have_axes() -> None:
    class Sum(nn.Module):
        def forward(self, *xs: metaop.Tensor) -> metaop.Tensor:
            return xs[0].sum() + xs[1].sum()

    xs = metaop.ones(2), metaop.ones(3)
    axes = {"xs": ({0: Dim("a", max=8)}, {0: Dim.AUTO})}
    program = metaop.export.export(Sum(), xs, dynamic_shapes=axes)
    assert program.module()(metaop.ones(5), metaop.ones(6)).item() == 11


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        ({"other": {0: "n"}}, ArgumentError, "names 'other'"),
        (({0: "n"}, None), ArgumentError, "a tuple of 1"),
        (({1: Dim.DYNAMIC},), ExportError, r"axis 1 of input 0 is Dim\.DYNAMIC"),
        (({0: 2.5},), ArgumentError, "2.5 names no axis"),
    ],
)
def test_wrong_dynamic_shapes(axes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        metaop.export.export(nn.Linear(3, 1), (metaop.ones(2, 3),), dynamic_shapes=axes)


def test_arguments_are_a_tuple() -> None:
    for lib in (metaop, torch):
        with pytest.raises(Exception, match="Expecting `args` to be a tuple"):
            lib.export.export(lib.nn.ReLU(), lib.ones(2))


@pytest.mark.parametrize("made", [scripting.script, scripting.trace])
def test_modules_with_a_method_save_are_copied_and_pickled(made: Callable[..., Any]) -> None:
    module = made(Block(), metaop.ones(1, 3)) if made is scripting.trace else made(Block())
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), copy.copy(module)):
        assert isinstance(again, Block) and again is not module
        assert again(metaop.ones(2, 3)).tolist() == module(metaop.ones(2, 3)).tolist()
        again.added = True
        assert not hasattr(module, "added")
        if made is scripting.trace:
            again.save(io.BytesIO())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.layer(x).relu()
