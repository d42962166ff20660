"""Common mistakes raise the built-in error that PyTorch raises: programs catch what they expect."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

# One mistake a line; both libraries run it.
MISTAKES = """
lib.ones(2,3) @ lib.ones(2,3)
lib.mm(lib.ones(2,3), lib.ones(3))
lib.bmm(lib.ones(2,3,4), lib.ones(3,4,5))
lib.matmul(lib.ones(()), lib.ones(2))
lib.mv(lib.ones(2,3), lib.ones(2))
lib.dot(lib.ones(2), lib.ones(3))
lib.addmm(lib.ones(3), lib.ones(2,3), lib.ones(2,3))
lib.ones(2) + lib.ones(3)
lib.cat([lib.ones(2,3), lib.ones(2,4)])
lib.cat([])
lib.cat([lib.ones(2)], 3)
lib.cat([1, 2])
lib.cat([lib.ones(2), lib.ones(2, 2)])
lib.stack([lib.ones(2), lib.ones(3)])
lib.stack([])
lib.ones(6).view(4)
lib.ones(2,3).t().view(6)
lib.ones(6).view(-1,-1)
lib.ones(6).view("a")
lib.ones(6).reshape(5)
lib.ones(6).reshape("6")
lib.ones(2).expand(3)
lib.ones(2,3).expand(3)
lib.ones(2,3).permute(0)
lib.ones(2,3).permute(0,0)
lib.ones(2,3).transpose(0,5)
lib.ones(2).squeeze(4)
lib.ones(2).unsqueeze(4)
lib.ones(2)[5]
lib.ones(2)[0,0]
lib.ones(2)[lib.tensor([5])].tolist()
lib.ones(2)[0.5]
lib.ones(2)["a"]
lib.ones(())[0]
lib.ones(2)[lib.tensor([True,False,True])]
lib.ones(2)[lib.tensor([0.,1.])]
lib.ones(4)[::-1]
exec("x=lib.ones(3); x[:2]=lib.ones(3)")
exec("x=lib.ones(3); x[7]=1.")
lib.ones(2).sum(3)
lib.ones(2).sum(0.5)
lib.ones(2).long().mean()
lib.softmax(lib.ones(2), 3)
lib.softmax(lib.ones(2).long(), 0)
lib.ones(0).argmax()
lib.ones(0).max()
lib.ones(2).item()
float(lib.ones(2))
int(lib.ones(2))
bool(lib.ones(2))
list(lib.ones(()))
len(lib.ones(()))
lib.ones(2, requires_grad=True).numpy()
lib.ones(2).long().requires_grad_()
lib.tensor([1], requires_grad=True)
exec("x=lib.ones(2,requires_grad=True); y=(x*x).sum(); y.backward(); y.backward()")
lib.ones(2).sum().backward()
(lib.ones(2, requires_grad=True)*2).backward()
(lib.ones(2, requires_grad=True)*2).backward(lib.ones(3))
lib.ones(2, requires_grad=True).add_(1)
exec("x=lib.ones(2,requires_grad=True); x[0]=1.")
exec("x=lib.ones(2,requires_grad=True); y=x.exp(); y.add_(1); y.sum().backward()")
lib.autograd.grad(lib.ones(2,requires_grad=True).sum(), lib.ones(2,requires_grad=True))
lib.autograd.grad(lib.ones(2,requires_grad=True).sum(), lib.ones(2))
exec("x=lib.ones(2,requires_grad=True); x.grad=lib.ones(3)")
exec("x=lib.ones(2,requires_grad=True); x.grad=1.")
lib.ones(2).to("cuda")
lib.ones(2).cuda()
lib.ones(2).to("nonsense")
lib.ones(2).to({})
lib.device("nonsense")
lib.ones(2, dtype="float32")
lib.ones(2).long().add_(0.5)
lib.ones(2) & lib.ones(2)
(lib.tensor([1]) // lib.tensor([0])).tolist()
-lib.tensor([True])
lib.tensor([True]) - lib.tensor([True])
lib.ones(2,2) @ lib.ones(2,2).double()
lib.nn.functional.linear(lib.ones(2,2), lib.ones(2,2).double())
lib.ones(2,2) @ lib.ones(2,2).long()
lib.nn.Linear(2,3)(lib.ones(2,4))
lib.nn.Linear(2,3)(lib.ones(2,2).long())
lib.nn.Conv2d(3,4,3)(lib.ones(1,2,8,8))
lib.nn.Conv2d(3,4,3)(lib.ones(1,3,2,2))
lib.nn.Conv2d(3,4,3)(lib.ones(3,3))
lib.nn.Conv2d(3,4,3,groups=2)
lib.nn.Conv2d(3,4,3,padding="other")
lib.nn.Conv2d(3,4,3,padding="same",stride=2)
lib.nn.BatchNorm1d(3)(lib.ones(1,3))
lib.nn.BatchNorm2d(3)(lib.ones(2,3))
lib.nn.LayerNorm(3)(lib.ones(2,4))
lib.nn.GroupNorm(2,3)
lib.nn.Embedding(3,2)(lib.tensor([5])).tolist()
lib.nn.Embedding(3,2)(lib.ones(2))
lib.nn.Embedding(3,2,padding_idx=7)
lib.nn.functional.cross_entropy(lib.ones(2,3), lib.tensor([0,1,2]))
lib.nn.functional.cross_entropy(lib.ones(2,3), lib.tensor([0,7])).item()
lib.nn.functional.cross_entropy(lib.ones(2,3), lib.ones(2))
lib.nn.functional.nll_loss(lib.ones(2,3), lib.tensor([0,1], dtype=lib.int32))
lib.nn.functional.binary_cross_entropy(lib.ones(2)*3, lib.ones(2)).item()
lib.nn.functional.binary_cross_entropy(lib.ones(2), lib.ones(3))
lib.nn.functional.mse_loss(lib.ones(2), lib.ones(3))
lib.nn.functional.mse_loss(lib.ones(2), lib.ones(2), reduction="all")
lib.nn.Dropout(2.0)
lib.nn.functional.dropout(lib.ones(2), 2.0)
lib.nn.LSTM(2,3)(lib.ones(2))
lib.nn.LSTM(2,3)(lib.ones(4,1,5))
lib.nn.LSTM(2,3)(lib.ones(4,1,2), (lib.ones(1,1,4), lib.ones(1,1,3)))
lib.nn.MultiheadAttention(5,2)
lib.nn.functional.max_pool2d(lib.ones(1,1,4,4), 2, padding=3)
lib.nn.functional.max_pool2d(lib.ones(4), 2)
lib.nn.functional.avg_pool2d(lib.ones(1,1,2,2), 4)
lib.nn.functional.interpolate(lib.ones(1,1,2,2))
lib.nn.functional.interpolate(lib.ones(1,1,2,2), 4, mode="odd")
lib.nn.functional.pad(lib.ones(2), (1,))
lib.nn.functional.pad(lib.ones(1,1,2), (3,3), mode="reflect")
lib.nn.functional.one_hot(lib.ones(2))
lib.nn.functional.one_hot(lib.tensor([4]), 3).tolist()
lib.nn.Linear(2,3).load_state_dict({})
lib.nn.Linear(2,3).load_state_dict({**lib.nn.Linear(2,3).state_dict(), "x": lib.ones(1)})
lib.nn.Linear(2,3).load_state_dict(lib.nn.Linear(3,3).state_dict())
lib.nn.Linear(2,3).load_state_dict([1])
lib.nn.Linear(2,3).nothing
lib.ones(2).nothing
lib.nothing
lib.nn.Linear(2,3).register_parameter("w", 3)
lib.nn.Linear(2,3).register_buffer("weight", lib.ones(1))
setattr(lib.nn.Linear(2,3), "weight", lib.ones(2))
lib.nn.Linear(2,3).add_module("a", 3)
lib.nn.Module()(lib.ones(1))
lib.nn.Sequential(3)
lib.nn.ModuleList([lib.nn.ReLU()])[4]
lib.nn.ModuleDict({})["a"]
lib.nn.Linear(2,3).get_submodule("a")
lib.nn.Linear(2,3).get_parameter("a")
lib.optim.SGD([], lr=0.1)
lib.optim.SGD([lib.ones(2,requires_grad=True)], lr=-1.)
lib.optim.SGD([lib.ones(2,requires_grad=True)*2], lr=1.)
lib.optim.SGD(lib.ones(2,requires_grad=True), lr=1.)
lib.optim.SGD([3], lr=1.)
lib.optim.Adam([lib.ones(2,requires_grad=True)], betas=(2.,0.9))
lib.optim.SGD([lib.ones(2,requires_grad=True)], lr=1., nesterov=True)
lib.optim.SGD([{"params":[P(lib)]},{"params":[P(lib)]}], lr=1.)
lib.optim.LBFGS([lib.ones(2,requires_grad=True)]).step()
lib.optim.SGD([P(lib)], lr=1.).load_state_dict({"param_groups":[],"state":{}})
lib.optim.lr_scheduler.StepLR(3, 1)
lib.linalg.cholesky(-lib.eye(2)).tolist()
lib.linalg.inv(lib.zeros(2,2)).tolist()
lib.inverse(lib.zeros(2,2)).tolist()
lib.linalg.solve(lib.zeros(2,2), lib.ones(2)).tolist()
lib.linalg.inv(lib.zeros(2,3))
lib.linalg.det(lib.zeros(2,3))
lib.linalg.cholesky(lib.eye(2).long())
lib.linalg.eigh(lib.zeros(3))
lib.einsum("ij,jk->ik", lib.ones(2,3), lib.ones(2,3))
lib.einsum("ij,jk->ik", lib.ones(2,3))
lib.gather(lib.ones(2), 0, lib.tensor([4])).tolist()
lib.gather(lib.ones(2), 0, lib.ones(1))
lib.zeros(2).scatter(0, lib.tensor([4]), 1.).tolist()
lib.ones(2).index_select(0, lib.tensor([4])).tolist()
lib.ones(2).index_select(0, lib.ones(1))
lib.ones(2).masked_fill(lib.ones(2), 0.)
lib.ones(2).masked_select(lib.ones(2))
lib.where(lib.ones(2), lib.ones(2), lib.ones(2))
lib.ones(2).topk(5)
lib.ones(2).sort(4)
lib.ones(2).kthvalue(7)
lib.ones(4).split([1,2])
lib.ones(4).split(0)
lib.ones(4).chunk(0)
lib.ones(4).narrow(0,2,5)
lib.ones(2,3).repeat(2)
lib.tensor([[1],[2,3]])
lib.tensor("a")
lib.tensor(None)
lib.tensor([object()])
lib.zeros(-1)
lib.zeros(2.5)
lib.arange(0, 5, -1)
lib.arange(0, 5, 0)
lib.linspace(0, 1, -2)
lib.randint(5, 5, (2,))
lib.eye(-1)
lib.full((2,), "a")
lib.from_numpy([1])
lib.from_numpy(np.array(["a"]))
lib.normal(0., -1., (2,))
lib.multinomial(lib.ones(2), 5).tolist()
lib.utils.data.DataLoader([1,2], batch_size=0)
lib.utils.data.DataLoader([1,2], shuffle=True, sampler=[0])
lib.utils.data.TensorDataset(lib.ones(2), lib.ones(3))
lib.utils.data.random_split([1,2,3], [1,1])
lib.nn.utils.clip_grad_norm_([G(lib)], 1.0, error_if_nonfinite=True)
lib.nn.utils.rnn.pack_padded_sequence(lib.ones(0,0,2), lib.tensor([], dtype=lib.int64))
lib.nn.utils.rnn.pack_padded_sequence(lib.ones(3,2,2), [1,3])
lib.nn.utils.rnn.pack_padded_sequence(lib.ones(3,2,2), [3,0])
lib.load("/nonexistent/file")
lib.func.vmap(lambda a,b: a+b)(lib.ones(2), lib.ones(3))
lib.func.vmap(lambda a: a)(3)
lib.func.grad(lambda a: a*2)(lib.ones(2))
lib.func.jvp(lambda a: a*2, (lib.ones(2),), (lib.ones(3),))
lib.distributions.Normal(lib.ones(2), -lib.ones(2))
lib.distributions.Categorical(lib.tensor([-1.,2.]))
lib.distributions.Normal(0.,1.).log_prob("a")
lib.manual_seed("a")
lib.set_default_dtype(lib.int64)
lib.nn.functional.pixel_shuffle(lib.ones(1,3,2,2), 2)
lib.nn.functional.cosine_similarity(lib.ones(2), lib.ones(3))
(lib.tensor([2]) ** -1).tolist()
lib.ones(6).unflatten(0, (4,2))
lib.ones(2).tril()
lib.ones(2,2,2).diag()
lib.linalg.cross(lib.ones(2), lib.ones(2))
lib.fft.fft(lib.ones(0))
lib.complex(lib.ones(2), lib.ones(2).double())
lib.ones(2).cumsum(4)
lib.trace(lib.ones(2))
"a" in lib.ones(2)
__import__("copy").deepcopy(lib.ones(2,requires_grad=True)*2)
exec("x=lib.ones(2); x += 'a'")
lib.relu(lib.ones(2), nothing=1)
lib.relu()
"""


def parameter(lib: Any) -> Any:
    """A parameter, the same one at each call."""
    return KEPT.setdefault(lib.__name__, lib.ones(2, requires_grad=True))


def with_infinite_gradient(lib: Any) -> Any:
    found = lib.ones(2, requires_grad=True)
    found.grad = lib.ones(2) * float("inf")
    return found


KEPT: dict[str, Any] = {}


def raised(lib: Any, mistake: str) -> Exception | None:
    names = {"lib": lib, "np": np, "P": parameter, "G": with_infinite_gradient}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(mistake, names)
        except Exception as error:
            return error
    return None


def built_in(error: Exception) -> type:
    """The most special built-in class of an error."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_is_the_same_built_in_error(mistake: str) -> None:
    expected, found = raised(torch, mistake), raised(metaop, mistake)
    assert (found is None) == (expected is None), found
    if expected is not None:
        assert isinstance(found, built_in(expected))
        singular = isinstance(expected, torch.linalg.LinAlgError)
        assert not singular or isinstance(found, metaop.linalg.LinAlgError)
