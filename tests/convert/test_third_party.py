"""The public names of packages around PyTorch: what they become, counted in the documents.

`third_party.json` has the names of torchvision 0.28, einops 0.8 and the SummaryWriter.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("libcst")
pytest.importorskip("einops")
from metaop.convert.catalogue import lookup

HERE = Path(__file__)
DOCUMENT = HERE.parents[2] / "docs" / "vision.md"
NAMES: dict[str, list[str]] = {
    module: names.split()
    for module, names in json.loads(HERE.with_name("third_party.json").read_text()).items()
}
# Where a name of the package may be missing; everything else is there.
INCOMPLETE = {
    "torchvision.datasets": "read files of your own with DatasetFolder or a Dataset",
    "torchvision.io": "formats by their names; decode_image reads them all",
    "torchvision.models": "networks that models/ has not",
    "torchvision.ops": "DropBlock, and the block for volumes",
    "torchvision.transforms": "AugMix",
    "torchvision.transforms.v2": "transforms of boxes, masks and key points",
    "torchvision.utils": "key points and flow",
    "torch.utils.tensorboard.SummaryWriter": "what needs another library",
}


def missing(module: str) -> list[str]:
    return [name for name in NAMES[module] if lookup(f"{module}.{name}").path is None]


def table() -> str:
    """The table of the document."""
    lines = ["| package | names | what is missing |", "| --- | --- | --- |"]
    for module, names in NAMES.items():
        there = len(names) - len(missing(module))
        rest = INCOMPLETE[module] if there < len(names) else ""
        lines.append(f"| `{module}` | {there} of {len(names)} | {rest} |".replace("  |", " |"))
    return "\n".join(lines)


@pytest.mark.parametrize("module", list(NAMES))
def test_names_are_there_or_have_a_hint(module: str) -> None:
    absent = missing(module)
    assert not absent or module in INCOMPLETE, absent
    for name in absent:
        assert lookup(f"{module}.{name}").meaning, f"{module}.{name} has no hint"


def test_the_document_counts_them(request: pytest.FixtureRequest) -> None:
    text = DOCUMENT.read_text()
    if request.config.getoption("--update-golden"):
        start = text.index("| package |")
        end = text.index("\n\n", start)
        text = text[:start] + table() + text[end:]
        DOCUMENT.write_text(text)
    assert table() in text, "write it anew with --update-golden"
