"""Groups of ranks that take part in a collective."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from metaop.dist.collectives import everyone
from metaop.dist.process_group import ProcessGroup
from metaop.errors import ArgumentError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _NoMember(ProcessGroup):
    """What a rank outside a new group gets instead of it."""

    def __init__(self) -> None:
        self.ranks = []

    def rank(self) -> int:
        return -1

    def size(self) -> int:
        return -1


class group:
    """`group.WORLD`: all ranks of the job; its `size()` counts them.

    >>> metaop.distributed.group.WORLD.size()  # a program of one rank
    1
    """

    WORLD: ProcessGroup | None = None


class GroupMember(group):
    """`GroupMember.NON_GROUP_MEMBER`: the group, of size -1, of a rank that belongs to none.

    >>> metaop.distributed.new_group([0]) is metaop.distributed.GroupMember.NON_GROUP_MEMBER
    False
    """

    NON_GROUP_MEMBER: ProcessGroup = _NoMember()


def for_members(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Makes a function with an argument `group` do nothing, with a warning, outside the group."""
    place = list(inspect.signature(function).parameters).index("group")

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        chosen = args[place] if len(args) > place else kwargs.get("group")
        if chosen is GroupMember.NON_GROUP_MEMBER:
            text = f"{function.__name__} does nothing on a rank that is not in the group"
            warnings.warn(text, stacklevel=2)
            return cast(Result, None)
        return function(*args, **kwargs)

    return call


# The groups that were made besides `group.WORLD`, with NON_GROUP_MEMBER for those of other ranks.
made: list[ProcessGroup] = []


def world_group() -> ProcessGroup:
    """The group of all ranks; starts MPI if necessary."""
    if group.WORLD is None:
        communicator = everyone()
        group.WORLD = ProcessGroup(communicator, range(communicator.size))
    return group.WORLD


def forget_group(chosen: ProcessGroup | None) -> None:
    """Forgets all groups if `chosen` is None or `group.WORLD`, else that group."""
    if chosen is None or chosen is group.WORLD:
        group.WORLD = None
        made.clear()
    elif chosen in made:
        made.remove(chosen)


def check_whole_group(chosen: ProcessGroup | None, owner: str) -> None:
    """Raises ArgumentError, which names `owner`, if a group lacks some ranks of the job."""
    if chosen is not None and chosen.size() != world_group().size():
        raise ArgumentError(
            f"{owner} got the group of ranks {chosen.ranks}",
            fix="omit it: all ranks of the job take part",
        )


def make_group(ranks: Sequence[int] | None = None, is_sorted: bool = True) -> ProcessGroup:
    """A group of some ranks (by default all); `GroupMember.NON_GROUP_MEMBER` outside it.

    Every rank of the job must call it, in the same order.
    """
    everyone = world_group()
    chosen = list(everyone.ranks if ranks is None else ranks)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(everyone.ranks):
        raise ArgumentError(
            f"a group of the ranks {chosen} of {everyone.size()}",
            fix=f"name some of the ranks 0 to {everyone.size() - 1}, each once",
        )
    if is_sorted:
        chosen.sort()
    everyone.agree(f"new_group({chosen})")
    communicator = everyone.communicator.Create(everyone.communicator.group.Incl(chosen))
    is_member = everyone.rank() in chosen
    made.append(ProcessGroup(communicator, chosen) if is_member else GroupMember.NON_GROUP_MEMBER)
    return made[-1]
