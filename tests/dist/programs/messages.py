"""Messages that do not block: large ones both ways at once, in any order; objects."""

import numpy as np

import metaop
import metaop.distributed as dist
from metaop.errors import DistributedError

rank, ranks = dist.get_rank(), dist.get_world_size()
after, before = (rank + 1) % ranks, (rank - 1) % ranks
LARGE = 2_000_000  # of float32: 8 MB


def given(k: int, size: int = LARGE) -> metaop.Tensor:
    return metaop.arange(size).float() + k


def check(tensor: metaop.Tensor, k: int) -> None:
    assert (tensor == given(k, tensor.numel())).all()


# A ring, in which each rank waits for what it sends before what it receives, and the other way.
for is_first in (True, False):
    place, value = metaop.zeros(LARGE), given(rank)
    operations = [dist.P2POp(dist.isend, value, after), dist.P2POp(dist.irecv, place, before)]
    works = dist.batch_isend_irecv(operations if is_first else operations[::-1])
    # What is sent is a copy.
    value.zero_()
    assert all(work.wait() for work in works) and all(work.is_completed() for work in works)
    check(place, before)

# All with all, and through a group that numbers the ranks otherwise.
group = dist.new_group(list(reversed(range(ranks))), sort_ranks=False)
assert dist.get_group_rank(group, rank) == group.rank() == ranks - 1 - rank
for members in (None, group):
    places = [metaop.zeros(1000) for _ in range(ranks)]
    operations = [dist.P2POp(dist.irecv, place, k, members) for k, place in enumerate(places)]
    operations += [
        dist.P2POp(dist.isend, given(rank, 1000), group=members, group_peer=k) for k in range(ranks)
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for k, place in enumerate(places):
        check(place, k)

# Messages belong to receives in the order of the calls, whichever is waited for first.
if rank == 0:
    sent = [dist.isend(given(k, 10), 1, tag=k % 2) for k in range(6)]
    for work in sent:
        work.wait()
elif rank == 1:
    places = [metaop.zeros(10) for _ in range(6)]
    # The third takes what any rank sends, but what the first expects is not for it.
    sources = [0, 0, None, 0, 0, None]
    works = [dist.irecv(p, s, tag=k % 2) for k, (p, s) in enumerate(zip(places, sources))]
    for work in reversed(works):
        work.wait(timeout=60.0)
    for k, place in enumerate(places):
        check(place, k)
    assert works[0].is_completed() and works[0].result()[0] is places[0]
dist.barrier()

# Blocking and other messages meet; types of 16 bits, booleans, complex numbers, empty tensors.
for dtype in (metaop.bfloat16, metaop.float16, metaop.bool, metaop.complex64, metaop.int64):
    for shape in ((), (0,), (3, 2)):
        value = metaop.ones(shape).to(dtype)
        place = metaop.zeros(shape).to(dtype)
        work = dist.isend(value, group_dst=after)
        assert dist.recv(place, group_src=before) == before
        assert (place == value).all() and work.wait()
        work = dist.irecv(place.zero_(), before)
        if rank == 0:
            dist.send(value, after)
            work.wait()
        else:
            work.wait()
            dist.send(value, after)
        assert (place == value).all()

# A view is filled, and a tensor that was not computed yet is sent.
matrix = metaop.zeros(3, 4)
sending = dist.isend(metaop.ones(3) * (rank + 2), after)
dist.irecv(matrix[:, 1], before).wait()
sending.wait()
assert matrix.sum() == 3 * (before + 2) and (matrix[:, 1] == before + 2).all()

# Objects.
objects = [{"rank": rank}, np.arange(rank)]
if rank == 0:
    dist.send_object_list(objects, 1)
if rank == 1:
    found = [None, None]
    assert dist.recv_object_list(found) == 0
    assert found[0] == {"rank": 0} and found[1].size == 0
found = [None] * ranks if rank == ranks - 1 else None
dist.gather_object((rank, "text"), found, dst=ranks - 1)
assert found is None or found == [(k, "text") for k in range(ranks)]
found = [None]
dist.scatter_object_list(found, [[k] for k in range(ranks)] if rank == 0 else None)
assert found == [[rank]]
found = [None] * ranks
dist.all_gather_object(found, rank, group)
assert found == list(reversed(range(ranks)))
found = ["there"] if rank == 1 else [None]
dist.broadcast_object_list(found, group_src=ranks - 2, group=group)
assert found == ["there"]

# A message of another kind than is expected is an error that says so.
for value, place, text in (
    (metaop.ones(2), metaop.ones(3), "2 elements of float32 arrive for a tensor of shape (3,)"),
    (metaop.ones(2), metaop.ones(2).double(), "a tensor of float32 arrives for one of float64"),
    ([1, 2], metaop.ones(2), "rank 0 sends objects"),
    ([1, 2], [None], "expects 1 objects, and rank 0 sends 2 objects"),
    (metaop.ones(2), [None], "expects 1 objects, and rank 0 sends a tensor"),
):
    if rank == 0:
        (dist.send_object_list if isinstance(value, list) else dist.send)(value, 1)
    if rank == 1:
        try:
            (dist.recv_object_list if isinstance(place, list) else dist.recv)(place, 0)
        except (DistributedError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
# Nobody sends this.
if rank == 0:
    try:
        dist.irecv(metaop.ones(1), 1, tag=7).wait(timeout=0.2)
    except DistributedError as error:
        assert "irecv from rank 1" in str(error), error
    else:
        raise AssertionError("nothing was sent")
dist.barrier()
