"""Module: registration, walking, conversion, state, hooks, copies."""

from __future__ import annotations

import copy
import pickle
import typing
from collections import OrderedDict

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import CheckpointError
from tests.nn.parity import to_metaop

torch = pytest.importorskip("torch")


def network(module, tensors):
    """A network with shared parameters, nested modules and both kinds of buffers."""

    class Block(module.Module):
        def __init__(self, size):
            super().__init__()
            self.linear = module.Linear(size, size)
            self.scale = module.Parameter(tensors.ones(size))
            self.register_buffer("offset", tensors.zeros(size))
            self.register_buffer("scratch", tensors.zeros(2), persistent=False)
            self.register_parameter("absent", None)

        def forward(self, x):
            return self.linear(x) * self.scale + self.offset

    class Network(module.Module):
        def __init__(self):
            super().__init__()
            self.blocks = module.ModuleList([Block(3), Block(3)])
            self.head = module.Sequential(OrderedDict(a=module.Linear(3, 2), b=module.ReLU()))
            self.by_name = module.ModuleDict({"x": module.Linear(2, 2)})
            self.tied = module.Linear(3, 3)
            self.tied.weight = self.blocks[0].linear.weight
            self.extra = module.ParameterList([tensors.ones(2), tensors.ones(1)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.by_name["x"](self.head(self.tied(x)))

    return Network()


def both():
    ours, theirs = network(nn, metaop), network(torch.nn, torch)
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    return ours, theirs


def test_names_are_pytorchs():
    ours, theirs = both()
    for listing in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        names = [name for name, _ in getattr(ours, listing)()]
        assert names == [name for name, _ in getattr(theirs, listing)()], listing
    for options in ({"recurse": False}, {"prefix": "p"}, {"remove_duplicate": False}):
        names = [name for name, _ in ours.named_parameters(**options)]
        assert names == [name for name, _ in theirs.named_parameters(**options)], options
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.state_dict()._metadata == theirs.state_dict()._metadata
    assert repr(ours).replace("metaop.", "torch.") == repr(theirs)
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))
    assert list(ours.state_dict(prefix="q.")) == list(theirs.state_dict(prefix="q."))


def test_forward_and_gradients():
    ours, theirs = both()
    x = torch.randn(4, 3)
    result, wanted = ours(to_metaop(x)), theirs(x)
    np.testing.assert_allclose(result.detach().numpy(), wanted.detach().numpy(), atol=1e-5)
    result.sum().backward()
    wanted.sum().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        if expected[name].grad is None:
            assert parameter.grad is None
        else:
            np.testing.assert_allclose(
                parameter.grad.numpy(), expected[name].grad.numpy(), atol=1e-4
            )


def test_attributes():
    module = nn.Module()
    module.weight = nn.Parameter(metaop.ones(2))
    assert "weight" in module._parameters and "weight" not in module.__dict__
    with pytest.raises(TypeError, match="cannot assign"):
        module.weight = metaop.ones(2)
    module.weight = None
    assert module.weight is None
    module.child = nn.ReLU()
    with pytest.raises(TypeError, match="child module"):
        module.child = 3
    module.register_buffer("buffer", metaop.ones(1))
    module.buffer = metaop.zeros(3)
    assert module.buffer.shape == (3,)
    module.noted = nn.Buffer(metaop.ones(2), persistent=False)
    assert list(module.state_dict()) == ["buffer"]
    del module.buffer
    with pytest.raises(AttributeError, match="no attribute 'buffer'"):
        _ = module.buffer
    module.child = nn.Parameter(metaop.ones(1))
    assert "child" not in module._modules
    for name in ("a.b", ""):
        with pytest.raises(KeyError):
            module.register_buffer(name, None)
        with pytest.raises(KeyError):
            module.add_module(name, nn.ReLU())
    with pytest.raises(KeyError, match="already exists"):
        module.register_parameter("train", nn.Parameter(metaop.ones(1)))
    with pytest.raises(TypeError, match="not a Module"):
        module.add_module("x", 3)


def test_assignment_before_init():
    class Wrong(nn.Module):
        def __init__(self):
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match="before Module.__init__"):
        Wrong()


def test_finding():
    ours, _ = both()
    assert ours.get_submodule("blocks.1.linear") is ours.blocks[1].linear
    assert ours.get_parameter("blocks.0.scale") is ours.blocks[0].scale
    assert ours.get_buffer("blocks.0.offset") is ours.blocks[0].offset
    for lookup, target in (
        (ours.get_submodule, "nothing"),
        (ours.get_submodule, "blocks.0.scale"),
        (ours.get_parameter, "blocks.0.offset"),
        (ours.get_buffer, "blocks.0.scale"),
    ):
        with pytest.raises(AttributeError):
            lookup(target)
    ours.set_submodule("blocks.1.linear", nn.Identity())
    assert isinstance(ours.blocks[1].linear, nn.Identity)


