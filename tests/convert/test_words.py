"""What converted programs say: the words of torch.jit and of NumPy, and absent names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import absent, nn, scripting
from metaop.errors import UnsupportedError


def test_scripting_changes_nothing() -> None:
    @scripting.script
    def double(x: metaop.Tensor) -> metaop.Tensor:
        return x * 2

    @scripting.ignore(drop=True)
    def triple(x: metaop.Tensor) -> metaop.Tensor:
        return x * 3

    model = nn.Linear(2, 2)
    traced = scripting.trace(model, metaop.ones(1, 2))
    assert traced.weight is model.weight and type(traced).__name__ == "Linear"
    assert issubclass(nn.Linear, scripting.ScriptModule)
    assert not scripting.is_scripting() and not scripting.is_tracing()
    assert double(metaop.ones(1)).item() == 2
    assert triple(metaop.ones(1)).item() == 3


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "argmin", "softmax", "cumsum", "std"])
def test_methods_take_axis(name: str) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal((3, 4))
    theirs = getattr(torch.from_numpy(values), name)(axis=1)
    ours = getattr(metaop.from_numpy(values), name)(axis=1)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


def test_keepdims_is_keepdim() -> None:
    assert metaop.ones(2, 3).sum(axis=0, keepdims=True).shape == (1, 3)


def test_absent_names_can_be_imported_named_and_derived_from() -> None:
    from metaop.absent.torch.library import Library, triton_op

    class Own(Library):
        pass

    assert not isinstance(3, Library)
    for reached in (Own, triton_op, absent.torch.library.OpDef):
        with pytest.raises(UnsupportedError, match="is not in metaop"):
            reached(3)


def test_absent_names_are_not_there_for_who_asks() -> None:
    import metaop.absent.torch.library as library
    from metaop.absent.torch.library import Library

    for standin in (absent, absent.torch, library, library.passes, Library, library.Graph.node):
        assert not hasattr(standin, "anything")
        assert not hasattr(standin, "wrap")
        assert getattr(standin, "wrap", None) is None
        with pytest.raises(AttributeError, match=r"wrap is not in metaop[\s\S]*fix: "):
            getattr(standin, "wrap")  # noqa: B009
    assert hasattr(library, "__name__")
    with pytest.raises(UnsupportedError, match=r"torch\.library\.wrap is not in metaop"):
        library.wrap(3)


def test_private_names_that_programs_use() -> None:
    """Counting uses does nothing; handles and reports of keys are those that modules give."""
    pytest.importorskip("libcst")
    from metaop.convert.catalogue import lookup

    assert lookup("torch._C._log_api_usage_once").value("a.part") is None
    model = nn.Linear(2, 2)
    handle = model.register_forward_hook(lambda *_: None)
    assert isinstance(handle, lookup("torch.utils.hooks.RemovableHandle").value)
    keys = model.load_state_dict({}, strict=False)
    assert isinstance(keys, lookup("torch.nn.modules.module._IncompatibleKeys").value)


def test_private_questions_of_transforms_and_tracing() -> None:
    """Programs ask whether values can be read now."""
    pytest.importorskip("libcst")
    from metaop.convert.catalogue import lookup

    is_active = lookup("torch._C._are_functorch_transforms_active").value
    seen = []

    def step(x: metaop.Tensor) -> metaop.Tensor:
        seen.append(is_active())
        return x * 2

    metaop.vmap(step)(metaop.ones(3))
    step(metaop.ones(3))
    assert seen == [True, False]
    assert lookup("torch.fx.experimental.proxy_tensor.get_proxy_mode").value() is None
    assert lookup("torch._subclasses.fake_tensor.is_fake").value(metaop.ones(1)) is False
    assert lookup("torch.torch.Tensor").value is metaop.Tensor
    assert lookup("torch.quantization.quantize_dynamic").path.startswith("metaop.ao.quantization")
    assert issubclass(lookup("torch.jit.TracerWarning").value, Warning)


def test_the_context_of_functions_has_pytorchs_name() -> None:
    pytest.importorskip("libcst")
    from metaop.convert.catalogue import lookup

    found = []

    class Double(metaop.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found.append(ctx)
            return x * 2

    Double.apply(metaop.ones(1))
    assert isinstance(found[0], lookup("torch.autograd.function.FunctionCtx").value)


@pytest.mark.filterwarnings("ignore:The inner type")
def test_types_of_values_as_typing_writes_them() -> None:
    """As `torch.jit.isinstance` tells."""
    torch = pytest.importorskip("torch")
    x, y = metaop.ones(1), torch.ones(1)
    kinds = [
        lambda t: list[int],
        lambda t: list[t],
        lambda t: dict[str, list[t]],
        lambda t: tuple[t, int],
        lambda t: t | None,
        lambda t: (int, list[t]),
        lambda t: t,
    ]
    values = [
        lambda t: 1,
        lambda t: t,
        lambda t: [],
        lambda t: [t, 1],
        lambda t: [t, t],
        lambda t: {},
        lambda t: {"a": [t]},
        lambda t: {"a": t},
        lambda t: (t, 1),
        lambda t: (t,),
        lambda t: None,
    ]
    for kind in kinds:
        ours = [scripting.isinstance(value(x), kind(metaop.Tensor)) for value in values]
        theirs = [torch.jit.isinstance(value(y), kind(torch.Tensor)) for value in values]
        assert ours == theirs


PRIVATE = """
import torch, torchvision
import torch.utils.hooks as hooks
from torch.nn.init import _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_uniform_
from torch.nn.modules.batchnorm import _NormBase
from tensorboardX import SummaryWriter

