"""What a rank sees of its launcher: PyTorch's variables, and whose words are heard."""

import logging
import os
import sys

from tqdm import tqdm

import metaop
import metaop.distributed as dist

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
dist.init_process_group(backend="nccl", init_method="env://")
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
