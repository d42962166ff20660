"""The converter, construct by construct."""

from __future__ import annotations

import textwrap

import pytest

import metaop

pytest.importorskip("libcst")
from metaop.convert import Verdict, convert_source


def convert(text: str) -> str:
    return convert_source(textwrap.dedent(text)).text


def verdicts(text: str) -> dict[str, Verdict]:
    return {f.name: f.verdict for f in convert_source(textwrap.dedent(text)).findings}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\ntorch.zeros(2)", "import metaop\nmetaop.zeros(2)"),
        ("import torch as th\nth.zeros(2)", "import metaop as th\nth.zeros(2)"),
        ("import torch.nn as nn\nnn.Linear(1, 2)", "import metaop.nn as nn\nnn.Linear(1, 2)"),
        ("import torch.nn\ntorch.nn.ReLU()", "import metaop.nn\nmetaop.nn.ReLU()"),
        ("from torch import nn, optim", "from metaop import nn, optim"),
        ("from torch.nn import *\nReLU()", "from metaop.nn import *\nReLU()"),
        ("import torch, os  # both", "import metaop, os  # both"),
        (
            "from torch.nn.modules.conv import Conv2d as C",
            "from metaop.nn.modules.conv import Conv2d as C",
        ),
        (
            "from torch.utils.data.dataloader import default_collate, DataLoader  # x",
            "from metaop.utils.data import default_collate;"
            " from metaop.utils.data.dataloader import DataLoader  # x",
        ),
        (
            "from torch.utils.data.dataloader import (\n"
            "    default_collate,  # c\n    DataLoader,\n)",
            "from metaop.utils.data import (\n    default_collate,  # c\n    \n);"
            " from metaop.utils.data.dataloader import DataLoader",
        ),
        (
            "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.ones(1)",
            "try:\n    import metaop as torch\nexcept ImportError:\n    torch = None\n"
            "torch.ones(1)",
        ),
        (
            "import torch\nmetaop = 3\ntorch.ones(1)",
            "import metaop as torch\nmetaop = 3\ntorch.ones(1)",
        ),
        ("def f():\n    import torch\n    return torch.ones(1)",
         "def f():\n    import metaop\n    return metaop.ones(1)"),
        ("import torch\nx: 'torch.Tensor'", "import metaop\nx: 'metaop.Tensor'"),
        ("import torch\nf'{torch.ones(1)!r}'", "import metaop\nf'{metaop.ones(1)!r}'"),
        ("import torch\n@torch.no_grad()\ndef f(): ...",
         "import metaop\n@metaop.no_grad()\ndef f(): ..."),
        ("import torch\r\ntorch.ones(\r\n  1)\r\n", "import metaop\r\nmetaop.ones(\r\n  1)\r\n"),
    ],
)  # fmt: skip
def test_imports_and_names(before: str, after: str) -> None:
    assert convert_source(before).text == after
    assert convert_source(after).text == after


@pytest.mark.parametrize(
    "text",
    [
        "class torch: pass\ntorch.zeros(2)",
        "def f(torch):\n    return torch.zeros(2)",
        "import numpy as torch\ntorch.zeros(2)",
        "from .torch import zeros\nzeros(2)",
        "import torchlike\ntorchlike.nn.Linear(2)",
        '"""torch.zeros"""\nx = 1',
        "nn = 3\nF = nn\nVariable(x)\nloss.data[0]\nloader_iter.next()",
    ],
)
def test_look_alikes_stay(text: str) -> None:
    assert convert_source(text).text == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Variable(x)", "x.detach()"),
        ("Variable(3)", "(3).detach()"),
        ("Variable(x, requires_grad=False).sum()", "x.detach().sum()"),
        ("Variable(x, requires_grad=True)", "x.detach().requires_grad_()"),
        ("Variable(x, requires_grad=flag)", "x.detach().requires_grad_(flag)"),
        ("Variable(x, volatile=True)", "x.detach()"),
        ("Variable(a + b) * 2", "(a + b).detach() * 2"),
        ("Variable(  # why\n    x, volatile=False)", "(  # why\nx).detach()"),
        ("isinstance(x, Variable)", "isinstance(x, Variable)"),
        ("total += loss.data[0]", "total += loss.item()"),
        ("images.data[0]", "images.data[0]"),
        ("data_iter.next()", "next(data_iter)"),
        ("iter(x).next()", "next(iter(x))"),
        ("nn.MSELoss(size_average=False)", 'nn.MSELoss(reduction="sum")'),
        ("F.mse_loss(a, b, size_average=True)", 'F.mse_loss(a, b, reduction="mean")'),
        ("nn.L1Loss(reduce=False)", 'nn.L1Loss(reduction="none")'),
        (
            "nn.BCELoss(size_average=flag)",
            'nn.BCELoss(reduction="mean" if flag else "sum")',
        ),
        ("torch.nn.quantized.Linear", "metaop.absent.torch.nn.quantized.Linear"),
        ("nn.init.xavier_uniform(w)", "nn.init.xavier_uniform_(w)"),
        ("nn.utils.clip_grad_norm(p, 1)", "nn.utils.clip_grad_norm_(p, 1)"),
        ("F.upsample(x, scale_factor=2)", "F.interpolate(x, scale_factor=2)"),
        ("torch.LongTensor([1, 2])", "metaop.tensor([1, 2], dtype=metaop.int64)"),
        ("torch.FloatTensor(3, 4)", "metaop.FloatTensor(3, 4)"),
        ("torch.cumsum(x, axis=0)", "metaop.cumsum(x, dim=0)"),
        ("x.type('torch.cuda.FloatTensor')", "x.type('metaop.cuda.FloatTensor')"),
        ("getattr(torch, 'relu')", "getattr(metaop, 'relu')"),
        ("x.cuda(async=True)", "x.cuda(non_blocking=True)"),
    ],
)
def test_old_idioms(before: str, after: str) -> None:
    header = (
        "import torch\nimport torch.nn.functional as F\n"
        "from torch import nn\nfrom torch.autograd import Variable\n"
    )
    body = convert_source(header + before).text.split("\n", 4)[4]
    assert body.partition("  # metaop:")[0] == after


