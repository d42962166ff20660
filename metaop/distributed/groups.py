"""PyTorch's functions that make groups of ranks, and translate numbers of ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

from metaop.cuda import device_count
from metaop.distributed.backends import check_backend
from metaop.distributed.process_group import (
    GroupMember,
    ProcessGroup,
    group,
    made,
    make_group,
    world_group,
)
from metaop.distributed.work import seconds_of
from metaop.errors import ArgumentError, DistributedError


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: None = None,
    sort_ranks: bool = True,
) -> ProcessGroup:
    """A group of some ranks (by default all); every rank of the job must call it.

    A rank outside gets `GroupMember.NON_GROUP_MEMBER`, for which collectives do nothing. Waits
    inside the group are errors after `timeout`; `group_desc` is only a label. Raises ArgumentError
    for ranks outside the job or named twice, unknown backends, options, a device, and
    `use_local_synchronization`.

    >>> metaop.distributed.get_world_size(metaop.distributed.new_group([0]))
    1
    """
    check_backend(backend)
    given = {"pg_options": pg_options, "device_id": device_id}
    for name, value in {**given, "use_local_synchronization": use_local_synchronization}.items():
        if value:
            raise ArgumentError(
                f"new_group got {name}={value!r}",
                fix="omit it: all ranks of the job make the group, and cuda.set_device() chooses "
                "a GPU",
            )
    found = make_group(ranks, sort_ranks)
    if timeout is not None and found.size() > 0:
        found.world.watchdog.timeout = seconds_of(timeout)
    return found


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of `group_size` consecutive ranks each; returns that of this rank, and all of them.

    By default a group has as many ranks as a host has GPUs. Raises ArgumentError unless the size
    divides the number of ranks; further arguments are those of `new_group`.

    >>> mine, groups = metaop.distributed.new_subgroups(1)  # a program of one rank
    >>> mine.size(), len(groups)
    (1, 1)
    """
    ranks = get_process_group_ranks(group)
    size = device_count() if group_size is None else group_size
    if size <= 0 or len(ranks) % size:
        raise ArgumentError(
            f"groups of {size} of {len(ranks)} ranks", fix="use a group_size that divides them"
        )
    parts = [ranks[start : start + size] for start in range(0, len(ranks), size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of the ranks in each list; returns that of this rank, and all of them.

    A rank gets `GroupMember.NON_GROUP_MEMBER` for groups of others. Raises ArgumentError if two
    groups share a rank; further arguments are those of `new_group`.

    >>> mine, groups = metaop.distributed.new_subgroups_by_enumeration([[0]])
    >>> mine is groups[0]
    True
    """
    ranks = [rank for part in ranks_per_subgroup_list for rank in part]
    if not ranks or len(set(ranks)) < len(ranks):
        raise ArgumentError(
            f"groups of the ranks {[list(part) for part in ranks_per_subgroup_list]}",
            fix="name ranks, and each in one group only",
        )
    groups = [
        new_group(part, timeout, backend, pg_options, group_desc=group_desc)
        for part in ranks_per_subgroup_list
    ]
    mine = (one for one in groups if one is not GroupMember.NON_GROUP_MEMBER)
    return next(mine, GroupMember.NON_GROUP_MEMBER), groups


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks of the job that belong to a group (None: all), in the order of their numbers there.

    The list has the length `group.size()`.

    >>> metaop.distributed.get_process_group_ranks(None)  # a program of one rank
    [0]
    """
    return list((group or world_group()).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank within the job of a member of a group; DistributedError if there is none.

    >>> metaop.distributed.get_global_rank(metaop.distributed.new_group([0]), 0)
    0
    """
    return group.rank_of(group_rank)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number within a group of a rank of the job; DistributedError if it is not a member.

    >>> metaop.distributed.get_group_rank(metaop.distributed.new_group([0]), 0)
    0
    """
    return group.number_of(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process among those of its host, which the variable LOCAL_RANK holds.

    Without it, `fallback_rank`, or a DistributedError if there is none.

    >>> metaop.distributed.get_node_local_rank(fallback_rank=0)  # a program of one rank
    0
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise DistributedError(
            "LOCAL_RANK is not set: this process is not one of several",
            fix="start it with `metaop run`, or pass fallback_rank",
        )
    return int(fallback_rank)


def get_pg_count() -> int:
    """The number of groups that exist: that of all ranks, once there is one, and new ones.

    >>> metaop.distributed.init_process_group()
    >>> metaop.distributed.get_pg_count() > 0
    True
    """
    return len(made) + (group.WORLD is not None)
