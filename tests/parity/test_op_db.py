"""Every public operator of PyTorch's database behaves as PyTorch's, or is in the table.

With METAOP_OP_DB="1/2", only the second half of the operators runs: every second one.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.parity.op_db import COMPLEX, Comparison, is_public, name_of  # noqa: E402
from tests.parity.op_db_table import FAILURES, OF_COMPLEX  # noqa: E402

ENTRIES = [entry for entry in op_db if is_public(entry)]
# Some take complex numbers only.
REAL_ENTRIES = [entry for entry in ENTRIES if entry.supported_dtypes("cpu") != set(COMPLEX)]
OF_COMPLEX_ENTRIES = [
    entry
    for entry in ENTRIES
    if entry.supported_dtypes("cpu") & set(COMPLEX) and name_of(entry) not in FAILURES
]
_PART, _PARTS = map(int, os.environ.get("METAOP_OP_DB", "0/1").split("/"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    """PyTorch's threads do not pay for small samples."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("entry", REAL_ENTRIES[_PART::_PARTS], ids=name_of)
def test_operator(entry: Any) -> None:
    comparison = Comparison(entry).run()
    if name_of(entry) in FAILURES:
        assert comparison.failures, "this works now: take it out of op_db_table.py"
    else:
        assert not comparison.failures


@pytest.mark.parametrize("entry", OF_COMPLEX_ENTRIES[_PART::_PARTS], ids=name_of)
def test_operator_of_complex_numbers(entry: Any) -> None:
    comparison = Comparison(entry).run(COMPLEX)
    if name_of(entry) in OF_COMPLEX:
        assert comparison.failures, "this works now: take it out of op_db_table.py"
    else:
        assert not comparison.failures


def test_the_table_names_entries() -> None:
    assert set(FAILURES) <= {name_of(entry) for entry in ENTRIES}
    assert set(OF_COMPLEX) <= {name_of(entry) for entry in OF_COMPLEX_ENTRIES}
    share = 1 - len(FAILURES) / len(ENTRIES)
    print(f"{len(ENTRIES) - len(FAILURES)} of {len(ENTRIES)} entries work ({share:.1%})")
