"""Point-to-point messages between ranks, of tensors on hosts and on GPUs.

Every message is a copy: `isend` and `irecv` only start it, in any order, and `wait` ends it.
`send` moves values between two GPUs by NCCL, for which both ranks must wait for each other; `isend`
must not wait, so it takes them through host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from metaop.dist.collectives import MPIWorld
from metaop.dist.memory import HOST_MEMORY, Memory, memory_of
from metaop.dist.pairs import pair_of
from metaop.distributed.mailbox import Arrival, check_tag, mailbox_of
from metaop.distributed.process_group import ProcessGroup, for_members, world_group
from metaop.distributed.values import put
from metaop.distributed.work import Message, Work
from metaop.errors import ArgumentError, DistributedError
from metaop.tensor.core import Tensor
from metaop.tensor.host.arrays import array_of
from metaop.unified_graph.tensor_type import CPU

Group = ProcessGroup | None
_ANSWER = 32006


class _OnGpu(NamedTuple):
    """The header of a tensor on a GPU, from which the receiver allocates memory."""

    shape: tuple[int, ...]
    dtype: np.dtype


@for_members
def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends the tensor to rank `dst`, which must call `recv` with a tensor of its shape.

    `group_dst` names that rank by its number in the group instead. For a tensor on a GPU, the call
    returns only after that rank has called `recv`.

    >>> metaop.distributed.send(metaop.tensor([1.0, 2.0]), dst=0)  # a program of one rank
    >>> x = metaop.zeros(2)
    >>> metaop.distributed.recv(x), x
    (0, tensor([1., 2.]))
    """
    memory, value = memory_of(tensor.device), tensor.detach()
    if memory is HOST_MEMORY:
        _sending(tensor, dst, group, tag, group_dst).wait()
        return
    members, rank, what = _receiver(dst, group, tag, group_dst)
    give(members, _OnGpu(tuple(tensor.shape), tensor.dtype.numpy), rank, tag, what)
    if not taken(members, rank, _ANSWER, what)[0]:
        give(members, memory.get(array_of(value)), rank, _ANSWER, what)
        return
    pair = _pair_of(members, rank, memory)
    with memory.active():
        request = pair.transport.send(array_of(value).reshape(-1), 1 - pair.rank)
        pair.wait(request, what)


@for_members
def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work:
    """Starts to send a copy of the tensor to rank `dst`, which must receive one of its shape.

    `group_dst` names that rank by its number in the group instead. The `wait` of the result returns
    when the message has gone, and raises DistributedError if nobody receives it.

    >>> sent = metaop.distributed.isend(metaop.tensor([1.0, 2.0]), dst=0)  # a program of one rank
    >>> x = metaop.zeros(2)
    >>> metaop.distributed.irecv(x, src=0).wait(), sent.wait(), x
    (True, True, tensor([1., 2.]))
    """
    return _sending(tensor, dst, group, tag, group_dst)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives a tensor from rank `src` (by default any rank) into `tensor`; returns `src`.

    Both tensors must have the same shape and dtype. `group_src` names that rank by its number in
    the group instead; a rank outside the group gets -1.

    >>> metaop.distributed.send(metaop.tensor([1.0, 2.0]), dst=0)  # a program of one rank
    >>> x = metaop.zeros(2)
    >>> metaop.distributed.recv(x, src=0), x
    (0, tensor([1., 2.]))
    """
    members = group or world_group()
    if members.size() < 0:
        return -1
    message, arrival = _receiving("recv", tensor, src, members, tag, group_src)
    message.wait()
    assert arrival.source is not None
    return members.ranks[arrival.source]


@for_members
def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work:
    """Starts to receive a tensor from rank `src` (by default any rank); `wait` fills `tensor`.

    Both tensors must have the same shape and dtype. Messages of one rank with one `tag` arrive in
    the order of the calls. `group_src` names the rank by its number in the group instead.

    >>> x = metaop.zeros(2)
    >>> coming = metaop.distributed.irecv(x, src=0)  # a program of one rank
    >>> coming.is_completed()
    False
    >>> metaop.distributed.send(metaop.tensor([1.0, 2.0]), dst=0)
    >>> coming.wait(), x
    (True, tensor([1., 2.]))
    """
    return _receiving("irecv", tensor, src, group or world_group(), tag, group_src)[0]


class P2POp:
    """A message for `batch_isend_irecv`: `op` is `isend` or `irecv`, `peer` the other rank.

    `group_peer` names that rank by its number in the group instead. Raises ArgumentError for
    another `op`, and if no rank is named.

    >>> operation = metaop.distributed.P2POp(metaop.distributed.isend, metaop.ones(2), 0)
    >>> operation
    P2POp(isend, peer=0, tag=0, float32[2])
    """

    def __init__(
        self,
        op: Callable[..., Work],
        tensor: Tensor,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ArgumentError(
                f"P2POp got {getattr(op, '__name__', op)!r}",
                fix="use metaop.distributed.isend or metaop.distributed.irecv",
            )
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = group or world_group()
        self.group_peer = self.group.chosen(peer, group_peer)
        self.peer = self.group.rank_of(self.group_peer)

    def start(self) -> Work:
        """Starts the message."""
        return self.op(self.tensor, self.peer, self.group, self.tag)

    def __repr__(self) -> str:
        kind = f"{self.tensor.dtype.name}{list(self.tensor.shape)}"
        return f"P2POp({self.op.__name__}, peer={self.peer}, tag={self.tag}, {kind})"


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Starts messages in any order; wait for all that it returns, whatever their shapes.

    Two ranks may send to each other at once: no message waits for another one. Raises ArgumentError
    unless all entries are a `P2POp`.

    >>> x, dist = metaop.zeros(2), metaop.distributed
    >>> give, take = dist.P2POp(dist.isend, metaop.ones(2), 0), dist.P2POp(dist.irecv, x, 0)
    >>> [work.wait() for work in dist.batch_isend_irecv([take, give])], x
    ([True, True], tensor([1., 1.]))
    """
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ArgumentError(
            "batch_isend_irecv needs a list of P2POp",
            fix="pass [P2POp(isend, tensor, peer), P2POp(irecv, tensor, peer)]",
        )
    return [one.start() for one in p2p_op_list]


