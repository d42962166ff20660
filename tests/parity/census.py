"""The census: the names that public repositories use of PyTorch, ranked by use, and their fate."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import torch

import metaop
from tests.parity.missing import INTERNALS, MISSING
from tests.parity.names import resolve

TIERS = ("50", "80", "90", "95", "99", "100")

# The census names Python's operators by their nodes in the syntax tree.
_OPERATORS = {
    "__mult__": "__mul__",
    "__imult__": "__imul__",
    "__div__": "__truediv__",
    "__idiv__": "__itruediv__",
    "__usub__": "__neg__",
    "__matmult__": "__matmul__",
    "__gte__": "__ge__",
    "__lte__": "__le__",
    "__noteq__": "__ne__",
    "__bitand__": "__and__",
    "__bitor__": "__or__",
    "__not__": "__bool__",
    "__is__": "__eq__",
    "__isnot__": "__ne__",
}


class Name(NamedTuple):
    """One name of the census, with what it is in metaop and in PyTorch (None: nothing)."""

    name: str
    kind: str
    tier: str
    uses: int
    ours: Any
    theirs: Any

    @property
    def status(self) -> str:
        """ "there", "missing", or "" for names that PyTorch 2.13 has not either."""
        if self.ours is not None:
            return "there"
        return "missing" if self.theirs is not None or self.name in MISSING else ""


def names() -> list[Name]:
    """The census without the internals of PyTorch."""
    path = Path(__file__).with_name("census.csv")
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if not _is_internal(row["name"])]
    return [
        Name(
            row["name"],
            row["kind"],
            row["tier"],
            int(row["uses"]),
            *(find(package, row["kind"], row["name"]) for package in (metaop, torch)),
        )
        for row in rows
    ]


def _is_internal(name: str) -> bool:
    below = name.removeprefix("torch.")
    return name != below and any(
        below == part or below.startswith(part + ".") for part in INTERNALS
    )


def find(package: Any, kind: str, name: str) -> Any:
    """What a name of the census is in a package."""
    if kind == "api":
        return resolve(package, name.split(".")[1:])
    if kind == "oper":
        return getattr(package.Tensor, _OPERATORS.get(name, name), None)
    owners, _, attribute = name.rpartition(".")
    classes = {
        "Tensor": package.Tensor,
        "Module": package.nn.Module,
        "Optimizer": package.optim.Optimizer,
    }
    holders = [classes[owner] for owner in owners.split("|")]
    if not all(hasattr(holder, attribute) for holder in holders):
        return None
    # A class attribute may well be None: `Tensor.grad`.
    return getattr(holders[0], attribute) or attribute
