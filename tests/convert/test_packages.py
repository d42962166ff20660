"""Packages converted as a whole: beside the original, and with the habits of large ones."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import UnsupportedError

pytest.importorskip("libcst")
pytest.importorskip("torch")
import torch

from metaop.convert import Verdict, convert_path, convert_source
from metaop.convert.packages import find_spec, import_module, version

# What the package says while it is imported and metaop lacks.
ABSENT = [
    *("torch.distributed.rpc", "torch.distributed.rpc.TensorPipeRpcBackendOptions"),
    "torch.library.triton_op",
]
PACKAGE = Path(__file__).parent / "programs" / "lazynet"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """The package, and its conversion under another name, in one process."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(PACKAGE, folder / "lazynet")
    reports = convert_path(folder / "lazynet", folder / "lazynet_metaop")
    findings = [one for report in reports for one in report.findings]
    absent = sorted(one.name for one in findings if one.verdict is Verdict.UNSUPPORTED)
    assert absent == ABSENT
    sys.path.insert(0, str(folder))
    yield importlib.import_module("lazynet"), importlib.import_module("lazynet_metaop")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition("_")[0].startswith("lazynet")]:
        del sys.modules[name]


def pair(both: tuple[Any, Any]) -> tuple[Any, Any]:
    """The encoder of both sides with the same weights."""
    original, converted = both
    torch.manual_seed(0)
    theirs = original.Encoder(original.EncoderConfig())
    ours = converted.AutoNetwork.from_config(converted.EncoderConfig())
    ours.load_state_dict({name: numbers(value) for name, value in theirs.state_dict().items()})
    return theirs, ours


def numbers(value: Any) -> Any:
    return metaop.from_numpy(value.detach().numpy().copy())


def batch(library: Any) -> dict[str, Any]:
    generator = np.random.default_rng(3)
    ids, labels = generator.integers(0, 11, (4, 6)), generator.integers(0, 3, 4)
    return {"ids": library.from_numpy(ids), "labels": library.from_numpy(labels)}


def test_both_are_there_at_once_and_know_their_own_modules(both: tuple[Any, Any]) -> None:
    original, converted = both
    assert original.Encoder.__module__ == "lazynet.networks.encoder"
    assert converted.Encoder.__module__ == "lazynet_metaop.networks.encoder"
    assert issubclass(converted.Encoder, metaop.nn.Module)
    assert issubclass(original.Encoder, torch.nn.Module)
    assert converted.is_torch_available()
    assert dir(original) == dir(converted)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_outputs_gradients_and_steps_agree(both: tuple[Any, Any], checkpointing: bool) -> None:
    theirs, ours = pair(both)
    optimizers = [torch.optim.AdamW(theirs.parameters()), metaop.optim.AdamW(ours.parameters())]
    theirs.gradient_checkpointing = ours.gradient_checkpointing = checkpointing
    for _ in range(3):
        for model, library, optimizer in zip((theirs, ours), (torch, metaop), optimizers):
            optimizer.zero_grad()
            model.output = model(**batch(library))
            model.output.loss.backward()
        np.testing.assert_allclose(
            ours.output["logits"].detach().numpy(), theirs.output[1].detach().numpy(), atol=1e-5
        )
        for (name, left), right in zip(theirs.named_parameters(), ours.parameters()):
            np.testing.assert_allclose(
                right.grad.numpy(), left.grad.numpy(), 1e-3, 1e-5, err_msg=name
            )
        for optimizer in optimizers:
            optimizer.step()


def test_a_folder_of_weights_is_read_on_both_sides(both: tuple[Any, Any], tmp_path: Path) -> None:
    theirs, ours = pair(both)
    theirs.save_pretrained(tmp_path)
    read = type(ours).from_pretrained(tmp_path)
    expected = theirs.eval()(**batch(torch)).logits.detach().numpy()
    np.testing.assert_allclose(read(**batch(metaop)).logits.detach().numpy(), expected, atol=1e-5)
    read.save_pretrained(tmp_path)
    again = type(theirs).from_pretrained(tmp_path)
    np.testing.assert_allclose(again(**batch(torch)).logits.detach().numpy(), expected, atol=1e-5)


def test_what_is_missing_raises_when_it_is_used(both: tuple[Any, Any]) -> None:
    registry = importlib.import_module("lazynet_metaop.registry")
    assert registry.doubled(metaop.ones(2)).tolist() == [2, 2]
    with pytest.raises(UnsupportedError, match="torch.library.triton_op"):
        registry.tripled(metaop.ones(2))
    with pytest.raises(
        UnsupportedError, match=r"torch.distributed.rpc.TensorPipeRpcBackendOptions\(\)"
    ):
        registry.OPTIONS["remote"]()


def test_outputs_are_nests_for_the_tools_of_trees(both: tuple[Any, Any]) -> None:
    tree = metaop.utils._pytree
    output = both[1].Output(logits=metaop.ones(2))
    leaves, spec = tree.tree_flatten(output)
    assert [leaf.tolist() for leaf in leaves] == [[1.0, 1.0]]
    assert type(tree.tree_unflatten(leaves, spec)) is both[1].Output


