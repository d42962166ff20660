"""A program with classes below Tensor, for the library that its argument names.

It prints the class of what each call gives. Its classes change what programs call, so it runs in a
process of its own.
"""

import copy
import importlib
import pickle
import sys
import warnings

warnings.simplefilter("ignore")
torch = importlib.import_module(sys.argv[1])
nn = torch.nn
F = nn.functional


class Named(torch.Tensor):
    """Results keep the class."""


class Below(Named):
    """Comes before the class above it."""


class Logged(torch.Tensor):
    """Notes each function that sees it."""

    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append((func.__name__, [one.__name__ for one in types]))
        return super().__torch_function__(func, types, args, kwargs)


class Ignorant(torch.Tensor):
    """Knows no function."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class WithNotes:
    """A base before Tensor with attributes of its own."""

    @property
    def notes(self):
        return self._notes


class Annotated(WithNotes, torch.Tensor):
    """Hands its notes on."""

    @staticmethod
    def __new__(cls, data, notes=()):
        made = torch.as_tensor(data).as_subclass(cls)
        made._notes = list(notes)
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, cls):
            result._notes = [one for arg in args if isinstance(arg, cls) for one in arg._notes]
        return result


class OwnParameter(nn.Parameter):
    """Operators on parameters give plain tensors."""


def told(value):
    if isinstance(value, (tuple, list)):
        return [type(one).__name__ for one in value]
    return type(value).__name__


x, plain = torch.ones(2, 3).as_subclass(Named), torch.ones(2, 3)
below, logged = torch.ones(2, 3).as_subclass(Below), torch.ones(2, 3).as_subclass(Logged)
leaf = torch.ones(2).as_subclass(Named).requires_grad_()
CALLS = {
    "sum of both": lambda: x + plain,
    "the other order": lambda: plain + x,
    "with a number": lambda: 2 - x,
    "negative": lambda: -x,
    "element": lambda: x[0],
    "elements": lambda: list(x),
    "view": lambda: x.view(3, 2),
    "property": lambda: x.T,
    "data": lambda: x.data,
    "in a list": lambda: torch.stack([plain, x]),
    "in a tuple": lambda: torch.cat((x, plain)),
    "several results": lambda: x.split(1),
    "results with names": lambda: x.max(1),
    "number": lambda: x.sum().item(),
    "array": lambda: x.numpy(),
    "shape": lambda: x.shape,
    "comparison": lambda: x == plain,
    "detached": lambda: x.detach(),
    "another type": lambda: x.double(),
    "like": lambda: torch.zeros_like(x),
    "new": lambda: x.new_zeros(2),
    "as tensor": lambda: torch.as_tensor(x),
    "plain again": lambda: x.as_subclass(torch.Tensor),
    "written": lambda: x.clone().add_(1),
    "copied into": lambda: plain.clone().copy_(x),
    "by keyword": lambda: torch.mul(plain, other=x),
    "product": lambda: plain @ x.T,
    "equation": lambda: torch.einsum("ij,kj->ik", x, plain),
    "choice": lambda: torch.where(x > 0, x, plain),
    "function": lambda: F.relu(x),
    "loss": lambda: F.mse_loss(x, plain),
    "convolution": lambda: F.conv1d(x[None], torch.ones(1, 2, 1)),
    "decomposition": lambda: torch.linalg.svd(x),
    "transform": lambda: torch.fft.fft(x),
    "special": lambda: torch.special.erf(x),
    "layer": lambda: nn.Linear(3, 2)(x),
    "layers": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))(x),
    "recurrent": lambda: nn.LSTM(3, 2)(x[None])[0],
    "gradient": lambda: (leaf * leaf).sum().backward() or leaf.grad.sum(),
    "below": lambda: below + x,
    "below last": lambda: x + below,
    "unrelated": lambda: x + logged,
    "nobody knows": lambda: torch.ones(1).as_subclass(Ignorant).abs(),
    "parameter": lambda: OwnParameter(torch.ones(2)) * 2,
    "made": lambda: torch.Tensor._make_subclass(Named, torch.ones(2)),
    "copy": lambda: copy.copy(x),
    "test": lambda: torch.is_tensor(x),
    "overridden": lambda: torch.overrides.has_torch_function((x,)),
    "plain one": lambda: torch.overrides.has_torch_function((plain, 1)),
}
for name, call in CALLS.items():
    try:
        print(name, told(call()))
    except TypeError as error:
        print(name, type(error).__name__)
    except AttributeError as error:
        print(name, error)
Logged.seen.clear()
torch.stack([logged, plain]), F.gelu(logged), logged.abs(), torch.abs(logged)
print(Logged.seen)
with (
    torch._C.DisableTorchFunctionSubclass()
    if hasattr(torch, "_C")
    else (torch.overrides.DisableTorchFunctionSubclass())
):
    print(told(x + 1))
noted = Annotated([1.0, 2.0], ["one"]) * Annotated([3.0, 4.0], ["two"])
print(told(noted), noted.notes, noted.tolist(), sorted(vars(noted)), dict(vars(noted)))
kept = copy.deepcopy(noted.__dict__)
noted.__dict__ = {"_notes": ["new"], "size_of_file": 3}
print(kept, noted.notes, noted.size_of_file, noted.sum().item())
print(pickle.loads(pickle.dumps(dict(noted.__dict__))), told(torch.ones(1) + 1))
