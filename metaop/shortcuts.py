"""Faults in work that only saves time: the program takes the longer way, and says so once."""

from __future__ import annotations

import traceback
import warnings

from metaop.errors import InternalError, MetaopError
from metaop.settings import get

_reported: set[str] = set()


def go_without(what: str, fault: Exception) -> None:
    """Raises a fault if METAOP_VERIFY is set; else warns of it, once for each kind of work.

    `what` is what was to be made. Errors for the user are left to the longer way, which meets them
    too.
    """
    if get("METAOP_VERIFY"):
        raise fault
    for_user = isinstance(fault, MetaopError) and not isinstance(fault, InternalError)
    if for_user or what in _reported:
        return
    _reported.add(what)
    place = traceback.extract_tb(fault.__traceback__)[-1]
    warnings.warn(
        f"metaop could not make {what}: {type(fault).__name__}: {fault} ({place.filename}:"
        f"{place.lineno}). The program goes on without, and may be slower. Please report this",
        RuntimeWarning,
        stacklevel=2,
    )
