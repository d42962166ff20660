"""What a rank sees of its launcher: PyTorch's variables, and whose words are heard."""

import logging
import os
import sys

from tqdm import tqdm

import metaop
import metaop.distributed as dist

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
dist.init_process_group(backend="nccl", init_method="env://")
dist.init_process_group(rank=dist.get_rank(), world_size=dist.get_world_size())
for wrong in ({"rank": 1 - dist.get_rank()}, {"world_size": 3}):
    try:
        dist.init_process_group(**wrong)
    except metaop.errors.DistributedError as error:
        assert "of the MPI job, and rank" in str(error)
    else:
        raise AssertionError(f"{wrong} is taken")
dist.init_process_group(init_method="tcp://localhost:1")
assert int(os.environ["RANK"]) == dist.get_rank() == int(os.environ["LOCAL_RANK"])
assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size()
assert os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"]
logging.info("log of rank %d", dist.get_rank())
for _ in tqdm(range(3), desc=f"bar of rank {dist.get_rank()}"):
    dist.barrier()
sampler = metaop.utils.data.distributed.DistributedSampler(range(7), shuffle=False)
assert list(sampler) == [(k * dist.get_world_size() + dist.get_rank()) % 7 for k in range(4)]
print(f"rank {dist.get_rank()} of {dist.get_world_size()} agrees")
dist.destroy_process_group()
