"""Files, folders, notebooks, checkpoints, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.__main__ import main
from metaop.errors import CheckpointError

pytest.importorskip("libcst")
from metaop.convert import convert_path, convert_source

PROGRAM = "import torch\nprint(torch.ones(2))  # sum\n"


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    assert main(["convert", str(path)]) == 0
    assert path.read_text() == "import metaop\nprint(metaop.ones(2))  # sum\n"
    assert path.stat().st_mode & 0o777 == 0o755
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


def test_check_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "torch.library.Library(1)\n")
    assert main(["convert", str(path), "--check"]) == 1
    assert path.read_text().startswith(PROGRAM)
    assert f"{path}:3:1: unsupported: torch.library.Library" in capsys.readouterr().out


def test_encodings_and_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_bytes("# -*- coding: latin-1 -*-\r\nimport torch  # café\r\n".encode("latin-1"))
    convert_path(path)
    expected = "# -*- coding: latin-1 -*-\r\nimport metaop  # café\r\n".encode("latin-1")
    assert path.read_bytes() == expected


def test_a_folder_is_copied_and_its_modules_know_each_other(tmp_path: Path) -> None:
    source, target = tmp_path / "project", tmp_path / "converted"
    (source / "net").mkdir(parents=True)
    (source / "net" / "layers.py").write_text("import torch\nfrom torch import nn\n")
    (source / "net" / "__init__.py").write_text("")
    (source / "train.py").write_text("from net.layers import *\nx = torch.ones(2)\nnn.ReLU()\n")
    (source / "names.txt").write_text("torch")
    (source / "old.py").write_text("import torch\nprint 'two'\n")
    assert main(["convert", str(source), "-o", str(target)]) == 2
    assert (target / "train.py").read_text() == (
        "from net.layers import *\nx = metaop.ones(2)\nnn.ReLU()\n"
    )
    assert (target / "net" / "layers.py").read_text() == "import metaop\nfrom metaop import nn\n"
    assert (target / "names.txt").read_text() == "torch"
    assert (target / "old.py").read_text() == "import torch\nprint 'two'\n"
    assert (source / "train.py").read_text().startswith("from net.layers import *\nx = torch")


def test_json_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    assert main(["convert", str(path), "--report", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["same"] == 2
    first = report["files"][0]["findings"][0]
    assert (first["line"], first["column"], first["name"]) == (1, 8, "torch")


def test_notebooks_keep_outputs_magic_and_style(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["import torch"]},
        {"cell_type": "code", "metadata": {}, "outputs": [{"text": ["torch"]}],
         "execution_count": 1, "source": ["%matplotlib inline\n", "import torch\n", "!pip list"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 2,
         "source": ["%%bash\n", "echo import torch"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 3,
         "source": ["x = torch.ones(1)\n", "torch.library.Library(x)"]},
    ]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = tmp_path / "notes.ipynb"
    path.write_text(json.dumps(notebook, indent=1) + "\n")
    (report,) = convert_path(path)
    result = json.loads(path.read_text())
    sources = ["".join(cell["source"]) for cell in result["cells"]]
    assert sources[0] == "import torch"
    assert sources[1] == "%matplotlib inline\nimport metaop\n!pip list"
    assert sources[2] == "%%bash\necho import torch"
    assert sources[3].startswith("x = metaop.ones(1)\nmetaop.absent.torch.library.Library(x)  #")
    assert result["cells"][1]["outputs"] == [{"text": ["torch"]}]
    assert path.read_text() == json.dumps(result, indent=1) + "\n"
    assert any(f.name == "torch.library.Library (cell 4)" and f.line == 2 for f in report.findings)
    (again,) = convert_path(path)
    assert not again.changed


def test_verify_compares_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "VERIFY = {'double': {'inputs': [[2, 3]]}}\n"
        "VERIFY['Wide'] = {'arguments': [5], 'inputs': [[2, 5]]}\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Linear(3, 2), nn.Tanh())\n"
        "class Wide(nn.Linear):\n"
        "    def __init__(self, width):\n        super().__init__(width, 2)\n"
        "def double(x):\n    return x * (2 if torch.__name__ == 'torch' else 3)\n"
    )
    assert main(["convert", str(path), "--verify", "--check"]) == 1
    lines = capsys.readouterr().err
    assert "Net: agrees" in lines
    assert "Wide: agrees" in lines
    assert "double: differs" in lines


def test_weights_become_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2)
    state = {"weight": layer.weight, "tied": layer.weight, "bias": layer.bias}
    source, target = tmp_path / "a.pth", tmp_path / "b.safetensors"
    for legacy in (False, True):
        torch.save(
            {"state_dict": state, "epoch": 3}, source, _use_new_zipfile_serialization=not legacy
        )
        assert main(["convert-weights", str(source), str(target)]) == 0
        found = metaop.load(target)
        assert set(found) == set(state)
        for name, value in state.items():
            np.testing.assert_array_equal(found[name].numpy(), value.detach().numpy())
    assert "3 tensors" in capsys.readouterr().out


def test_weights_that_run_code_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = tmp_path / "a.pth"
    torch.save(torch.nn.Linear(1, 1), source)
    from metaop.convert.weights import convert_weights

    with pytest.raises(CheckpointError):
        convert_weights(source, tmp_path / "b.safetensors")
    assert main(["convert-weights", str(source), str(tmp_path / "b.safetensors")]) == 2


def test_several_paths_go_into_a_folder(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "inner.py").write_text(PROGRAM)
    paths = [str(tmp_path / name) for name in ("one.py", "two.py", "three")]
    assert main(["convert", *paths, "-o", str(tmp_path / "out")]) == 0
    for name in ("one.py", "two.py", "three/inner.py"):
        assert (tmp_path / "out" / name).read_text().startswith("import metaop\n")
        assert (tmp_path / name).read_text() == PROGRAM
    assert main(["convert", *paths]) == 0
    assert (tmp_path / "three" / "inner.py").read_text().startswith("import metaop\n")


def test_diff_prints_a_patch_that_makes_the_conversion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.rstrip("\n"))
    assert main(["convert", str(path), "--diff"]) == 0
    shown = capsys.readouterr()
    assert path.read_text() == PROGRAM.rstrip("\n")
    assert shown.out.splitlines() == [
        f"--- a/{path}",
        f"+++ b/{path}",
        "@@ -1,2 +1,2 @@",
        "-import torch",
        "-print(torch.ones(2))  # sum",
        "\\ No newline at end of file",
        "+import metaop",
        "+print(metaop.ones(2))  # sum",
        "\\ No newline at end of file",
    ]
    assert "1 files" in shown.err


@pytest.mark.parametrize(
    ("program", "status"),
    [(PROGRAM, 0), (PROGRAM + "torch.library.Library(1)\n", 1), ("print 'two'\n", 2)],
)
def test_a_program_on_the_standard_input(program: str, status: int) -> None:
    command = [sys.executable, "-m", "metaop", "convert", "-"]
    told = subprocess.run(command, input=program.encode(), capture_output=True, check=False)
    assert told.returncode == status
    expected = program if status == 2 else convert_source(program).text
    assert told.stdout.decode() == expected
    assert b"1 files" in told.stderr


def test_an_installed_package_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "site" / "installed_net"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from installed_net.parts import *\n")
    (package / "parts.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    target = tmp_path / "out" / "net"
    assert main(["convert", "installed_net", "-o", str(target)]) == 0
    assert (target / "__init__.py").read_text() == "from net.parts import *\n"
    assert (target / "parts.py").read_text() == "import metaop\n"
    assert main(["convert", "installed_net", "--check"]) == 0
    assert main(["convert", "installed_net"]) == 2
    assert main(["convert", "no_such_package", "-o", str(target)]) == 2
    assert main(["convert", "-", "installed_net", "-o", str(target)]) == 2
    assert (package / "parts.py").read_text() == "import torch\n"
    assert "name the output folder with -o" in capsys.readouterr().err


def test_modules_around_a_file_are_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for name, text in {
        "train.py": "from layers import *\nimport helpers.data, net, apex\nnn.functional.gone(1)\n",
        "layers.py": "from torch import nn\n",
        "helpers/data.py": "",
        "notes/words.txt": "",
        "src/net/__init__.py": "from .core import nn\nimport net.core\nnn.functional.gone(1)\n",
        "src/net/core.py": "import torch.nn as nn\n",
        "tests/test_net.py": "import net.core\nimport mine, notes, timm\n",
        "tests/mine.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def told(path: str) -> list[str]:
        main(["convert", str(tmp_path / path), "--check"])
        lines = capsys.readouterr().out.split("\n")
        return [": ".join(line.split(": ")[1:3]) for line in lines if line.startswith("/")]

    gone = "unsupported: torch.nn.functional.gone"
    assert told("train.py") == ["unknown third party: apex", gone]
    assert told("src/net/__init__.py") == [gone]
    strangers = ["unknown third party: notes", "unknown third party: timm"]
    assert told("tests/test_net.py") == told("tests") == strangers


def test_a_file_named_as_the_package_that_it_imports(tmp_path: Path) -> None:
    for name, text in {
        "net/__init__.py": "",
        "net/parts/__init__.py": "",
        "net/parts/apex.py": "import torch\nimport apex.torch as them\nthem.rank(torch.ones(1))\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    main(["convert", str(tmp_path / "net")])
    changed = (tmp_path / "net/parts/apex.py").read_text()
    assert changed == "import metaop\nimport apex.torch as them\nthem.rank(metaop.ones(1))\n"


def test_lines_of_ipython_in_every_place(tmp_path: Path) -> None:
    cells = {
        "!pip install torch \\\n  torchvision\nimport torch": "import metaop",
        "files = !ls\na, b = %who_ls\nx = torch.ones(len(files))": "x = metaop.ones(len(files))",
        "if x.ndim:\n    !ls {x}\n    y = torch.ones(1)": "    y = metaop.ones(1)",
        "%timeit -n 3 -r2 torch.ones(2)": "%timeit -n 3 -r2 metaop.ones(2)",
        "if x.ndim:\n  %time y = torch.ones(2)": "  %time y = metaop.ones(2)",
        "%time": "%time",
        "torch.ones?\n?torch.ones": "?torch.ones",
        '"""\n!ls\n%x """\nz = torch.ones(1)': "z = metaop.ones(1)",
        "w = (torch.ones(7)\n%2)  # a ' and (": "%2)  # a ' and (",
        "q = 'a\\'(' + \"[\"\n!ls": "!ls",
        "%%bash\nimport torch": "import torch",
        "%%time\ntorch.ones(1)": "metaop.ones(1)",
        "%time torch.gone(1)": "%time metaop.absent.torch.gone(1)  # metaop: unsupported",
    }
    notebook = {
        "cells": [{"cell_type": "code", "source": text} for text in cells],
        "metadata": {},
    }
    path = tmp_path / "notes.ipynb"
    path.write_text(json.dumps(notebook))
    (report,) = convert_path(path)
    assert not report.error
    sources = [cell["source"] for cell in json.loads(path.read_text())["cells"]]
    for before, after, last in zip(cells, sources, cells.values()):
        assert after.split("\n")[-1].startswith(last)
        assert len(after.split("\n")) == len(before.split("\n"))
    assert sources[8].startswith("w = (metaop.ones(7)\n") and sources[1].startswith("files = !ls\n")
    (gone,) = [finding for finding in report.findings if "gone" in finding.name]
    assert (gone.line, gone.column) == (1, 7)
    (again,) = convert_path(path)
    assert not again.changed


def test_the_page_counts_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text("import torch\ntorch.gone(1)\ntorch.gone('<b>')\ntorch.manual_seed(0)\n")
    other.write_text("print 'two'\n")
    assert main(["convert", str(path), str(other), "--check", "--report", "page"]) == 2
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "<td><code>torch.gone</code></td><td>2</td>" in page
    assert f'<a href="#file0">{path}</a></td><td>1</td><td>0</td><td>1</td><td>2</td>' in page
    assert '<td>2:1</td><td><span class="unsupported">unsupported</span></td>' in page
    assert page.count("left alone") == 5 and "<td>2 files</td>" in page
    assert "<b>" not in page


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """What they write and report is what one process does."""
    for k in range(13):
        text = f"import torch\nx = torch.relu(torch.ones({k}))\n" + "y = x\n" * (k % 5)
        (tmp_path / "many" / f"part{k % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "many" / f"part{k % 3}" / f"module{k}.py").write_text(text)
    (tmp_path / "many" / "notes.txt").write_text("torch")
    one = convert_path(tmp_path / "many", tmp_path / "one")
    two = convert_path(tmp_path / "many", tmp_path / "two", processes=2)
    assert one == two and len(one) == 13
    written = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.*")}
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert written[0] == written[1] and len(written[0]) == 14
