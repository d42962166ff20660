"""Other values of switches for a while, as PyTorch's modules of switches have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(
    switches: Any, changes: str | Mapping[str, Any] | None = None, value: Any = None, **others: Any
) -> Iterator[None]:
    """Sets attributes of a module for a block or a function: by name, of a dict, by keyword.

    Names in strings may have dots.

    >>> with metaop.backends.dynamo.patch(verbose=True):
    ...     metaop.backends.dynamo.verbose
    True
    """
    named = {changes: value} if isinstance(changes, str) else dict(changes or {})
    kept = []
    try:
        for path, new in {**named, **others}.items():
            owner, (*outer, name) = switches, path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            kept.append((owner, name, name in vars(owner), getattr(owner, name, None)))
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, was_there, old in reversed(kept):
            setattr(owner, name, old) if was_there else delattr(owner, name)