def give(members: ProcessGroup, value: Any, rank: int, tag: int, what: str) -> None:
    """Sends an object to a member of the group; returns when it has gone."""
    box = mailbox_of(members.communicator)
    box.watchdog.wait_for([rank], box.send(value, rank, tag), what)


def taken(members: ProcessGroup, rank: int | None, tag: int, what: str) -> tuple[Any, int]:
    """Receives an object from a member (None: any); returns it with the number of the member."""
    box = mailbox_of(members.communicator)
    arrival = box.expect(rank, tag)
    box.watchdog.wait_for(_known(rank), partial(box.has, arrival), what)
    assert arrival.source is not None
    return arrival.value, arrival.source


def _known(rank: int | None) -> list[int]:
    return [] if rank is None else [rank]


def _receiver(
    dst: int | None, group: Group, tag: int, group_dst: int | None
) -> tuple[ProcessGroup, int, str]:
    """The group, the number of the rank that receives a message, and what is done."""
    check_tag(tag)
    members = group or world_group()
    rank = members.chosen(dst, group_dst)
    return members, rank, f"send to rank {members.ranks[rank]}"


def _sending(
    tensor: Tensor, dst: int | None, group: Group, tag: int, group_dst: int | None
) -> Message:
    """Starts to send a tensor through host memory."""
    members, rank, what = _receiver(dst, group, tag, group_dst)
    box = mailbox_of(members.communicator)
    memory = memory_of(tensor.device)
    with memory.active():
        value = np.ascontiguousarray(memory.get(array_of(tensor.detach())))
    return Message(tensor, box.watchdog, [rank], box.send(value, rank, tag), what)


def _receiving(
    name: str,
    tensor: Tensor,
    src: int | None,
    members: ProcessGroup,
    tag: int,
    group_src: int | None,
) -> tuple[Message, Arrival]:
    """Starts to receive a tensor."""
    check_tag(tag)
    rank = None if src is None and group_src is None else members.chosen(src, group_src)
    what = f"{name} from " + ("any rank" if rank is None else f"rank {members.ranks[rank]}")
    box = mailbox_of(members.communicator)
    arrival = box.expect(rank, tag)

    finish = partial(_fill, members, tensor, arrival, what)
    is_there = partial(box.has, arrival)
    return Message(tensor, box.watchdog, _known(rank), is_there, what, finish), arrival


def _fill(members: ProcessGroup, tensor: Tensor, arrival: Arrival, what: str) -> None:
    """Writes what has arrived into a tensor."""
    value, source = arrival.value, arrival.source
    assert source is not None
    if not isinstance(value, np.ndarray | _OnGpu):
        raise DistributedError(
            f"{what}: rank {members.ranks[source]} sends objects",
            fix="receive them with recv_object_list",
        )
    if value.dtype != tensor.dtype.numpy:
        raise DistributedError(
            f"{what}: a tensor of {value.dtype.name} arrives for one of {tensor.dtype.name}",
            fix="let both ranks name one dtype",
        )
    memory, device = memory_of(tensor.device), CPU
    if isinstance(value, _OnGpu):
        value = _taken_from_gpu(members, value, memory, source, what)
        device = memory.device
    put(tensor, value, device)


def _taken_from_gpu(
    members: ProcessGroup, message: _OnGpu, memory: Memory, source: int, what: str
) -> Any:
    """Receives a value from the GPU of a rank, directly or, without a GPU here, through hosts."""
    give(members, memory is not HOST_MEMORY, source, _ANSWER, what)
    if memory is HOST_MEMORY:
        return taken(members, source, _ANSWER, what)[0]
    pair = _pair_of(members, source, memory)
    with memory.active():
        value = memory.full(message.shape, 0, message.dtype)
        pair.wait(pair.transport.receive(value.reshape(-1), 1 - pair.rank), what)
    return value


def _pair_of(members: ProcessGroup, rank: int, memory: Memory) -> MPIWorld:
    """The world of this rank and another, which must make the same call."""
    ranks = sorted((members.ranks[members.rank()], members.ranks[rank]))
    return pair_of(ranks[0], ranks[1], memory)
