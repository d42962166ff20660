"""Numbers of NumPy, and tensors of one number, where PyTorch takes whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

# One call a line; `n` makes a number.
CALLS = """
lib.zeros(n(2), n(3))
lib.zeros((n(2), n(3)))
lib.ones(n(3))
lib.full((n(2), ), 1.0)
lib.full((2, ), n(3))
lib.arange(n(5))
lib.arange(n(1), n(9), n(2))
lib.eye(n(3))
lib.linspace(0, 1, n(5))
lib.randn(n(2), n(3)).shape
lib.randint(n(2), n(5), (n(3), )).shape
lib.randperm(n(4)).shape
lib.empty(n(2)).shape
lib.arange(12).view(n(3), n(4))
lib.arange(12).view(-1, n(4))
lib.arange(12).reshape((n(3), -1))
lib.ones(3, 1).expand(n(3), n(4))
lib.ones(3).repeat(n(2), n(2))
lib.ones(3, 4).sum(n(1))
lib.ones(3, 4).sum((n(0), n(1)))
lib.ones(3, 4).sum(dim=n(1))
lib.ones(3, 4).mean(n(1))
lib.ones(3, 4).argmax(n(1))
lib.ones(3, 4).softmax(n(1))
lib.ones(3, 4).cumsum(n(1))
lib.arange(4).flip(n(0))
lib.arange(4).flip((n(0), ))
lib.arange(4).roll(n(1))
lib.arange(4).roll(n(1), n(0))
lib.ones(3, 4).roll((n(1), n(2)), (n(0), n(1)))
lib.ones(3, 4).transpose(n(0), n(1))
lib.ones(3, 4).permute(n(1), n(0))
lib.ones(3, 4).permute((n(1), n(0)))
lib.ones(3, 1).squeeze(n(1))
lib.ones(3).unsqueeze(n(1))
lib.ones(3, 1).squeeze((n(1), ))
lib.ones(2, 3, 4).flatten(n(1))
lib.ones(12).unflatten(n(0), (n(3), n(4)))
lib.arange(9).narrow(n(0), n(2), n(3))
lib.ones(3, 4).select(n(0), n(1))
lib.arange(9).chunk(n(3))
lib.arange(9).split([n(3), n(6)])
lib.arange(9).tensor_split(n(3))
lib.arange(9).tensor_split([n(3), n(5)])
lib.ones(2, 3).unbind(n(1))
lib.stack([lib.ones(3)]*2, n(1))
lib.cat([lib.ones(3, 1)]*2, n(1))
lib.arange(9).topk(n(3)).values
lib.arange(9).kthvalue(n(3)).values
lib.arange(9).sort(n(0)).values
lib.ones(3, 3).tril(n(1))
lib.ones(3, 3).triu(n(1))
lib.ones(3, 3).diag(n(1))
lib.ones(3, 3).diagonal(n(1))
lib.ones(3).diag_embed(n(1))
lib.ones(3, 4).gather(n(1), lib.zeros(3, 1, dtype=lib.int64))
lib.ones(3, 4).index_select(n(1), lib.zeros(2, dtype=lib.int64))
lib.ones(3, 4).scatter(n(1), lib.zeros(3, 1, dtype=lib.int64), n(3))
lib.ones(3).masked_fill(lib.ones(3)>0, n(3))
lib.arange(9)[n(3):n(7):n(2)]
lib.ones(3, 4)[n(1), n(2)]
lib.ones(3, 4).movedim(n(0), n(1))
lib.ones(3, 4).swapaxes(n(0), n(1))
lib.ones(3, 4).rot90(n(1))
lib.arange(3).repeat_interleave(n(2))
lib.arange(3).tile(n(2))
lib.arange(3).tile((n(2), n(2)))
lib.arange(9).unfold(n(0), n(3), n(2))
lib.ones(3, 4).size(n(1))
lib.ones(3, 4).stride(n(1))
F.one_hot(lib.arange(3), n(5))
lib.arange(3).bincount(minlength=n(7))
F.pad(lib.ones(3), (n(1), n(2)))
F.pad(lib.ones(3), (1, 2), value=n(3))
F.conv2d(lib.ones(1, 2, 5, 5), lib.ones(3, 2, 3, 3), stride=n(2), padding=n(1), dilation=n(1))
F.conv2d(lib.ones(1, 2, 5, 5), lib.ones(3, 2, 3, 3), stride=(n(2), n(1)), padding=(n(1), n(0)))
F.max_pool2d(lib.ones(1, 2, 6, 6), n(2))
F.max_pool2d(lib.ones(1, 2, 6, 6), (n(2), n(2)), n(2))
F.avg_pool2d(lib.ones(1, 2, 6, 6), n(2), stride=n(2))
F.adaptive_avg_pool2d(lib.ones(1, 2, 6, 6), (n(2), n(3)))
F.interpolate(lib.ones(1, 2, 6, 6), size=n(3))
F.interpolate(lib.ones(1, 2, 6, 6), size=(n(3), n(4)))
F.interpolate(lib.ones(1, 2, 6, 6), scale_factor=n(2))
F.pixel_shuffle(lib.ones(1, 4, 2, 2), n(2))
F.layer_norm(lib.ones(2, 3), (n(3), ))
F.group_norm(lib.ones(2, 4), n(2))
F.normalize(lib.ones(2, 4), dim=n(1))
F.glu(lib.ones(2, 4), n(1))
F.log_softmax(lib.ones(2, 4), n(1))
F.cosine_similarity(lib.ones(2, 4), lib.ones(2, 4), n(1))
F.unfold(lib.ones(1, 2, 4, 4), n(2))
F.fold(lib.ones(1, 8, 9), n(4), n(2))
lib.nn.Linear(n(3), n(4))(lib.ones(2, 3)).shape
lib.nn.Conv2d(n(3), n(4), n(3), n(2), n(1))(lib.ones(2, 3, 5, 5)).shape
lib.nn.Conv2d(n(3), n(4), (n(3), n(3)))(lib.ones(2, 3, 5, 5)).shape
lib.nn.ConvTranspose2d(n(3), n(4), n(3), output_padding=n(0))(lib.ones(2, 3, 5, 5)).shape
lib.nn.BatchNorm2d(n(3))(lib.ones(2, 3, 5, 5)).shape
lib.nn.LayerNorm(n(3))(lib.ones(2, 3)).shape
lib.nn.LayerNorm((n(2), n(3)))(lib.ones(2, 3)).shape
lib.nn.GroupNorm(n(2), n(4))(lib.ones(2, 4)).shape
lib.nn.Embedding(n(5), n(4))(lib.arange(3)).shape
lib.nn.Embedding(5, 4, padding_idx=n(0))(lib.arange(3)).shape
lib.nn.MultiheadAttention(n(4), n(2))(*[lib.ones(5, 2, 4)] * 3)[0].shape
lib.nn.TransformerEncoderLayer(n(4), n(2), n(8))(lib.ones(5, 2, 4)).shape
lib.nn.Dropout(n(0))(lib.ones(3))
lib.nn.MaxPool2d(n(2), n(2))(lib.ones(1, 2, 4, 4))
lib.nn.Upsample(scale_factor=n(2))(lib.ones(1, 2, 4, 4))
lib.nn.Flatten(n(1))(lib.ones(2, 3, 4))
lib.nn.Softmax(n(1))(lib.ones(2, 3))
lib.nn.PixelShuffle(n(2))(lib.ones(1, 4, 2, 2))
lib.nn.ZeroPad2d(n(1))(lib.ones(1, 1, 2, 2))
lib.nn.ReflectionPad2d(n(1))(lib.ones(1, 1, 4, 4))
lib.nn.PReLU(n(3))(lib.ones(1, 3))
lib.nn.Bilinear(n(2), n(3), n(4))(lib.ones(1, 2), lib.ones(1, 3)).shape
lib.nn.RNNCell(n(2), n(3))(lib.ones(1, 2)).shape
lib.nn.InstanceNorm2d(n(2))(lib.ones(1, 2, 4, 4))
lib.nn.EmbeddingBag(n(5), n(2))(lib.arange(3)[None]).shape
lib.nn.Fold(n(4), n(2))(lib.ones(1, 8, 9))
lib.manual_seed(n(3)) is None
lib.linalg.norm(lib.ones(2, 3), dim=n(1))
lib.linalg.vector_norm(lib.ones(2, 3), n(2), n(1))
lib.linalg.matrix_power(lib.ones(2, 2), n(2))
lib.ones(3).pow(n(2))
lib.arange(3)+n(2)
n(2)+lib.arange(3)
lib.ones(3)*n(2)
lib.arange(3)==n(2)
lib.arange(5).clamp(n(1), n(3))
lib.fft.fftn(lib.ones(4, 4), (n(2), n(2)))
lib.stft(lib.ones(32), n(8), n(4), window=lib.ones(8), return_complex=True).shape
lib.ones(3, 4).std(n(1))
lib.ones(3, 4).var(dim=n(1), correction=n(0))
lib.ones(3, 4).quantile(0.5, dim=n(1))
lib.ones(3).histc(n(4), n(0), n(2))
lib.ones(3).multinomial(n(2)).shape
lib.ones(3).new_zeros(n(2), n(2))
lib.ones(3).new_full((n(2), ), n(3))
lib.arange(9).as_strided((n(2), n(2)), (n(1), n(2)), n(1))
lib.ones(3, 1).broadcast_to((n(3), n(2)))
lib.arange(5).diff(n(2))
lib.ones(3, 4).logsumexp(n(1))
lib.ones(3, 4).prod(n(1))
lib.ones(3, 4).any(n(1))
lib.ones(3, 4).unique(dim=n(0))
lib.ones(3, 4).median(n(1)).values
lib.ones(3, 4).count_nonzero(n(1))
lib.ones(3, 4).nansum(n(1))
lib.vander(lib.arange(3), n(2))
lib.linalg.cross(lib.ones(2, 3), lib.ones(2, 3), dim=n(1))
lib.zeros(3).index_add(n(0), lib.arange(3), lib.ones(3))
lib.combinations(lib.arange(4), n(2))
lib.tril_indices(n(3), n(3), n(0))
lib.nn.Unfold(n(2))(lib.ones(1, 1, 4, 4))
F.lp_pool2d(lib.ones(1, 1, 4, 4), n(2), n(2))
F.leaky_relu(-lib.ones(3), n(1))
F.elu(-lib.ones(3), n(1))
F.gumbel_softmax(lib.ones(3, 4), dim=n(1)).shape
lib.hann_window(n(5))
lib.logspace(n(0), n(2), n(3))
lib.meshgrid(lib.arange(n(2)), lib.arange(n(3)), indexing='ij')[0]
lib.arange(9)[n(3)]
lib.arange(9)[n(3):]
lib.tensor([n(3), n(4)])
lib.optim.SGD([lib.ones(2).requires_grad_()], lr=n(1)).param_groups[0]["lr"]
"""
NUMBERS: dict[str, Callable[[Any], Callable[[int], Any]]] = {
    "int64": lambda lib: np.int64,
    "int32": lambda lib: np.int32,
    "uint8": lambda lib: np.uint8,
    "array": lambda lib: np.array,
    "tensor": lambda lib: lib.tensor,
}


def plain(value: Any) -> Any:
    """What a call gave, in a form that can be compared."""
    if isinstance(value, (torch.Tensor, metaop.Tensor)):
        name = str(value.dtype).split(".")[-1]
        values = value.detach().numpy()
        return name, tuple(value.shape), np.round(values.astype(complex), 4).tolist()
    if isinstance(value, (list, tuple)):
        return tuple([plain(one) for one in value])
    return value


def called(lib: Any, call: str, number: str) -> Any:
    return plain(eval(call, {"lib": lib, "F": lib.nn.functional, "n": NUMBERS[number](lib)}))


@pytest.mark.parametrize("call", CALLS.strip().splitlines())
def test_calls_with_other_whole_numbers(call: str) -> None:
    accepted = []
    for number in NUMBERS:
        try:
            wanted = called(torch, call, number)
        except Exception:
            continue  # PyTorch takes few arrays
        assert called(metaop, call, number) == wanted, number
        accepted.append(number)
    assert {"int64", "int32", "uint8"} <= {*accepted}


@pytest.mark.parametrize(
    "mistake",
    """
lib.zeros(True, 2)
lib.ones((True, 2))
lib.ones(3).reshape(True, 3)
lib.ones(3, 4).sum(True)
lib.ones(3, 4).sum(dim=True)
lib.ones(3, 4).softmax(True)
lib.ones(3, 4).permute(True, False)
lib.ones(3, 4).transpose(True, False)
lib.ones(3).unsqueeze(True)
lib.arange(9)[2.0:]
lib.arange(9)[:lib.tensor(2.5)]
lib.arange(9)["a":]
lib.device(True)
""".strip().splitlines(),
)
def test_what_is_no_whole_number_is_refused(mistake: str) -> None:
    for lib in (torch, metaop):
        with pytest.raises((TypeError, RuntimeError)):
            eval(mistake, {"lib": lib})
