"""Chooses the sharding of a module's values: one for all, by name, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Broadcast, Partial, Sbp, Split
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor

SbpLike = Sbp | Sequence[Sbp]
SbpChoice = SbpLike | Mapping[str, SbpLike] | Callable[[str, Tensor], SbpLike]


def signature_by_name(
    sbp: SbpChoice, names: Sequence[str]
) -> Callable[[str, Tensor, Placement], SbpLike]:
    """The sharding of a value, from its name, the value and its placement.

    The first matching pattern of a mapping applies. A pattern that matches none of `names` is
    likely a mistake and raises ArgumentError.
    """
    if isinstance(sbp, Mapping):
        patterns = dict(sbp)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ArgumentError(
                    f"sbp has {pattern!r}, but no parameter or buffer matches it",
                    fix=f"the names are {', '.join(names)}",
                )

        def by_pattern(name: str, tensor: Tensor, placement: Placement) -> SbpLike:
            whole = (BROADCAST,) * placement.ranks.ndim
            found = (states for pattern, states in patterns.items() if fnmatchcase(name, pattern))
            return next(found, whole)

        return by_pattern
    if isinstance(sbp, (Split, Broadcast, Partial, Sequence)):
        signature: SbpLike = sbp
        return lambda name, tensor, placement: signature
    choose = sbp
    return lambda name, tensor, placement: choose(name, tensor)
