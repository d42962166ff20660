"""Steps on sparse gradients: the rows of PyTorch's, and nothing but rows."""

from __future__ import annotations

import copy
import ctypes

import numpy as np
import pytest

import metaop
from metaop.errors import GradientError
from metaop.nn import functional as F

torch = pytest.importorskip("torch")

ROWS = 40
BATCHES = [np.random.default_rng(seed).integers(0, ROWS, (3, 4)) for seed in range(6)]
BATCHES[3] = np.full((3, 4), 7)  # one row, often
BATCHES[4] = BATCHES[4][:1]  # another size
ROW_RULES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("SparseAdam", {"lr": 0.05}),
    ("SparseAdam", {"betas": (0.8, 0.95), "maximize": True}),
]
DENSE_RULES = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
]


class Training:
    """Two tables and a dense layer, trained by one optimizer."""

    def __init__(self, library, optimizer, options, dtype="float32"):
        self.library = library
        generator = np.random.default_rng(0)
        self.layers = library.nn.ModuleList(
            [
                library.nn.Embedding(ROWS, 8, sparse=True),
                library.nn.EmbeddingBag(ROWS, 8, mode="mean", sparse=True),
            ]
        )
        for parameter in self.layers.parameters():
            value = generator.standard_normal(tuple(parameter.shape)).astype(dtype)
            parameter.data = library.tensor(value)
        self.optimizer = getattr(library.optim, optimizer)(self.layers.parameters(), **options)

    def step(self, batch):
        rows = self.library.tensor(batch)
        self.optimizer.zero_grad()
        first, second = self.layers
        loss = (first(rows).mean(1) * second(rows)).square().sum() + first(rows).sin().sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def weights(self):
        return [parameter.detach().numpy() for parameter in self.layers.parameters()]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name, options", ROW_RULES + DENSE_RULES)