def test_modes_and_gradient_flags():
    ours, _ = both()
    assert ours.eval() is ours
    assert not any(module.training for module in ours.modules())
    ours.train()
    assert all(module.training for module in ours.modules())
    with pytest.raises(ValueError):
        ours.train("yes")
    ours.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in ours.parameters())
    seen = []
    ours.apply(seen.append)
    assert seen[-1] is ours and len(seen) == len(list(ours.modules()))


def test_conversion_keeps_parameters():
    ours, _ = both()
    weight = ours.blocks[0].linear.weight
    before = weight.detach().numpy().copy()
    ours.double()
    assert ours.blocks[0].linear.weight is weight
    assert weight.dtype is metaop.float64 and weight.requires_grad and weight.is_leaf
    assert ours.blocks[0].offset.dtype is metaop.float64
    np.testing.assert_array_equal(weight.detach().numpy(), before)
    ours(metaop.ones(1, 3, dtype=metaop.float64)).sum().backward()
    assert weight.grad.dtype is metaop.float64
    ours.to(metaop.float32)
    assert weight.grad.dtype is metaop.float32
    norm = nn.BatchNorm1d(3).half()
    assert norm.num_batches_tracked.dtype is metaop.int64
    with pytest.raises(TypeError, match="floating point"):
        ours.to(metaop.int64)


def test_state_round_trip():
    ours, _ = both()
    other = network(nn, metaop)
    assert repr(other.load_state_dict(ours.state_dict())) == "<All keys matched successfully>"
    for (_, a), (_, b) in zip(ours.named_parameters(), other.named_parameters()):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    with metaop.no_grad():
        ours.blocks[0].scale.add_(1)
    assert other.blocks[0].scale.tolist() == [1, 1, 1]


def test_state_problems_are_all_listed():
    ours, theirs = both()
    state = dict(ours.state_dict())
    wanted = dict(theirs.state_dict())
    for each, make in ((state, metaop), (wanted, torch)):
        del each["tied.bias"]
        each["surplus"] = make.ones(1)
        each["blocks.0.scale"] = make.ones(7)
        each["head.a.bias"] = make.ones(5)
    with pytest.raises(CheckpointError) as caught:
        ours.load_state_dict(state)
    with pytest.raises(RuntimeError) as expected:
        theirs.load_state_dict(wanted)
    ours_text = str(caught.value).replace("metaop.", "torch.")
    lines = [line.strip() for line in str(expected.value).splitlines()]
    assert [line.strip() for line in ours_text.splitlines()][: len(lines)] == lines
    keys = nn.Linear(2, 2).load_state_dict({"weight": metaop.ones(2, 2), "x": None}, strict=False)
    assert keys.missing_keys == ["bias"] and keys.unexpected_keys == ["x"]
    with pytest.raises(TypeError, match="dict-like"):
        ours.load_state_dict(3)


def test_state_assign():
    module = nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    state = {"weight": metaop.ones(2, 2, dtype=metaop.float64), "bias": metaop.zeros(2)}
    module.load_state_dict(state, assign=True)
    assert module.weight.dtype is metaop.float64
    assert isinstance(module.weight, nn.Parameter) and not module.weight.requires_grad
    assert module.bias.requires_grad


def test_state_shares_values():
    module = nn.Linear(2, 2)
    state = module.state_dict()
    assert not state["weight"].requires_grad
    with metaop.no_grad():
        state["weight"].fill_(3)
    assert module.weight.tolist() == [[3, 3], [3, 3]]
    assert module.state_dict(keep_vars=True)["weight"] is module.weight


def test_extra_state():
    class Counting(nn.Module):
        count = 3

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    module = nn.Sequential(Counting())
    state = module.state_dict()
    assert list(state) == ["0._extra_state"]
    state["0._extra_state"]["count"] = 5
    module.load_state_dict(state)
    assert module[0].count == 5


