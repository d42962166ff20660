"""The examples of docs/custom_kernels.md run, in their order."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "custom_kernels.md"


def test_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    program = tmp_path / "custom_kernels.py"
    program.write_text("\n\n".join(blocks))
    runpy.run_path(str(program))