def test_steps(name, options):
    own, other = Training(metaop, name, options), Training(torch, name, options)
    for batch in BATCHES:
        np.testing.assert_allclose(
            own.step(batch).item(), other.step(batch).item(), rtol=1e-4, atol=1e-5
        )
        for mine, theirs in zip(own.weights(), other.weights()):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    state, wanted = own.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"]
    assert list(state) == list(wanted)
    for number, values in wanted.items():
        assert list(state[number]) == list(values)
        for key, value in values.items():
            value = value.to_dense() if getattr(value, "is_sparse", False) else value
            found = state[number][key].detach().numpy()
            np.testing.assert_allclose(found, np.asarray(value), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name, options", ROW_RULES)
def test_only_rows_change(name, options):
    training = Training(metaop, name, options)
    before = [value.copy() for value in training.weights()]
    training.step(BATCHES[0])
    used = np.unique(BATCHES[0])
    for old, new in zip(before, training.weights()):
        assert (old[used] != new[used]).any(1).all()
        others = np.setdiff1d(np.arange(ROWS), used)
        np.testing.assert_array_equal(old[others], new[others])


@pytest.mark.parametrize("name, options", ROW_RULES)
def test_tables_stay_where_they_are(name, options):
    """The old table is nobody's any more, so its memory becomes that of the new one."""
    training = Training(metaop, name, options)
    for batch in BATCHES[:2]:
        training.step(batch)
    tables = list(training.layers.parameters())
    for value in training.optimizer.state.values():
        tables += [x for key, x in value.items() if key != "step"]
    addresses = [table.buffer().address for table in tables]
    training.step(BATCHES[2])
    assert [table.buffer().address for table in tables] == addresses


def test_values_in_use_are_kept():
    """Who holds the old table sees it as it was."""
    training = Training(metaop, "SGD", {"lr": 0.1})
    training.step(BATCHES[0])
    table = training.layers[0].weight
    copied, expected = table.detach().clone(), table.detach().numpy().copy()
    looked_up = table[3:5]
    training.step(BATCHES[3])
    np.testing.assert_array_equal(copied.numpy(), expected)
    assert looked_up.detach().numpy().shape == (2, 8)
    assert (table.detach().numpy()[7] != expected[7]).all()


def test_rows_outside_change_nothing():
    """An index is refused before the old table is written over."""
    table = metaop.nn.Embedding(ROWS, 8, sparse=True).weight
    optimizer = metaop.optim.SGD([table], lr=0.1)

    def step(rows):
        F.embedding(metaop.tensor(rows), table, sparse=True).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step([3, 5])
    address, size = table.buffer().address, table.numel()
    memory = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
    before = memory.copy()
    with pytest.raises(IndexError, match=f"{ROWS}"):
        step([1, ROWS])
    np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("name, options", ROW_RULES)
def test_gradients_of_single_elements(name, options):
    """A gradient of which all dimensions are sparse, as `gather` gives it."""

    def trained(library):
        weight = library.ones(5, 4, requires_grad=True)
        optimizer = getattr(library.optim, name)([weight], **options)
        index = library.tensor([[0, 1, 1, 3], [2, 1, 0, 3]])
        for _ in range(3):
            optimizer.zero_grad()
            weight.gather(0, index, sparse_grad=True).square().sum().backward()
            optimizer.step()
        return weight.detach().numpy()

    np.testing.assert_allclose(trained(metaop), trained(torch), rtol=1e-5)


def test_16_bits():
    def trained(library):
        table = library.nn.Embedding(6, 4, sparse=True, dtype=library.bfloat16)
        table.load_state_dict({"weight": library.ones(6, 4, dtype=library.bfloat16)})
        optimizer = library.optim.SGD(table.parameters(), lr=0.25)
        (table(library.tensor([1, 2])) * 2).sum().backward()
        optimizer.step()
        return table.weight.detach().float().numpy()

    np.testing.assert_array_equal(trained(metaop), trained(torch))


def test_state_dicts():
    first, second = (Training(metaop, "SparseAdam", {"lr": 0.05}) for _ in range(2))
    for batch in BATCHES[:2]:
        first.step(batch)
    second.layers.load_state_dict(copy.deepcopy(first.layers.state_dict()))
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    for training in (first, second):
        training.step(BATCHES[2])
    for mine, other in zip(first.weights(), second.weights()):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name, options", ROW_RULES[:1] + ROW_RULES[2:4])
def test_captured_steps(name, options):
    """A captured step takes the same rows, when it does not leave its gradients behind."""
    plain, captured = (Training(metaop, name, options) for _ in range(2))

    @metaop.jit
    def step(rows):
        first, second = captured.layers
        loss = (first(rows).mean(1) * second(rows)).square().sum() + first(rows).sin().sum()
        loss.backward()
        captured.optimizer.step()
        captured.optimizer.zero_grad()
        return loss

    for batch in (*BATCHES[:4], *BATCHES[:3]):
        own = step(metaop.tensor(batch)).item()
        np.testing.assert_allclose(own, plain.step(batch).item(), rtol=1e-5)
    for mine, other in zip(captured.weights(), plain.weights()):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_a_function_that_leaves_its_gradients_runs_as_it_is():
    plain, captured = (Training(metaop, "SGD", {"lr": 0.1}) for _ in range(2))
    step = metaop.jit(captured.step)
    with pytest.warns(UserWarning, match="it leaves a sparse gradient"):
        for _ in range(4):
            step(BATCHES[0])
    for _ in range(4):
        plain.step(BATCHES[0])
    for mine, other in zip(captured.weights(), plain.weights()):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("library", [metaop, torch])
@pytest.mark.parametrize(
    "name",
    ["ASGD", "Adadelta", "Adafactor", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
     "Rprop", "Muon"],
)  # fmt: skip
def test_others_refuse(library, name):
    weight = library.ones(6, 2, requires_grad=True)
    optimizer = getattr(library.optim, name)([weight])
    rows = library.tensor([1, 1])
    library.nn.functional.embedding(rows, weight, sparse=True).sum().backward()
    said = "Adam" if name == "AdamW" and library is torch else name
    with pytest.raises(RuntimeError, match=f"{said} does not support sparse gradients"):
        optimizer.step()


@pytest.mark.parametrize("library", [metaop, torch])
@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_weight_decay_refuses(library, name):
    weight = library.ones(6, 2, requires_grad=True)
    optimizer = getattr(library.optim, name)([weight], lr=0.1, weight_decay=0.1)
    rows = library.tensor([1, 1])
    library.nn.functional.embedding(rows, weight, sparse=True).sum().backward()
    with pytest.raises(RuntimeError, match="spars"):
        optimizer.step()


@pytest.mark.parametrize("library", [metaop, torch])
def test_sparse_adam_refuses_dense_gradients(library):
    weight = library.ones(6, 2, requires_grad=True)
    weight.sum().backward()
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        library.optim.SparseAdam([weight]).step()


def test_lbfgs_takes_them_as_dense():
    def trained(library):
        weight = library.ones(6, 2, requires_grad=True)
        optimizer = library.optim.LBFGS([weight], max_iter=4)
        rows = library.tensor([1, 1, 4])

        def loss():
            optimizer.zero_grad()
            found = library.nn.functional.embedding(rows, weight, sparse=True).square().sum()
            found.backward()
            return found

        optimizer.step(loss)
        return weight.detach().numpy()

    np.testing.assert_allclose(trained(metaop), trained(torch), rtol=1e-4, atol=1e-5)


def test_the_error_names_a_way_out():
    weight = metaop.ones(6, 2, requires_grad=True)
    F.embedding(metaop.tensor([1]), weight, sparse=True).sum().backward()
    with pytest.raises(GradientError, match="SparseAdam, SGD or Adagrad"):
        metaop.optim.Adam([weight]).step()