def test_unsupported_names_are_marked_where_they_stand_and_raise_when_reached() -> None:
    text = """\
        import torch
        from torch.library import triton_op  # mine

        def corner(x):
            return torch.library.Library(
                x,
                '''text
                of two lines''', torch.ops.aten.add,
            )
        """
    result = convert(text)
    lines = result.split("\n")
    assert "# mine  # metaop: unsupported: torch.library.triton_op" in lines[1]
    assert "unsupported: torch.library.Library" in lines[4]
    assert "unsupported: torch.ops.aten.add" in lines[7]
    names: dict[str, object] = {}
    exec(result, names)
    with pytest.raises(NotImplementedError, match="torch.library.Library is not in metaop"):
        names["corner"](3)  # type: ignore[operator]
    with pytest.raises(NotImplementedError, match="torch.library.triton_op is not in metaop"):
        names["triton_op"](3)  # type: ignore[operator]


def test_keywords_and_missing_arguments_are_checked() -> None:
    found = convert_source("import torch\ntorch.relu(x, slope=2)\ntorch.cat()\ntorch.cat(*x)\n")
    problems = [(f.line, f.name) for f in found.findings if f.verdict is Verdict.UNSUPPORTED]
    assert problems == [(2, "torch.relu()"), (3, "torch.cat()")]


def test_verdicts() -> None:
    found = verdicts(
        """
        import torch, numpy, mystery, timm
        torch.zeros(2); torch.nn.init.normal(w); torch.manual_seed(0); torch.library.Library(f)
        """
    )
    assert found["torch.zeros"] is Verdict.SAME
    assert found["torch.nn.init.normal"] is Verdict.CONVERTED
    assert found["torch.manual_seed"] is Verdict.SEMANTIC
    assert found["torch.library.Library"] is Verdict.UNSUPPORTED
    assert found["mystery"] is found["timm"] is Verdict.THIRD_PARTY
    assert "numpy" not in found


def test_a_program_that_catches_a_missing_name_keeps_its_way_out() -> None:
    result = convert(
        """
        try:
            from torch.nowhere import thing
        except ImportError:
            thing = "fallback"
        """
    )
    names: dict[str, object] = {}
    exec(result, names)
    assert names["thing"] == "fallback"