def test_a_package_converts_without_pytorch(tmp_path: Path) -> None:
    convert_path(PACKAGE, tmp_path / "lazynet_metaop")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import metaop, lazynet_metaop as net\n"
        "model = net.Encoder(net.EncoderConfig())\n"
        "print(tuple(model(metaop.zeros(2, 4, dtype=metaop.int64)).logits.shape))\n"
    )
    path = [str(tmp_path), *sys.path]
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "(2, 3)"


RENAMED = {
    "import package": "import new as package",
    "import package.part": "import new as package, new.part",
    "import package.part as p": "import new.part as p",
    "from package import x": "from new import x",
    "from package.part import (x,\n    y)": "from new.part import (x,\n    y)",
    "from .part import x": "from .part import x",
    "from packages import x": "from packages import x",
    "f('package.part.Thing')": "f('new.part.Thing')",
    "f('package.part')": "f('new.part')",
    "f(f'package.part.{x}', f'package.{x}')": "f(f'new.part.{x}', f'new.{x}')",
    "f('package.json', 'package')": "f('package.json', 'package')",
    "'''package.part'''": "'''package.part'''",
}


@pytest.mark.parametrize("text", RENAMED)
def test_a_package_of_another_name_imports_itself(tmp_path: Path, text: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("Thing = x = y = 1\n")
    (package / "user.py").write_text(text + "\n")
    convert_path(package, tmp_path / "new")
    assert (tmp_path / "new" / "user.py").read_text() == RENAMED[text] + "\n"


def test_packages_are_asked_for_when_a_program_runs() -> None:
    spec = find_spec("torch.nn")
    assert spec is not None
    assert spec.name == "metaop.nn"
    assert find_spec("torch.no_such_module") is None
    assert find_spec("no_such_package") is None
    assert find_spec("json") == importlib.util.find_spec("json")
    assert import_module("torch.optim.lr_scheduler") is metaop.optim.lr_scheduler
    assert import_module("json.decoder").__name__ == "json.decoder"
    with pytest.raises(ModuleNotFoundError, match="torch.no_such_module"):
        import_module("torch.no_such_module")
    assert version("torch") == metaop.version.torch
    assert version("numpy") == np.__version__


@pytest.mark.parametrize("there", [False, True])
def test_a_module_is_there_if_what_it_needs_is(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    known, answer = importlib.util.find_spec, importlib.util.find_spec("json") if there else None

    def find(name: str, package: str | None = None) -> Any:
        return answer if name == "tensorboard" else known(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert (find_spec("tensorboardX") is not None) is there
    assert (find_spec("torch.utils.tensorboard") is not None) is there
    if there:
        assert import_module("tensorboardX").__name__ == "metaop.utils.tensorboard"
    else:
        with pytest.raises(ModuleNotFoundError, match="tensorboardX"):
            import_module("tensorboardX")


def test_names_are_asked_for_only_where_pytorch_is_named() -> None:
    text = "import importlib\nx = importlib.import_module(name)\n"
    assert convert_source(text).text == text
    assert "metaop.convert.packages" in convert_source(text, asks=True).text


def test_templates_of_programs_are_converted(tmp_path: Path) -> None:
    """Their tags stay, and the program that comes out uses metaop and the package's new name."""
    jinja = pytest.importorskip("jinja2")
    package = tmp_path / "maker"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\nfrom maker.parts import scale\n")
    (package / "parts.py").write_text("scale = 3\n")
    template = """\
import torch
from maker.parts import scale
from {{module}} import *
{# a comment
   of two lines #}
def {{name}}({% for p in parameters %}{{p}}, {% endfor %}):
{%- if doubled %}
    factor = 2
{%- else %}
    factor = torch.tensor(1)
{%- endif %}
    return torch.relu({{ parameters[0] }}) * factor * scale
"""
    inline = "{% for p in parameters %}{{p}}, {% endfor %}"
    (package / "program.jinja").write_text(template.replace(inline, "{{parameters | join(', ')}}"))
    chat = "{% for m in messages %}import torch {{m}}{% endfor %} is not code"
    (package / "chat.jinja").write_text(chat)
    (package / "broken.jinja").write_text(template)
    reports = {Path(r.path).name: r for r in convert_path(package, tmp_path / "maker_metaop")}
    assert "chat.jinja" not in reports and "_kept" not in str(reports["program.jinja"].findings)
    for name in ("chat.jinja", "broken.jinja"):
        left = (tmp_path / "maker_metaop" / name).read_text()
        assert left == (package / name).read_text()
    assert reports["broken.jinja"].error
    written = (tmp_path / "maker_metaop" / "program.jinja").read_text()
    assert "torch" not in written and "{# a comment\n   of two lines #}" in written
    made = jinja.Template(written).render(module="math", name="made", parameters=["x", "y"])
    sys.path.insert(0, str(tmp_path))
    try:
        values: dict[str, Any] = {}
        exec(made, values)
    finally:
        sys.path.remove(str(tmp_path))
    assert values["made"](metaop.tensor([-1.0, 2.0]), 0).tolist() == [0, 6]
