"""Takes its place in the job, without JAX, and says so; the argument is a rank that then fails, or "wait"."""

import os
import sys
import time

from sporax.cluster.environment import RankEnvironment
from sporax.cluster.membership import join

membership = join(RankEnvironment.from_environ(os.environ))
place = membership.environment
while not os.readlink("/proc/self/fd/1").endswith(f"_{place.rank}.log"):
    time.sleep(0.05)  # a launcher that has received the numbers has named the log by them
print(f"this is rank {place.rank}, of {place.local_size} here, local rank {place.local_rank}", flush=True)
if str(place.rank) in sys.argv[1:]:
    os._exit(7)
if "wait" in sys.argv[1:]:
    time.sleep(600)
membership.leave()