def test_forward_hooks_order():
    module = nn.Sequential(nn.Identity(), nn.Identity())
    order = []
    module.register_forward_pre_hook(lambda m, args: order.append("pre") or (args[0] + 1,))
    module.register_forward_pre_hook(
        lambda m, args, kwargs: order.append("first") or (args, kwargs),
        prepend=True,
        with_kwargs=True,
    )
    module[0].register_forward_hook(lambda m, args, out: order.append("inner"))
    module.register_forward_hook(lambda m, args, out: order.append("post") or out * 2)
    everywhere = nn.hooks.register_module_forward_hook(lambda m, a, o: order.append("global"))
    assert module(metaop.ones(1)).item() == 4
    everywhere.remove()
    assert order == ["first", "pre", "global", "inner", "global", "global", "post"]
    with module.register_forward_hook(lambda m, args, out: out * 5):
        assert module(metaop.ones(1)).item() == 20
    assert module(metaop.ones(1)).item() == 4


def test_hook_that_always_runs():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    module, seen = Failing(), []
    module.register_forward_hook(lambda *a: seen.append("never"))
    module.register_forward_hook(lambda *a: seen.append("always"), always_call=True)
    with pytest.raises(ValueError, match="broken"):
        module(metaop.ones(1))
    assert seen == ["always"]


def _backward_record(library, module, x):
    seen = []

    def shown(gradients):
        return [None if g is None else np.asarray(g.tolist()).round(5).tolist() for g in gradients]

    module.register_full_backward_pre_hook(
        lambda m, grad_output: seen.append(("pre", shown(grad_output))) or (grad_output[0] * 2,)
    )
    module.register_full_backward_hook(
        lambda m, grad_input, grad_output: (
            seen.append(("hook", shown(grad_input), shown(grad_output))) or (grad_input[0] * 10,)
        )
    )
    result = module(x)
    (result * result).sum().backward()
    return seen, x.grad.tolist()


def test_backward_hooks():
    theirs = torch.nn.Linear(2, 2)
    ours = nn.Linear(2, 2)
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    x = torch.tensor([[1.0, -2.0]], requires_grad=True)
    seen, gradient = _backward_record(metaop, ours, to_metaop(x))
    wanted_seen, wanted = _backward_record(torch, theirs, x)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4)
    assert [entry[0] for entry in seen] == [entry[0] for entry in wanted_seen]
    for entry, wanted_entry in zip(seen, wanted_seen):
        for got, expected in zip(entry[1:], wanted_entry[1:]):
            np.testing.assert_allclose(got, expected, rtol=1e-4)
    np.testing.assert_allclose(ours.weight.grad.tolist(), theirs.weight.grad.tolist(), rtol=1e-4)


def test_backward_hook_without_tracked_inputs():
    module, seen = nn.Linear(2, 2), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    module(metaop.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0, 1.0]])]


@pytest.mark.parametrize("read", ["output", "state", "both"])
def test_backward_hooks_see_the_outputs_that_stand_alone(read):
    """Gradients of what lies deeper, as the states of an LSTM do, reach no hook of PyTorch's."""

    def run(library):
        module = library.nn.LSTM(2, 3, batch_first=True)
        with library.no_grad():
            for p in module.parameters():
                p.copy_(library.linspace(-1, 1, p.numel()).reshape(p.shape))
        calls = []
        module.register_full_backward_hook(lambda m, gi, go: calls.append(1) or (gi[0] * 0.5,))
        x = library.arange(12.0).reshape(2, 3, 2).div(10).requires_grad_()
        output, (state, _) = module(x)
        chosen = {"output": output, "state": state, "both": output + state.transpose(0, 1)}[read]
        chosen.square().sum().backward()
        return x.grad.tolist(), calls

    (gradient, calls), (wanted, wanted_calls) = run(metaop), run(torch)
    assert calls == wanted_calls
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_state_hooks():
    module, order = nn.Linear(1, 1), []
    module.register_state_dict_pre_hook(lambda m, prefix, keep: order.append("pre"))
    module.register_state_dict_post_hook(
        lambda m, state, prefix, meta: state.__setitem__("extra", 1)
    )
    state = module.state_dict()
    assert "extra" in state
    module.register_load_state_dict_pre_hook(
        lambda m, state, *rest: (order.append(m is module), state.pop("extra"))
    )
    module.register_load_state_dict_post_hook(lambda m, keys: order.append(keys.missing_keys))
    module.load_state_dict(state)
    assert order == ["pre", True, []]


def test_registration_hooks():
    seen = []
    with nn.hooks.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)):
        nn.Linear(1, 1)
    assert seen == ["weight", "bias"]


def test_copies():
    ours, _ = both()
    handle = ours.register_forward_hook(lambda m, a, out: out)
    copied = copy.deepcopy(ours)
    assert copied.tied.weight is copied.blocks[0].linear.weight
    assert copied.tied.weight is not ours.tied.weight
    assert len(copied._forward_hooks) == 1
    with metaop.no_grad():
        ours.tied.weight.zero_()
    assert copied.tied.weight.detach().abs().sum().item() > 0
    handle.remove()
    linear = nn.Linear(2, 3)
    again = pickle.loads(pickle.dumps(linear))
    np.testing.assert_array_equal(again.weight.detach().numpy(), linear.weight.detach().numpy())
    assert again.weight.requires_grad and isinstance(again.weight, nn.Parameter)


