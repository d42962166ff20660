"""Collectives and messages of Python objects, which are pickled: ranks must trust each other."""

from __future__ import annotations

from typing import Any

from metaop.distributed.collectives import Group, agreed, check_count
from metaop.distributed.messages import give, taken
from metaop.distributed.process_group import for_members, world_group
from metaop.errors import ArgumentError, DistributedError


@for_members
def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Fills the list with the objects in the list of rank `src` (0).

    `group_src` names that rank by its number in the group instead. Objects pass through host memory
    whatever the `device`.

    >>> found = [{"step": 3}]
    >>> metaop.distributed.broadcast_object_list(found)  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    members = group or world_group()
    root = members.chosen(src, group_src, default=0)
    members.agree(f"broadcast_object_list from {members.ranks[root]}")
    object_list[:] = members.communicator.bcast(list(object_list), root)


@for_members
def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Fills the list with the objects of all ranks.

    >>> found = [None]
    >>> metaop.distributed.all_gather_object(found, {"step": 3})  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    object_list[:] = agreed("all_gather_object", group).communicator.allgather(obj)


@for_members
def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
) -> None:
    """Fills the list of rank `dst` (0) with the objects of all ranks; the others pass no list.

    `group_dst` names that rank by its number in the group instead. Raises ArgumentError unless the
    length of the list is the number of ranks.

    >>> found = [None]
    >>> metaop.distributed.gather_object({"step": 3}, found)  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    members = group or world_group()
    root = members.chosen(dst, group_dst, default=0)
    if members.rank() == root:
        check_count("gather_object", object_gather_list, members)
    elif object_gather_list is not None:
        raise ArgumentError(
            f"gather_object to rank {members.ranks[root]} got a list on rank "
            f"{members.rank_of(members.rank())}",
            fix="pass object_gather_list on the receiving rank only",
        )
    members.agree(f"gather_object to {members.ranks[root]}")
    found = members.communicator.gather(obj, root)
    if object_gather_list is not None:
        object_gather_list[:] = found


@for_members
def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
) -> None:
    """Puts object k of the input list of rank `src` (0) first into the output list of rank k.

    `group_src` names that rank by its number in the group instead. Raises ArgumentError for an
    output list of length 0, and unless the length of the input list is the number of ranks.

    >>> found = [None]
    >>> metaop.distributed.scatter_object_list(found, [{"step": 3}])  # a program of one rank
    >>> found
    [{'step': 3}]
    """
    members = group or world_group()
    root = members.chosen(src, group_src, default=0)
    given = None
    if members.rank() == root:
        check_count("scatter_object_list", scatter_object_input_list, members)
        given = scatter_object_input_list
    if not scatter_object_output_list:
        raise ArgumentError(
            "scatter_object_list got an empty output list", fix="pass a list of one element"
        )
    members.agree(f"scatter_object_list from {members.ranks[root]}")
    scatter_object_output_list[0] = members.communicator.scatter(given, root)


@for_members
def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Group = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Sends objects to rank `dst`, which must call `recv_object_list` with a list of their length.

    `group_dst` names that rank by its number in the group instead. Objects pass through host
    memory, in one message, whatever `device` and `use_batch` say.

    >>> metaop.distributed.send_object_list([{"step": 3}], dst=0)  # a program of one rank
    >>> found = [None]
    >>> metaop.distributed.recv_object_list(found, src=0), found
    (0, [{'step': 3}])
    """
    members = group or world_group()
    number = members.chosen(dst, group_dst)
    what = f"send_object_list to rank {members.ranks[number]}"
    give(members, list(object_list), number, 0, what)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Fills the list with the objects that rank `src` sends (by default any rank); returns `src`.

    `group_src` names that rank by its number in the group instead; a rank outside the group gets
    -1. `device` and `use_batch` change nothing. Raises DistributedError if the rank sends a tensor,
    or a list of another length.

    >>> metaop.distributed.send_object_list([{"step": 3}], dst=0)  # a program of one rank
    >>> found = [None]
    >>> metaop.distributed.recv_object_list(found), found
    (0, [{'step': 3}])
    """
    members = group or world_group()
    if members.size() < 0:
        return -1
    number = None if src is None and group_src is None else members.chosen(src, group_src)
    who = "any rank" if number is None else f"rank {members.ranks[number]}"
    found, source = taken(members, number, 0, f"recv_object_list from {who}")
    if not isinstance(found, list) or len(found) != len(object_list):
        sent = f"{len(found)} objects" if isinstance(found, list) else "a tensor"
        raise DistributedError(
            f"recv_object_list expects {len(object_list)} objects, and rank "
            f"{members.ranks[source]} sends {sent}",
            fix="let the ranks make matching calls with lists of one length",
        )
    object_list[:] = found
    return members.ranks[source]
