"""One of two processes that load and save a tree: `tree_job.py DIRECTORY PORT RANK`."""

import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sporax
from sporax.runtime.storage import slice_directory, trees

folder, port, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", 2, rank)
expected = np.load(folder / "expected.npy")
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("processes", "here"))

# What one process has saved, each of two reads its part of.
sources = []
before = trees.open_directory
trees.open_directory = lambda *args, **options: sources.append(before(*args, **options)) or sources[-1]
rows = NamedSharding(mesh, PartitionSpec("processes", "here"))
loaded = sporax.load(
    folder / "alone", {"w": jax.ShapeDtypeStruct(expected.shape, expected.dtype, sharding=rows), "step": 0}
)
for shard in loaded["w"].addressable_shards:
    np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
print("read half" if sources[0].bytes_read == expected.nbytes // 2 + 8 else sources[0].bytes_read, flush=True)

# Twice into one directory: the second takes the place of the first.
new = jax.jit(lambda w: w + 1, out_shardings=NamedSharding(mesh, PartitionSpec("here", "processes")))(loaded["w"])
state = {"v": [expected[0], jax.numpy.asarray(expected[0])], "w": loaded["w"], "step": loaded["step"]}
sporax.save(folder / "together", state)
state |= {"w": new, "step": 4}
sporax.save(folder / "together", state)
again = sporax.load(folder / "together", state)
for shard in again["w"].addressable_shards:
    np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index] + 1)

try:
    sporax.save(folder / "together", {**state, "step": 1.0 if rank else 1})
except RuntimeError as error:
    print(error, flush=True)

# A process that cannot write takes the other one with it, and the save before stays.
whole = trees.write_slices
if rank == 1:

    def write_slices(*args: object, **options: object) -> None:
        raise OSError("no room")

    trees.write_slices = write_slices
try:
    sporax.save(folder / "together", {**state, "step": 5})
except (RuntimeError, OSError) as error:
    expected_text = "no room" if rank else "processes [1] could not; the save before is unchanged"
    print("other failed" if expected_text in str(error) else error, flush=True)
trees.write_slices = whole
assert sporax.load(folder / "together", {"step": 0}) == {"step": 4}
assert slice_directory.read_marker(folder / "together") is not None
sporax.save(folder / "together", state)