torch._C._jit_set_profiling_executor(False)
torch._C._jit_set_profiling_mode(False)
torch._C._jit_override_can_fuse_on_cpu(True)
torch.compiler.reset()
torch._dynamo.reset()
torch.cuda._lazy_init()
lengths = torch._foreach_norm([torch.ones(4), torch.ones(9)], ord=2)
sums = torch._foreach_add([torch.ones(2)], other=[torch.ones(2)], alpha=3)
weight = torch.empty(100)
_no_grad_normal_(weight, 5.0, 0.1), _no_grad_trunc_normal_(weight, 0.0, 1.0, -2.0, 2.0)
_no_grad_uniform_(weight, 2.0, 3.0)
inside = bool(((weight >= 2) & (weight <= 3)).all())
torch.nn.init._no_grad_fill_(weight, 3.0)
filled = weight.sum().item()
torch.nn.init._no_grad_zero_(weight)
norms = isinstance(torch.nn.InstanceNorm1d(2), _NormBase), weight.sum().item()
handle = isinstance(weight.requires_grad_().register_hook(print), hooks.RemovableHandle)
new = tuple(map(int, torchvision.__version__.split(".")[:2])) > (0, 13)
twice = torch.compiler.compile(lambda x: 2 * x)(torch.ones(1)).item()


def log(folder):
    return SummaryWriter(logdir=folder)
"""


def test_programs_with_private_words_run() -> None:
    """Nothing of them is marked, and what they compute is PyTorch's."""
    pytest.importorskip("libcst")
    from metaop.convert import Verdict, convert_source

    conversion = convert_source(PRIVATE)
    assert [x for x in conversion.findings if x.verdict is Verdict.UNSUPPORTED] == []
    assert "SummaryWriter(log_dir=folder)" in conversion.text
    names: dict[str, Any] = {}
    exec(conversion.text, names)
    assert [length.item() for length in names["lengths"]] == [2, 3]
    assert names["sums"][0].tolist() == [4, 4]
    assert names["inside"] and names["filled"] == 300 and names["norms"] == (True, 0)
    assert names["handle"] and names["new"] and names["twice"] == 2


VISION = """
import torchvision
import torchvision as vision
from torchvision import __version__

def load():
    import einops
    return einops.rearrange, torchvision.models.utils.load_state_dict_from_url

same = torchvision.__version__ == vision.__version__ == __version__
"""


def test_programs_that_import_only_torchvision_reach_all_names() -> None:
    """Also those that metaop has elsewhere, for the import binds `metaop`."""
    pytest.importorskip("libcst")
    from metaop.convert import convert_source

    names: dict[str, Any] = {}
    exec(convert_source(VISION).text, names)
    assert names["same"] and names["__version__"] == metaop.version.torchvision
    assert names["load"]() == (metaop.einops.rearrange, metaop.hub.load_state_dict_from_url)


SWITCHES = """
import logging
import torch
import torch._dynamo.config as tracing
import torch._inductor.config
from torch._inductor import config as generated
from torch.distributions.utils import _standard_normal

torch._dynamo.config.suppress_errors = True
torch._dynamo.config.cache_size_limit = 8 * torch._dynamo.config.cache_size_limit
torch._inductor.config.triton.cudagraphs = True
torch._logging.set_logs(dynamo=logging.INFO, graph_breaks=True)
with torch._inductor.config.patch({"triton.cudagraphs": False}, max_autotune=True, new=1):
    inside = generated.triton.cudagraphs, generated.max_autotune
outside = generated.triton.cudagraphs, generated.max_autotune


@torch._dynamo.config.patch("verbose", True)
def called():
    return tracing.verbose


values = called(), tracing.verbose, tracing.suppress_errors, tracing.cache_size_limit
try:
    drawn = _standard_normal((200, 50), torch.float64, "cpu")
except torch.jit.Error:
    drawn = None
"""


def test_switches_of_a_compiler_that_is_not_there() -> None:
    """They are kept, for a block too, and choose nothing."""
    pytest.importorskip("libcst")
    from metaop.backends import dynamo, inductor
    from metaop.convert import Verdict, convert_source

    conversion = convert_source(SWITCHES)
    assert [x for x in conversion.findings if x.verdict is Verdict.UNSUPPORTED] == []
    kept = dict(vars(dynamo)), inductor.triton.cudagraphs
    names: dict[str, Any] = {}
    try:
        exec(conversion.text, names)
    finally:
        vars(dynamo).update(kept[0])
        inductor.triton.cudagraphs = kept[1]
    assert names["inside"] == (False, True) and names["outside"] == (True, False)
    assert not hasattr(inductor, "new")
    assert names["values"] == (True, False, True, 64)
    drawn = names["drawn"]
    assert drawn.shape == (200, 50) and drawn.dtype is metaop.float64
    assert abs(drawn.mean().item()) < 0.05 and abs(drawn.std().item() - 1) < 0.05
