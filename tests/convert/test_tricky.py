"""Programs that reach PyTorch by unusual ways: the conversion does the same, or is reported."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst")
pytest.importorskip("torch")
from metaop.convert import Verdict, convert_path, convert_source
from metaop.convert.catalogue import becomes_a_method, lookup
from metaop.convert.tables import PACKAGES_IN_C

# Each sets `result`, from which nothing of PyTorch can be told.
SAME: dict[str, str] = {
    "import_module": """
        import importlib
        nn = importlib.import_module("torch.nn")
        result = nn.Linear(2, 3)(importlib.import_module("torch").ones(2)).shape[0]
        """,
    "a decorator that is told what it replaces": """
        import torch

        def replaced(target, root=torch):
            parts = target.split(".")
            assert parts[0] == root.__name__
            for part in parts[1:-1]:
                root = getattr(root, part)
            return lambda function: (getattr(root, parts[-1]), function)

        @replaced("torch.nn.functional.relu")
        def relu(x):
            return x.clamp(min=0)

        x = torch.tensor([-1.0, 2.0])
        result = [f(x).tolist() for f in relu]
        """,
    "functions in C as attributes of a class, which are no methods": """
        import dataclasses
        import torch
        import torch.nn.functional as F
        from torch import tanh

        class Layer:
            act = torch.relu
            curve: object = F.softplus
            first, (second) = tanh, torch.sign
            norm = torch.norm
            pair = (torch.relu, torch.neg)

        @dataclasses.dataclass
        class Options:
            act: object = torch.sigmoid

        x, layer = torch.tensor([-1.0, 2.0]), Layer()
        functions = [layer.act, layer.curve, layer.first, layer.second, Layer.act, *layer.pair]
        result = [f(x).round().tolist() for f in (*functions, Options().act)]
        result += [hasattr(layer.norm, "__self__"), dataclasses.fields(Options)[0].name]
        """,
    "a decorator of the standard library that is told what it replaces": """
        import torch
        from unittest import mock

        @mock.patch("torch.relu")
        def called(relu):
            torch.relu(1)
            return relu.call_count

        result = called()
        """,
    "whether something is being traced": """
        import torch
        result = torch._C._get_tracing_state() is None, torch._C._is_tracing()
        """,
    "import_module under another name": """
        from importlib import import_module as im
        result = im("torch.nn.functional").relu(im("torch").tensor([-1.0, 2.0])).tolist()
        """,
    "import_module as a keyword": """
        import importlib as il
        result = il.import_module(name="torch.autograd").Function.__name__
        """,
    "import_module of a renamed module": """
        import importlib
        result = importlib.import_module("torch.nn.modules.linear").Linear(1, 2).out_features
        """,
    "import_module relative to a package": """
        import importlib
        result = importlib.import_module(".functional", package="torch.nn").relu is not None
        """,
    "import_module of a computed name": """
        import importlib
        name = "nn"
        result = importlib.import_module("torch." + name).Linear(1, 2).out_features
        """,
    "import_module of an f-string": """
        from importlib import import_module
        name = "nn"
        result = import_module(f"torch.{name}").Linear(1, 2).out_features
        """,
    "a distribution's version": """
        import importlib.metadata
        result = importlib.metadata.version("torch").partition("+")[0]
        """,
    "a guard that is told the name of a package": """
        import importlib.metadata
        import importlib.util

        def release(name):
            if importlib.util.find_spec(name) is None:
                return "not there"
            return importlib.metadata.version(name).partition("+")[0]

        def own(name):
            return importlib.import_module("." + name, "email").__name__

        result = release("torch"), release("no_such_package"), own("message")
        """,
    "types and words for TorchScript": """
        import torch
        from torch.jit.annotations import List
        from typing import get_args

        def first(xs: List[torch.Tensor]) -> torch.Tensor:
            return torch.jit.annotate(torch.Tensor, xs[0])

        one = get_args(first.__annotations__["xs"])[0] is torch.Tensor
        result = one, first([torch.ones(2)]).tolist()
        """,
    "questions about autocast": """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's, of its old names
        import torch
        outside = torch.is_autocast_cpu_enabled()
        with torch.autocast("cpu", dtype=torch.float16):
            inside = torch.is_autocast_cpu_enabled(), str(torch.get_autocast_cpu_dtype())[-8:]
        result = outside, inside, str(torch.get_autocast_gpu_dtype()).partition(".")[2]
        """,
    "words for PyTorch's compiler": """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's, of its old names
        import torch
        import torch._dynamo

        @torch.compiler.disable
        @torch.compiler.allow_in_graph
        @torch.compiler.assume_constant_result
        @torch._dynamo.disable
        def doubled(x):
            return 2 * x

        asked = torch.compiler.is_compiling(), torch.compiler.is_exporting()
        torch.compiler.cudagraph_mark_step_begin()
        result = asked, doubled(torch.ones(2)).tolist()
        """,
    "__import__": """
        torch = __import__("torch")
        result = torch.zeros(2).tolist()
        """,
    "__import__ of a submodule": """
        result = __import__("torch.nn").nn.ReLU()(__import__("torch").ones(1)).item()
        """,
    "__import__ with names": """
        result = __import__("torch.nn", fromlist=["Linear"]).Linear(2, 3).in_features
        """,
    "builtins.__import__": """
        import builtins
        result = builtins.__import__("torch").ones(2).tolist()
        """,
    "sys.modules": """
        import sys
        import torch.nn
        result = sys.modules["torch"].ones(1).item() + len(sys.modules["torch.nn"].ReLU()._modules)
        """,
    "sys.modules.get": """
        import sys
        import torch
        result = sys.modules.get("torch") is torch, sys.modules.get("torch.nowhere") is None
        """,
    "in sys.modules": """
        from sys import modules as loaded
        import torch
        result = "torch" in loaded, "torch" not in loaded
        """,
    "find_spec": """
        from importlib.util import find_spec
        result = find_spec("torch") is not None, find_spec("torch.nowhere") is None
        """,
    "globals": """
        import torch
        import torch.nn as nn
        result = globals()["torch"].ones(1).item(), globals()["nn"] is nn, "torch" in globals()
        """,
    "locals": """
        def f():
            import torch
            return locals()["torch"].ones(1).item(), vars().get("torch") is not None
        result = f()
        """,
    "__dict__": """
        import torch
        import torch.nn.functional as F
        result = torch.__dict__["zeros"](2).tolist(), F.__dict__["relu"](torch.ones(1)).item()
        """,
    "vars": """
        import torch
        result = vars(torch)["ones"](2).tolist(), vars(torch).get("conv2d") is torch.conv2d
        """,
    "__dict__ of a package": """
        from torch import nn
        result = nn.__dict__["Linear"](1, 2).out_features, "ReLU" in vars(nn)
        """,
    "getattr": """
        import torch
        result = getattr(torch, "zeros")(2).tolist(), getattr(torch.nn, "ReLU", None) is not None
        """,
    "getattr of a renamed module": """
        import torch
        result = getattr(torch, "jit").is_scripting()
        """,
    "getattr of an old name": """
        from torch import nn
        import torch
        result = getattr(nn.functional, "upsample")(torch.ones(1, 1, 2), scale_factor=2).shape[2]
        """,
    "getattr of a computed name": """
        import torch
        name = "re" + "lu"
        result = getattr(torch, name)(torch.ones(1)).item()
        """,
    "hasattr": """
        import torch
        result = hasattr(torch, "zeros"), hasattr(torch, "nowhere")
        """,
    "a class that keeps it": """
        import torch
        class Holder:
            torch = torch
            zeros = torch.zeros(2)
            jit = torch.jit
        result = Holder.torch.ones(1).item(), Holder.zeros.tolist(), Holder().jit.is_scripting()
        """,
    "a class that has another": """
        import torch
        class Fake:
            class torch:
                zeros = 3
            here = torch.zeros
            def ones(self):
                return torch.ones(1).item()
        result = Fake.here, Fake().ones()
        """,
    "programs in files": """
        import io
        import warnings
        import torch
        from torch.export import Dim
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
        for parameter in net.parameters():
            torch.nn.init.constant_(parameter, 0.5)
        file = io.BytesIO()
        torch.jit.save(torch.jit.trace(net, torch.ones(1, 3)), file)
        file.seek(0)
        loaded = torch.jit.load(file, map_location="cpu").eval()
        exported = torch.export.export(net, (torch.ones(2, 3),), dynamic_shapes=({0: Dim("n")},))
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        again = torch.export.load(file).module()
        x = torch.arange(12.0).view(4, 3)
        result = [f(x).tolist() for f in (loaded, exported.module(), again)]
        result.append(sorted(exported.state_dict))
        """,
    "a default argument": """
        import torch
        def f(torch=torch, nn=torch.nn):
            return torch.ones(1).item(), nn.Linear(1, 2).out_features
        result = f()
        """,
    "an argument of that name": """
        import torch
        class Backend:
            def zeros(self, n): return n
        def f(torch):
            return torch.zeros(2)
        result = f(Backend()), torch.zeros(1).item()
        """,
    "a loop variable": """
        import torch as t
        result = [torch for torch in [1, 2]], [t.ones(torch).shape[0] for torch in range(2)]
        """,
    "global": """
        def load():
            global torch
            import torch
        load()
        result = torch.ones(2).tolist()
        """,
    "nonlocal": """
        def outer():
            torch = None
            def load():
                nonlocal torch
                import torch
            load()
            return torch.ones(2).tolist()
        result = outer()
        """,
    "an import that may fail": """
        try:
            import apex_that_is_not_there as apex
        except ImportError:
            apex = None
        try:
            from torch.nowhere import thing
        except ImportError:
            thing = None
        result = apex, thing
        """,
    "import_module that may fail": """
        import importlib
        try:
            found = importlib.import_module("torch.nowhere")
        except ImportError:
            found = None
        result = found
        """,
    "an import under a condition": """
        import sys
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from torch import Tensor
        if sys.version_info > (3,):
            import torch as t
        else:
            t = None
        result = t.ones(1).item()
        """,
    "f-strings": """
        import torch
        x = torch.ones(2)
        result = f"{torch.sum(x).item():.1f} torch {x.sum()=!s}"
        """,
    "eval": """
        import torch
        result = eval("torch.ones(2)").tolist(), eval("torch.nn.Linear(1, 2)").out_features
        """,
    "annotations in texts": """
        import typing
        import torch
        def f(x: "typing.Optional[torch.Tensor]", y: "torch.nn.Module") -> "list[torch.Tensor]":
            # type: (torch.Tensor, torch.nn.Module) -> list
            return [x]
        hints = typing.get_type_hints(f)
        result = hints["y"] is torch.nn.Module, typing.get_args(hints["x"])[0] is torch.Tensor
        """,
    "a name that is passed on": """
        import torch
        T = torch
        relu, nn = torch.relu, torch.nn
        lib = {"torch": torch}
        result = T.ones(1).item(), relu(lib["torch"].ones(1)).item(), nn.Linear(1, 2).out_features
        """,
    "an assigned attribute": """
        import torch
        torch.Tensor.doubled = lambda self: self * 2
        torch.my_flag = 3
        setattr(torch.nn, "my_other_flag", 4)
        result = torch.ones(1).doubled().item(), torch.my_flag, torch.nn.my_other_flag
        """,
    "a star import": """
        from torch import *
        result = zeros(2).tolist(), sum(ones(2)).item(), conv1d(ones(1, 1, 3), ones(1, 1, 3)).item()
        """,
    "Variable in a map": """
        import torch
        from torch.autograd import Variable
        x = torch.ones(2, requires_grad=True)
        made = list(map(Variable, [x, x * 2]))
        V = Variable
        result = [v.requires_grad for v in made], V(x, requires_grad=True).is_leaf, V(x) is x
        """,
    "Variable of what is computed": """
        import torch
        from torch.autograd import Variable
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        first, second = Variable(y), Variable(x)
        third = Variable(y, requires_grad=True)
        y.data.fill_(5)
        flags = [v.requires_grad for v in (first, second, third, y)]
        result = flags, first.tolist(), third.is_leaf, third is y, isinstance(x, Variable)
        """,
    "Variable of what a function returns": """
        import torch
        from torch.autograd import Variable
        w = torch.ones(2, requires_grad=True)
        class Net(torch.nn.Module):
            def forward(self, x):
                return x * w
        net, name = Net(), [w * 3]
        values = (Variable(net(torch.ones(2))), Variable(name[0]), Variable(w.view(2, 1)))
        result = [v.requires_grad for v in values], Variable(values[0]) is values[0]
        """,
    "eval of a computed text": """
        import torch
        import torch.nn as nn
        name = "Adam"
        result = eval("torch.optim." + name).__name__, eval(f"nn.{'ReLU'}")(), torch.ones(1)
        result = result[0], type(result[1]).__name__, result[2].tolist()
        """,
    "exec of a computed text": """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                for i in range(2):
                    exec(f"self.weight_{i}" + " = torch.nn.Parameter(torch.ones(3, 1))")
                exec("self.total = torch.add(self.weight_0, 1)", globals(), locals())

        net = Net()
        result = [name for name, _ in net.named_parameters()], net.total.tolist()
        """,
    "an optimizer written after PyTorch's": """
        from collections import OrderedDict

        import torch
        from torch.optim import Optimizer
        from torch.optim.optimizer import (
            ParamsT, _default_to_fused_or_foreach, _disable_dynamo_if_unsupported,
            _get_scalar_dtype, _get_value, _stack_if_compiling, _to_scalar,
            _use_grad_for_differentiable, _view_as_real,
        )
        from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

        @_disable_dynamo_if_unsupported()
        def updated(params, grads, steps, lr):
            _view_as_real(params, grads)
            groups = Optimizer._group_tensors_by_device_and_dtype([params, grads, steps])
            for (params, grads, steps), _ in groups.values():
                torch._foreach_add_(steps, 1)
                for p, g, step in zip(params, grads, steps):
                    rate = _get_value(step) ** 0.5 * _stack_if_compiling(lr)
                    p.add_(g, alpha=-rate / (1 + _to_scalar(step.view(1)).sqrt().item()))

        class Mine(Optimizer):
            def __init__(self, params: ParamsT, lr=0.1):
                super().__init__(params, {"lr": lr, "differentiable": False})

            @_use_grad_for_differentiable
            def step(self):
                assert not torch.is_grad_enabled()
                for group in self.param_groups:
                    params = [p for p in group["params"] if p.grad is not None]
                    assert not any(_default_to_fused_or_foreach(params, False)[:1])
                    for p in params:
                        self.state[p].setdefault("step", torch.zeros((), dtype=_get_scalar_dtype()))
                    steps = [self.state[p]["step"] for p in params]
                    updated(params, [p.grad for p in params], steps, group["lr"])

        class Wrapper(Optimizer):
            def __init__(self, inner):
                self.inner = inner
                self._optimizer_step_pre_hooks = OrderedDict()
                self._optimizer_step_post_hooks = OrderedDict()
                self._patch_step_function()

            def step(self):
                self.inner.step()

        x = torch.ones(2, requires_grad=True)
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
        wrapper, calls = Wrapper(Mine([x, y, z])), []
        wrapper.register_step_post_hook(lambda *args: calls.append(1))
        for _ in range(3):
            ((x**2).sum() + (y**3).sum() + z.abs().sum()).backward()
            wrapper.step()
        groups = _group_tensors_by_device_and_dtype([[x, y, x], [y, None, x]], with_indices=True)
        indices = [found for _, found in groups.values()]
        lists = [[[t is not None for t in one] for one in lists] for lists, _ in groups.values()]
        values = [[round(v, 5) for v in torch.view_as_real(t).flatten().tolist()] if t is z
                  else [round(v, 5) for v in t.tolist()] for t in (x, y, z)]
        result = calls, sorted(indices), sorted(lists), values
        """,
    "Variable that is written": """
        import torch
        x = torch.zeros(2)
        v = torch.autograd.Variable(x, requires_grad=True)
        with torch.no_grad():
            v += 1
        result = x.tolist(), x.requires_grad, v.requires_grad
        """,
}

# What no conversion can do is told, and marked.
REPORTED: dict[str, str] = {
    "__import__ of another root": """
        result = __import__("torchvision.models")
        """,
    "eval of a computed text without the package": """
        name = "Adam"
        result = eval("torch.optim." + name)
        """,
    "eval of a computed text elsewhere": """
        import torch
        result = eval("torch.optim." + "Adam", {"torch": torch})
        """,
    "exec": """
        exec("import torch\\nx = torch.library.Library()")
        """,
}


def _ran(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "tricky"}
    exec(compile(text, "tricky.py", "exec", dont_inherit=True), names)
    return names["result"]


@pytest.mark.filterwarnings("ignore:`nn.functional.upsample` is deprecated")
@pytest.mark.parametrize("name", SAME)
def test_what_is_reached_by_other_ways_is_converted(name: str) -> None:
    text = textwrap.dedent(SAME[name])
    conversion = convert_source(text)
    again = convert_source(conversion.text)
    expected = _ran(text)
    with pytest.MonkeyPatch.context() as patch:
        # A conversion that still reaches PyTorch is none.
        for module in [module for module in sys.modules if module.split(".")[0] == "torch"]:
            patch.setitem(sys.modules, module, None)
        assert _ran(conversion.text) == expected, conversion.text
    assert again.text == conversion.text
    marked = [one for one in conversion.findings if one.verdict is Verdict.UNSUPPORTED]
    assert not [one for one in marked if "nowhere" not in one.name], marked


@pytest.mark.parametrize("package", [*PACKAGES_IN_C, "torch.nn.functional"])
def test_it_is_known_which_functions_pytorch_writes_in_c(package: str) -> None:
    for name, function in vars(importlib.import_module(package)).items():
        path = f"{package}.{name}"
        if not name.startswith("_") and inspect.isfunction(lookup(path).value):
            assert becomes_a_method(path) is not hasattr(function, "__get__"), path


@pytest.mark.parametrize("name", REPORTED)
def test_what_cannot_be_converted_is_marked(name: str) -> None:
    conversion = convert_source(textwrap.dedent(REPORTED[name]))
    assert any(one.verdict is Verdict.UNSUPPORTED for one in conversion.findings)
    assert "# metaop: unsupported" in conversion.text


def test_texts_that_name_pytorch_are_noted() -> None:
    text = 'import torch\nconfig = {"class": "torch.optim.Adam", "function": "torch.relu"}\n'
    noted = {one.name: one.verdict for one in convert_source(text).findings}
    assert noted["torch.optim.Adam"] is Verdict.CONVERTED
    assert noted["torch.relu"] is Verdict.SEMANTIC


@pytest.mark.parametrize(
    "text",
    [
        "names = sorted(torch.__dict__)",
        "f = torch.__dict__[name]",
        "for name, value in vars(torch).items(): pass",
        "os.system('python -m torch.distributed.launch train.py')",
        "command = ['torchrun', 'train.py']",
        "f = getattr(torch, name)",
        "torch.save(model, 'model.pt')",
    ],
)
def test_what_is_another_thing_at_run_time_is_noted(text: str) -> None:
    found = convert_source(f"import torch, os\n{text}\n").findings
    assert any(one.verdict is Verdict.SEMANTIC and one.line == 2 for one in found)


def test_modules_that_pass_the_root_on_keep_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tricky_common.py").write_text("import torch\nimport torch.nn as nn\n")
    (tmp_path / "tricky_user.py").write_text(
        "from tricky_common import torch, nn\nimport tricky_common\n"
        "result = torch.ones(2).tolist(), tricky_common.torch.zeros(1).item(), nn.ReLU\n"
    )
    convert_path(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import metaop

    assert _ran((tmp_path / "tricky_user.py").read_text()) == ([1.0, 1.0], 0.0, metaop.nn.ReLU)


def test_a_class_that_takes_the_place_of_an_import_has_arguments_of_its_own() -> None:
    """`class Dataset(Dataset)` is the program's own from there on; names with dots are not."""
    text = (
        "import torch\nfrom torch.utils.data import Dataset, Sampler\n"
        "class Dataset(Dataset):\n    def __init__(self, a, b, c):\n        self.sum = a + b + c\n"
        "result = Dataset(1, 2, 3).sum\n"
    )
    assert not any(one.verdict is Verdict.UNSUPPORTED for one in convert_source(text).findings)
    assert _ran(convert_source(text).text) == 6
    others = text + "Sampler(1, 2, 3, 4)\ntorch.utils.data.Dataset(1, 2)\n"
    found = convert_source(others).findings
    assert [one.line for one in found if one.verdict is Verdict.UNSUPPORTED] == [7, 8]


def test_keywords_of_other_overloads_are_known() -> None:
    text = "import torch\ntorch.permute(x, dims=(0,))\ntorch.randint_like(x, high=2)\n"
    assert not any(one.verdict is Verdict.UNSUPPORTED for one in convert_source(text).findings)
    found = convert_source(text + "torch.permute(x, order=(0,))\n").findings
    assert [one.line for one in found if one.verdict is Verdict.UNSUPPORTED] == [4]