def test_texts_that_do_not_parse_are_refused() -> None:
    with pytest.raises(SyntaxError, match="not Python 3"):
        convert_source("import torch\nprint 'old'\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import torchvision\ntorchvision.utils.make_grid(x)",
            "import metaop.vision\nmetaop.vision.utils.make_grid(x)",
        ),
        (
            "import torchvision.transforms as T\nT.Scale(32)",
            "import metaop.vision.transforms as T\nT.Resize(32)",
        ),
        (
            "from torchvision.utils import save_image\nsave_image(x, f, range=(-1, 1))",
            "from metaop.vision.utils import save_image\nsave_image(x, f, value_range=(-1, 1))",
        ),
        (
            "import torchvision.transforms as T\nT.RandomRotation(3, resample=2)",
            "import metaop.vision.transforms as T\nT.RandomRotation(3, interpolation=2)",
        ),
        (
            "from torchvision.models.resnet import resnet18",
            "from metaop.vision.models.resnet import resnet18",
        ),
        (
            "from torchvision.models._utils import IntermediateLayerGetter",
            "from metaop.vision.models import IntermediateLayerGetter",
        ),
        (
            "from torchvision.ops.boxes import nms, box_iou",
            "from metaop.vision.ops.boxes import nms, box_iou",
        ),
        (
            "from torch.utils.tensorboard.writer import SummaryWriter",
            "from metaop.utils.tensorboard.writer import SummaryWriter",
        ),
        (
            "from tensorboardX import SummaryWriter",
            "from metaop.utils.tensorboard import SummaryWriter",
        ),
    ],
)
def test_packages_around_pytorch(before: str, after: str) -> None:
    assert convert(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from torch.distributions.utils import _sum_rightmost\n_sum_rightmost(x, 1)",
            "from metaop.distributions.utils import sum_rightmost as _sum_rightmost\n"
            "_sum_rightmost(x, 1)",
        ),
        (
            "from torch.distributions.utils import _standard_normal\n_standard_normal(n, t, d)",
            "from metaop.distributions.utils import standard_normal as _standard_normal\n"
            "_standard_normal(n, t, d)",
        ),
        (
            "import torch\ntorch.distributions.transforms._InverseTransform",
            "import metaop\nmetaop.distributions.transforms.transform._InverseTransform",
        ),
        (
            "import torch\ntorch._standard_gamma(x)",
            "import metaop\nmetaop.distributions.gamma_samples.standard_gamma(x)",
        ),
        (
            "import torch\nwith torch.nn.utils.stateless._reparametrize_module(m, p):\n    m()",
            "import metaop\nwith metaop.nn.utils.stateless.reparametrised(m, p):\n    m()",
        ),
        (
            "from torch._vmap_internals import _vmap\n_vmap(f)(x)",
            "from metaop.func import vmap as _vmap\n_vmap(f)(x)",
        ),
        (
            "from torch.functional import einsum, norm\nnorm(einsum('ij->i', x))",
            "from metaop import einsum, norm\nnorm(einsum('ij->i', x))",
        ),
    ],
)
def test_private_names_that_packages_use(before: str, after: str) -> None:
    assert convert(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import einops\neinops.rearrange(x, p)",
            "import metaop.einops\nmetaop.einops.rearrange(x, p)",
        ),
        (
            "from einops.einops import rearrange as r\nr(x, p)",
            "from metaop.einops import rearrange as r\nr(x, p)",
        ),
        (
            "from einops.layers.torch import Rearrange",
            "from metaop.einops import Rearrange",
        ),
    ],
)
def test_einops(before: str, after: str) -> None:
    pytest.importorskip("einops")
    assert convert(before) == after


def test_data_sets_that_are_downloaded_are_told() -> None:
    found = verdicts(
        """
        from torchvision import datasets
        datasets.MNIST("data", download=True)
        datasets.ImageFolder("data")
        datasets.Food101("data")
        """
    )
    assert found["torchvision.datasets.MNIST"] is Verdict.SEMANTIC
    assert found["torchvision.datasets.ImageFolder"] is Verdict.SAME
    assert found["torchvision.datasets.Food101"] is Verdict.UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("change = x.to_mkldnn\n", ["Tensor.to_mkldnn"]),
        ("x.to_mkldnn(abs)\n", ["Tensor.to_mkldnn"]),
        ("place = x.t().output_nr\n", ["Tensor.output_nr"]),
        ("class Map:\n    def to_mkldnn(self): ...\nMap().to_mkldnn()\n", []),
        ("net.volatile = True\nprint(net.volatile)\n", []),
        ("x.add_(1)\nx.requires_grad\n", []),
    ],
)
def test_attributes_that_tensors_lack_are_reported(text: str, found: list[str]) -> None:
    findings = convert_source("import torch\n" + text).findings
    assert [one.name for one in findings if one.verdict is Verdict.UNSUPPORTED] == found


@pytest.mark.parametrize("module", ["fsdp", "_composable.fsdp"])
def test_fully_shard_is_found_under_both_names(module: str) -> None:
    report = convert_source(f"from torch.distributed.{module} import fully_shard\nfully_shard(m)\n")
    assert "from metaop.distributed.fsdp import fully_shard" in report.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('optional_import("torch.nn.functional", "relu")', "metaop.nn.functional"),
        ('registry.register_on_import("torch", make)', "metaop"),
        ('writer.import_("torch")', "metaop"),
        ('optional_import("torch.no_such_module")', "torch.no_such_module"),
        ('optional_import("torch is there")', "torch is there"),
        ('print("torch")', "torch"),
    ],
)
def test_modules_that_own_code_imports_by_name(before: str, after: str) -> None:
    found = convert_source(before + "\n").text
    assert found == before.replace(before.split('"')[1], after, 1) + "\n"


def test_operators_that_the_program_registers_are_found_when_it_runs() -> None:
    text = """\
        import torch

        @torch.library.custom_op("converted::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        both = torch.ops.converted.twice, torch.ops.converted.twice.default
        """
    result = convert(text)
    assert "absent" not in result
    names: dict[str, object] = {}
    exec(result, names)
    x = metaop.ones(1)
    assert [function(x).item() for function in names["both"]] == [2, 2]  # type: ignore[attr-defined]
    for own in ("aten.add", "load_library", "torchvision.roi_align"):
        found = verdicts(f"import torch\ntorch.ops.{own}(3)\n")
        assert found[f"torch.ops.{own}"] is Verdict.UNSUPPORTED
