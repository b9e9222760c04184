"""The collectives of compiled programs, and the file that says what they were: a change of the planner shows as a difference.

    python tests/corpus/compiled_collectives.py        # writes the file again

Counts are those of the version of JAX in the file, whose XLA combines collectives in its way; kinds and bytes are those of the plan.
"""

import json
import os
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

GOLDEN = Path(__file__).with_name("collectives.json")
PROGRAMS = (
    "graph", "reinforcement", "fixed point", "batch norm", "gradients per example", "scaled loss", "decoder", "low rank",
    "contrastive", "factored moments",
)  # fmt: skip


def slow_chips(folder):
    """A profile in a file, of H100s that compute a million times slower and send at once: small programs are sharded there, too."""
    profile = json.loads((files("sporax.ir") / "profiles" / "h100.json").read_text())
    slow = {dtype: rate / 1e6 for dtype, rate in profile["flops"].items()}
    links = [{**link, "alpha_seconds": 0.0} for link in profile["links"]]
    changed = {"name": "slow", "flops": slow, "memory_bandwidth": profile["memory_bandwidth"] / 1e6, "links": links}
    path = Path(folder) / "slow.json"
    path.write_text(json.dumps({**profile, **changed, "launch_seconds": 0.0, "collective_seconds": 0.0}))
    return str(path)


def compiled(name, folder):
    """A program, planned for eight chips and compiled for eight devices: its arguments where they belong, and the executable."""
    import jax
    from corpus_programs import PROGRAMS

    import sporax

    program = PROGRAMS[name]
    planned = sporax.plan(program.step, *program.args, devices=8, hardware=slow_chips(folder), carry=program.carry)
    args = jax.device_put(program.args, planned.in_shardings)
    return args, planned.function().lower(*args).compile()


def collectives(text):
    """Kind -> how many there are and the bytes with which a device enters them, from the text of a program."""
    from program_text import count_kinds, read_collectives

    counts, sizes = count_kinds(text), read_collectives(text)
    return {kind: {"count": counts[kind], "bytes": sizes[kind]} for kind in sorted(sizes)}


def remake():
    """Write the file."""
    import jax

    with TemporaryDirectory() as folder:
        found = {name: collectives(compiled(name, folder)[1].as_text()) for name in PROGRAMS}
    GOLDEN.write_text(json.dumps({"jax": jax.__version__, "programs": found}, indent=1) + "\n")


if __name__ == "__main__":
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    sys.path += [str(Path(__file__).parents[1] / "mindspore" / "parallel")]
    remake()
