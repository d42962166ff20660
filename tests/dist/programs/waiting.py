"""Ranks that say who they are and then wait for a signal; rank 1 does not heed SIGTERM."""

import os
import signal
import time

from metaop.distributed import barrier, get_rank

if get_rank() == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
barrier()
print(f"process {os.getpid()} in {os.environ['METAOP_JOB_FOLDER']}", flush=True)
time.sleep(120)
