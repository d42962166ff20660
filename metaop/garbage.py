"""Python's search for garbage, which pauses while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# From this many new objects on, the first collection afterwards would be noticeable.
_MANY_OBJECTS = 50_000


@contextmanager
def collection_paused() -> Iterator[None]:
    """Compiling and importing make up to a million objects but no cycles.

    To look through them again and again takes a tenth of the time of an import, and a sixth of
    compiling. What is left of many goes at once to the oldest generation, which is rarely searched.
    """
    was_enabled, before = gc.isenabled(), gc.get_count()[0]
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Python counts frozen objects one by one, in as long as compiling a small program.
            if gc.get_count()[0] - before > _MANY_OBJECTS and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