def test_parameter():
    parameter = nn.Parameter(metaop.ones(2))
    assert parameter.requires_grad and parameter.is_leaf and isinstance(parameter, metaop.Tensor)
    assert type(parameter * 2) is metaop.Tensor
    text = repr(parameter).replace("metaop.", "torch.")
    assert text == repr(torch.nn.Parameter(torch.ones(2)))
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(metaop.tensor([1, 2]))
    assert not nn.Parameter(metaop.tensor([1, 2]), requires_grad=False).requires_grad
    source = metaop.ones(2)
    (nn.Parameter(source) * 3).sum().backward()
    assert source.grad is None and not source.requires_grad


def test_missing_forward():
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_zero_grad():
    module = nn.Linear(2, 1)
    module(metaop.ones(1, 2)).sum().backward()
    module.zero_grad(set_to_none=False)
    assert module.weight.grad.tolist() == [[0, 0]]
    module.zero_grad()
    assert module.weight.grad is None


def test_batch_counter_computes_nothing():
    norm = nn.BatchNorm1d(2)
    x = metaop.ones(3, 2)
    for _ in range(4):
        norm(x)
    assert norm.num_batches_tracked._call.scalar == 4
    assert norm.num_batches_tracked.item() == 4
    norm.load_state_dict({**norm.state_dict(), "num_batches_tracked": metaop.tensor(10)})
    norm(x)
    assert norm.num_batches_tracked.item() == 11


def test_annotations_of_modules_can_be_read() -> None:
    class Net(nn.Linear):
        scale: float
        extra: metaop.Tensor | None

    hints = typing.get_type_hints(Net)
    assert hints["scale"] is float
    assert hints["extra"] == metaop.Tensor | None
    assert hints["training"] is bool


def own_names(kind: str) -> set[str]:
    """The private names of a class that programs could use for something else."""
    ours, theirs = metaop, torch
    for part in kind.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    mangled = tuple(f"_{base.__name__.lstrip('_')}__" for base in ours.__mro__)
    names = (name for name in dir(ours) if name.startswith("_") and not name.startswith(mangled))
    return {name for name in names if not name.endswith("_") and not hasattr(theirs, name)}


@pytest.mark.parametrize("kind", ["nn.Module", "utils.data.DataLoader", "utils.data.Dataset"])
def test_subclasses_may_use_every_private_name(kind: str) -> None:
    """Of classes that programs derive from; torchmetrics has modules with `_persistent`."""
    assert not own_names(kind)


def test_a_module_with_names_of_its_own() -> None:
    class Metric(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 1)
            self._persistent = {"total": False}
            self._before = self._after = self._forget = None

    module = Metric()
    module.register_forward_hook(lambda *_: None)
    assert module(metaop.ones(1, 2)).shape == (1, 1)
    assert not module.load_state_dict(module.state_dict()).missing_keys


@pytest.mark.parametrize("library", [metaop, torch])
def test_the_dictionary_of_a_parameter_has_what_was_attached(library) -> None:
    old = library.nn.Parameter(library.ones(2), requires_grad=False)
    old.grad = library.ones(2)
    assert not dict(**old.__dict__)
    old.is_shared_by = "all"
    new = library.nn.Parameter(library.zeros(2))
    new.__dict__.update(old.__dict__)
    assert vars(new) == {"is_shared_by": "all"} and "is_shared_by" in dir(new)
    assert copy.copy(new).is_shared_by == pickle.loads(pickle.dumps(new)).is_shared_by == "all"
    assert new.requires_grad and new.tolist() == [0, 0]
    del new.__dict__["is_shared_by"]
    assert not hasattr(new, "is_shared_by")
    kept = library.zeros(1)
    kept.mark = [1]
    copied = copy.deepcopy(kept)
    assert copied.mark == kept.mark and len(copied.__dict__) == 1


def test_own_fields_are_not_written_as_attributes() -> None:
    parameter = nn.Parameter(metaop.ones(2))
    for forbidden in ("_call", "_grad"):
        assert forbidden not in parameter.__dict__
        with pytest.raises(KeyError, match=forbidden):
            parameter.__dict__[forbidden] = None
        with pytest.raises(KeyError, match=forbidden):
            del parameter.__dict__[forbidden]
