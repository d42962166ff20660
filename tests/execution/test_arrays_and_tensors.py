"""Arrays and tensors in the same memory: each sees what the other writes, when PyTorch shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.execution.executor import watchers

torch = pytest.importorskip("torch")

LARGE = (300, 300)


def pending_results(T: Any) -> Any:
    array = np.arange(6.0, dtype=np.float32)
    x = T.from_numpy(array)
    y, total = x * 2, x.sum()
    array[:] = 0
    return y, total, x


def a_buffer_that_is_filled_again_and_again(T: Any) -> Any:
    array = np.zeros(3, np.float32)
    x, sums = T.from_numpy(array), []
    for k in range(3):
        array[k] = k + 1
        sums.append((x**2).sum())
    return sums


def a_state_computed_from_a_buffer(T: Any) -> Any:
    array = np.zeros(3, np.float32)
    x, state, states = T.from_numpy(array), T.zeros(3), []
    for k in range(4):
        array[:] = k
        state = T.tanh(state + x)
        states.append(state)
    return states


def large_values(T: Any) -> Any:
    array = np.ones(LARGE, np.float32)
    x = T.from_numpy(array)
    total, row, most = x.sum(), x[5], x.max(0)
    picked = x[T.tensor([0, 7])]
    product = T.relu(x) @ T.ones(LARGE[1])
    array[:] = 2
    return total, row, most.values, most.indices, picked, product


def writes_of_tensors(T: Any) -> Any:
    array = np.ones((2, 3), np.float32)
    x = T.from_numpy(array)
    x.add_(1)
    x[1, 2] = 9
    x.view(-1)[:2].mul_(3)
    x.detach()[0, 2] = 7
    x.data[1, 0] = 6
    T.add(x, x, out=x)
    return array, x


def writes_to_lent_arrays(T: Any) -> Any:
    x = T.ones(3)
    array = x.numpy()
    x.add_(1)
    first = array.copy()
    array[:] = 7
    y = x * 2
    array[0] = 0
    return first, x, y


def a_scalar(T: Any) -> Any:
    x = T.tensor(5.0)
    array, y = x.detach().numpy(), x + 1
    array[...] = 7
    return x, y, x + 1


def parts_of_arrays(T: Any) -> Any:
    found = []
    for part in (
        lambda a: a[1:],
        lambda a: a[:, 1],
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[0, 1:, 3],
        lambda a: a[..., ::2],
        lambda a: np.asfortranarray(a)[1],
        lambda a: a.reshape(-1)[3:],
    ):
        whole = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
        array = part(whole)
        x = T.from_numpy(array)
        y = x * 2
        array += 1
        x.mul_(3)
        lent = x.numpy()
        lent -= 1
        found += [y, x, array, whole]
    return found


def lent_views(T: Any) -> Any:
    x = T.arange(12.0).view(3, 4)
    array, row = x.t().numpy(), x[1]
    array[0] = -1
    x[2] = 5
    row.mul_(2)
    return array, x, row


def parts_of_complex_numbers(T: Any) -> Any:
    x = T.zeros(2, 3, dtype=T.complex64)
    x.real.numpy()[0] = 2
    array = T.view_as_real(x).numpy()
    array[1, 2, 1] = 5
    x.mul_(2)
    return T.view_as_real(x), array, x.imag.t()


def an_array_that_is_gone(T: Any) -> Any:
    array = np.ones(4, np.float32)
    x = T.from_numpy(array)
    first = x[:2]
    array += 1
    del array
    x.add_(first.sum())
    return x, first


def optimizers(T: Any) -> Any:
    found = []
    for make in (T.optim.SGD, T.optim.Adam):
        p = T.nn.Parameter(T.ones(3))
        array = p.detach().numpy()
        optimizer = make([p], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (p * p * p).sum().backward()
            optimizer.step()
        found += [array, p.detach()]
        gradient = p.grad.numpy()
        optimizer.zero_grad(set_to_none=False)
        found.append(gradient)
    return found


def states_of_modules(T: Any) -> Any:
    layer, norm = T.nn.Linear(2, 2), T.nn.BatchNorm1d(2)
    weight, mean = layer.weight.detach().numpy(), norm.running_mean.numpy()
    T.nn.init.constant_(layer.weight, 2.0)
    first = weight.copy()
    layer.load_state_dict({"weight": T.full((2, 2), 5.0), "bias": T.zeros(2)})
    norm(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
    count = norm.num_batches_tracked.numpy()
    norm(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return first, weight, mean, count


def second_gradients(T: Any) -> Any:
    array = np.arange(4.0, dtype=np.float32)
    x = T.from_numpy(array).requires_grad_()
    (gradient,) = T.autograd.grad((x.view(2, 2) ** 3).sum(), x, create_graph=True)
    (second,) = T.autograd.grad(gradient.sum(), x)
    hessian = T.func.hessian(lambda x: (x.sin() * x.sum()).sum())(T.from_numpy(array))
    return gradient.detach(), second, hessian


def elements_of_a_data_set(T: Any) -> Any:
    array = np.arange(400.0, dtype=np.float32).reshape(4, 100)
    data = T.utils.data.TensorDataset(T.from_numpy(array))
    (x,) = data[1]
    y = x.sum()
    array[1] = 0
    x[0] = 8
    return y, x, array


def another_library(T: Any) -> Any:
    x = T.zeros(3)
    array = np.from_dlpack(x)
    x.add_(1)
    y = T.from_dlpack(array)
    y.mul_(4)
    return x, array


CASES: list[Callable[[Any], Any]] = [
    pending_results,
    a_buffer_that_is_filled_again_and_again,
    a_state_computed_from_a_buffer,
    large_values,
    writes_of_tensors,
    writes_to_lent_arrays,
    a_scalar,
    parts_of_arrays,
    lent_views,
    parts_of_complex_numbers,
    an_array_that_is_gone,
    optimizers,
    states_of_modules,
    second_gradients,
    elements_of_a_data_set,
    another_library,
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's hessian
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_against_torch(case: Callable[[Any], Any]) -> None:
    for ours, theirs in zip(case(metaop), case(torch), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-5, atol=1e-6)


def test_gradients_read_the_values_that_the_call_has_read() -> None:
    """PyTorch reads the array again, without notice; metaop has the values of the call."""
    array = np.ones(3, np.float32)
    w = metaop.full((3,), 2.0, requires_grad=True)
    y = (w * metaop.from_numpy(array)).sum()
    array[:] = 5
    y.backward()
    assert y.item() == 6
    assert w.grad.tolist() == [1, 1, 1]


def test_arrays_that_nobody_else_holds_cut_nothing() -> None:
    class Cuts:
        count = 0

        def begun(self, subgraph: object) -> None:
            self.count += 1

        def compiled(self, *arguments: object) -> None: ...

        def computed(self, *arguments: object) -> None: ...

    cuts = Cuts()
    watchers.append(cuts)
    try:
        x = metaop.from_numpy(np.ones(LARGE, np.float32))
        total = (metaop.relu(x[3:]) + 1).sum()
        assert cuts.count == 0
        assert total.item() == 2 * 297 * 300
        assert cuts.count == 1
        array = np.ones(LARGE, np.float32)
        x = metaop.from_numpy(array)
        total = (metaop.relu(x[3:]) + 1).sum()
        assert cuts.count == 2
        array[:] = 0
        assert total.item() == 2 * 297 * 300
    finally:
        watchers.remove(cuts)


def test_memory_stays_as_long_as_an_array_shows_it() -> None:
    x = metaop.arange(1000.0)
    array = x.numpy()
    for _ in range(3):
        x.add_(1)
    del x
    others = [metaop.full((1000,), float(k)) for k in range(20)]
    metaop.stack(others).sum().item()
    np.testing.assert_array_equal(array, np.arange(3.0, 1003.0))
