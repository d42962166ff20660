"""The text of docs/parity.md: what of PyTorch's surface is there, name by name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from torch.testing._internal.common_methods_invocations import op_db

from tests.parity.census import TIERS, names
from tests.parity.missing import MISSING
from tests.parity.op_db import COMPLEX, is_public, name_of
from tests.parity.op_db_table import FAILURES, OF_COMPLEX
from tests.parity.surface import MODULES, absent_names, absent_out

_INTRODUCTION = """# Parity with PyTorch

This page is generated from the tables in `tests/parity`; the tests fail when it is out of date
(write it anew with `./test tests/parity --update-golden`), when a name in it is lost, and when a
name that it calls missing is there.

## Names that programs use

A census of public repositories ranks the names of PyTorch by use. A tier holds the names that,
with those before, make up that share of all uses; PyTorch's tracers, exporters and distributed
internals are left out, and names that PyTorch 2.13 itself no longer has.
"""

_OPERATORS = """
## Operators

The public entries of PyTorch's own operator database, compared in values, dtypes, gradients,
methods, in-place methods and `out=` for float64, float32, int64 and bool.
"""

_SURFACE = """
## Absent names

The documented public names of PyTorch's modules that metaop has not, whether programs use them or
not. Names that begin with an underscore, copies for tracers and modules are left out.
"""

_DIFFERENCES = Path(__file__).parent / "differences.md"


def text() -> str:
    """The document."""
    generated = [_INTRODUCTION, *_census(), _OPERATORS, *_operators(), _SURFACE, *_surface()]
    return "\n".join(generated) + "\n" + _DIFFERENCES.read_text()


def _surface() -> list[str]:
    names = ["| module | absent names |", "|---|---|"]
    out = ["| module | functions |", "|---|---|"]
    for path in MODULES:
        shown = f"torch.{path}" if path else "torch"
        for rows, found in ((names, absent_names(path)), (out, absent_out(path))):
            if found:
                rows.append(f"| `{shown}` | {', '.join(f'`{name}`' for name in found)} |")
    missing = "Functions whose documentation has `out=` in PyTorch, without it:"
    return [*names, *(["", missing, "", *out] if len(out) > 2 else [])]


def _census() -> list[str]:
    found = [name for name in names() if name.status]
    lines = ["| tier | names | there |", "|---|---|---|"]
    for tier in TIERS:
        chosen = [name for name in found if name.tier == tier]
        there = sum(name.status == "there" for name in chosen)
        lines.append(f"| {tier} % | {len(chosen)} | {there} ({there / len(chosen):.1%}) |")
    lines += ["", "Missing:", "", "| name | uses | reason |", "|---|---|---|"]
    for name in found:
        if name.status == "missing":
            lines.append(f"| `{name.name}` | {name.uses} | {MISSING[name.name]} |")
    return lines


def _operators() -> list[str]:
    entries = sorted({name_of(entry) for entry in op_db if is_public(entry)})
    share = 1 - len(FAILURES) / len(entries)
    lines = [f"{len(entries) - len(FAILURES)} of {len(entries)} entries agree ({share:.1%}).", ""]
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in FAILURES.items():
        reasons[reason].append(name)
    lines += ["| reason | entries |", "|---|---|"]
    for reason, failing in reasons.items():
        lines.append(f"| {reason} | {', '.join(f'`{name}`' for name in failing)} |")
    of_complex = [
        entry
        for entry in op_db
        if is_public(entry)
        and name_of(entry) not in FAILURES
        and entry.supported_dtypes("cpu") & set(COMPLEX)
    ]
    lines += [
        "",
        f"Of these, {len(of_complex)} take complex numbers, and "
        f"{len(of_complex) - len(OF_COMPLEX)} agree for complex64 and complex128 as well. "
        "The others:",
        "",
        "| reason | entry |",
        "|---|---|",
    ]
    lines += [f"| {reason} | `{name}` |" for name, reason in OF_COMPLEX.items()]
    lines += ["", "Entries that agree:", ""]
    agreeing = [f"`{name}`" for name in entries if name not in FAILURES]
    return [*lines, ", ".join(agreeing) + "."]
