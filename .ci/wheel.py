"""Builds the source archive and the wheel, and uses the wheel as a user does.

python .ci/wheel.py                   with this Python and the newest dependencies
python .ci/wheel.py --oldest          with the oldest dependencies of setup.cfg (Python 3.10)
python .ci/wheel.py --python python3.12

The wheel is built from the source archive and installed in a fresh virtual environment; then the
commands and a training step run in an empty folder, where the repository cannot be seen. It needs
the package index, and nothing else of the network.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TRAINING = """
import metaop
from metaop import nn

metaop.manual_seed(0)
x = metaop.randn(64, 4)
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = metaop.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(50):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
"""
OLD_PROGRAM = "import torch\n\nprint(torch.ones(2, 3).sum(axis=1))\n"


def oldest_requirements() -> list[str]:
    """The requirements of setup.cfg, each at its lowest version: `numpy==1.26.*`."""
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    lines = configuration["options"]["install_requires"].split("\n")
    lines += configuration["options.extras_require"]["convert"].split("\n")
    return [re.sub(r">=(.+)", r"==\1.*", line) for line in lines if line]


def new_environment(folder: Path, python: str) -> str:
    """Makes a virtual environment; returns the path of its Python."""
    run([python, "-m", "venv", str(folder)])
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def run(command: list[str], cwd: Path | None = None) -> str:
    """Runs a command and returns what it printed; stops the program where the command fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, python: str) -> tuple[Path, Path]:
    """Builds into `folder`; returns the source archive and the wheel that was made of it."""
    tools = new_environment(folder / "tools", python)
    run([tools, "-m", "pip", "install", "--quiet", "build", "setuptools-scm>=8"])
    run([tools, "-m", "build", "--outdir", str(folder / "built"), str(ROOT)])
    (archive,) = (folder / "built").glob("*.tar.gz")
    (wheel,) = (folder / "built").glob("*.whl")
    check_plain_copy(folder, tools, archive)
    return archive, wheel


def check_plain_copy(folder: Path, tools: str, archive: Path) -> None:
    """Sources with neither git nor the archive's metadata still have a version: the fallback."""
    with tarfile.open(archive) as content:
        content.extractall(folder / "plain")
    (plain,) = (folder / "plain").iterdir()
    for told in ("PKG-INFO", ".git_archival.txt"):
        (plain / told).unlink()
    shutil.rmtree(plain / "metaop.egg-info")
    version = run([tools, "-m", "setuptools_scm", "--root", str(plain)], cwd=plain).strip()
    expected = re.search(r'fallback_version = "(.+)"', (ROOT / "pyproject.toml").read_text())
    assert expected is not None and version == expected[1], version


def use(folder: Path, wheel: Path, python: str, oldest: bool) -> None:
    """Installs the wheel and runs what users run, in an empty folder."""
    installed = new_environment(folder / "user", python)
    pinned = oldest_requirements() if oldest else []
    run([installed, "-m", "pip", "install", "--quiet", f"{wheel}[convert]", *pinned])
    empty = folder / "empty"
    empty.mkdir()
    where, version = run(
        [installed, "-c", "import metaop; print(metaop.__file__, metaop.__version__, sep='\\n')"],
        cwd=empty,
    ).split("\n")[:2]
    assert Path(where).is_relative_to(folder / "user"), where
    assert f"-{version}-" in wheel.name, (version, wheel.name)
    information = run([installed, "-m", "metaop", "info"], cwd=empty)
    assert version in information and "WRONG" not in information, information
    networks = run([installed, "-m", "metaop.models", "list"], cwd=empty)
    assert "resnet" in networks, networks
    (empty / "old.py").write_text(OLD_PROGRAM)
    run([installed, "-m", "metaop", "convert", "old.py"], cwd=empty)
    printed = run([installed, "old.py"], cwd=empty)
    assert printed.strip() == "tensor([3., 3.])", printed
    print(run([installed, "-c", TRAINING], cwd=empty).strip())
    used = run([installed, "--version"]).strip()
    print(f"{wheel.name}: {used}, {'oldest' if oldest else 'newest'} dependencies")


def main() -> None:
    """Builds and uses; prints the wheel and the versions that it worked with."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the Python to use it with")
    parser.add_argument("--oldest", action="store_true", help="with the oldest dependencies")
    parser.add_argument("--keep", type=Path, help="a folder in which archive and wheel are left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        archive, wheel = build(folder, sys.executable)
        use(folder, wheel, options.python, options.oldest)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for built in (archive, wheel):
                shutil.copy(built, options.keep)


if __name__ == "__main__":
    main()
