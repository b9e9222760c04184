"""Plan training steps of public JAX repositories, unchanged, and compare eight devices with one.

    python tools/run_public_jax.py --checkouts FOLDER --folder RESULTS [--only TEXT] [--write tools/public_jax.json]

Problem: programs of our own show what we thought of. Method: `FOLDER` holds checkouts by the names of repositories; packages
that a checkout needs (flax, optax, equinox, ...) are installed by whoever runs this. Each row of `PROGRAMS` imports the code
as it is published, builds its step at a small size on made data, and hands it to `sporax.plan` in a process of its own.
Readers of data, loggers and cloud services that the step never calls are replaced by empty modules where they are not installed.

For each: the step planned for eight devices is compared with one (`planned.verify`), the predicted memory with XLA's, seconds of
CPU for planning and compiling stand next to `jax.jit`'s, and at a real size the step is planned for 64 H100s from shapes. A
result is a JSON file in `RESULTS`; what is there is not run again. `docs/coverage_jax.md` is made of them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

STAND_INS = frozenset(
    "albumentations ale_py aqt braceexpand brax cloud_tpu_diagnostics clu cv2 dataclasses_json datasets deepdiff "
    "dialog diffrax draccus drjax gcsfs git google grain gym gymnasium huggingface_hub kauldron matplotlib "
    "ml_goodput_measurement mlperf_logging mlxu navix omegaconf pathwaysutils PIL qwix ray safetensors seaborn "
    "sentencepiece sklearn sympy tensorboard tensorboardX tensorflow tensorflow_datasets tensorflow_text tensorstore "
    "tiktoken tokamax tokenizers torch torchvision tqdm transformers tyro wandb".split()
)
"""Packages that read data, log or talk to services: the step of a program does not call them."""
DEVICES = 8
REAL = 64
HARDWARE = "h100"
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
SECONDS = 900
"""A row that takes longer has failed."""

PARTS = {"small": "collectives", "real": "real_bytes"}
"""Parts of a row, and what each leaves in its outcome."""

Outcome = dict[str, Any]


class Empty(MagicMock):
    """Has every attribute, those that tests would misspell as well."""

    __version__ = "0"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"unsafe": True, **options})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for each of some packages that are not installed; every attribute of it can be called."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """A module of one of these packages."""
        if fullname.partition(".")[0] not in STAND_INS:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """The empty module."""
        made = {"Tensor": type("Tensor", (), {}), "__file__": None, "__all__": [], "__path__": []}
        return Empty(name=spec.name, __name__=spec.name, __spec__=spec, **made)

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""


@contextmanager
def timed(outcome: Outcome, name: str) -> Iterator[None]:
    """Note the seconds of CPU time of a block, which other programs of the machine do not change."""
    start = time.process_time()
    yield
    outcome[name] = round(time.process_time() - start, 2)


def text_of(error: BaseException) -> str:
    """What a table says of an error."""
    return f"{type(error).__name__}: {error}".strip()[:600]


def attempt(outcome: Outcome, name: str, block: Callable[[], None]) -> None:
    """Run a part of a row; an error is a result."""
    try:
        block()
    except Exception as error:
        traceback.print_exc()
        outcome.setdefault("errors", {})[name] = text_of(error)


def run_row(name: str, checkouts: Path, outcome: Outcome) -> Outcome:
    """All that is measured of one program, in this process, and not yet in its `outcome`."""
    warnings.filterwarnings("ignore")
    from public_jax_programs import PROGRAMS

    program = PROGRAMS[name]
    for module in program.first:
        importlib.import_module(module)
    sys.meta_path.append(StandIns())
    sys.path[:0] = [str(checkouts / program.repository / folder) for folder in program.folders]
    for is_real, (part, key) in enumerate(PARTS.items()):
        if key not in outcome:
            run = plan_real if is_real else run_small
            attempt(outcome, part, lambda run=run, is_real=is_real: run(program.build(bool(is_real)), outcome))
    return outcome


def slow_devices() -> str:
    """A profile in a file, of CPU devices that compute a million times slower and send at once: small steps are sharded there."""
    profile = json.loads((files("sporax.ir") / "profiles" / "cpu.json").read_text())
    slow = {dtype: rate / 1e6 for dtype, rate in profile["flops"].items()}
    links = [{**link, "alpha_seconds": 0.0} for link in profile["links"]]
    changed = {"name": "slow", "flops": slow, "memory_bandwidth": profile["memory_bandwidth"] / 1e6, "links": links}
    with NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump({**profile, **changed, "launch_seconds": 0.0, "collective_seconds": 0.0}, file)
    return file.name


def run_small(step: Any, outcome: Outcome) -> None:
    """Plan for the devices here, compile, compare with one device."""
    import jax

    import sporax
    from sporax.planner import peak_bytes
    from sporax.runtime.planned.compiled_plans import device_bytes

    args = step.make()
    with timed(outcome, "plan_seconds"):
        planned = sporax.plan(
            step.fn, *args, devices=step.axes or DEVICES, hardware=slow_devices(), donate_argnums=step.donate
        )
    states = planned.objects.states(args)
    with timed(outcome, "jit_seconds"):
        jax.jit(planned.alone).lower(*states).compile()
    donated = tuple({*step.donate, *planned.objects.definitions})
    with timed(outcome, "compile_seconds"):
        structs = jax.tree.map(placed, states, planned.in_shardings)
        executable = planned.jitted(donated).lower(*structs).compile()
    outcome["predicted_bytes"], outcome["compiled_bytes"] = peak_bytes(planned.result), device_bytes(executable)
    outcome["collectives"] = len(re.findall(rf" ({KINDS})(?:-start)?\(", executable.as_text()))
    outcome["notes"] = list(planned.plan.notes)
    attempt(outcome, "verify", lambda: outcome.update(equal=bool(planned.verify(*args))))


def placed(array: Any, sharding: Any) -> Any:
    """Shape, dtype and sharding of an argument."""
    import jax

    kind = jax.typeof(array)
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=sharding, weak_type=kind.weak_type)


def plan_real(step: Any, outcome: Outcome) -> None:
    """Plan for many accelerators from shapes."""
    import jax

    import sporax
    from sporax.planner import peak_bytes

    nnx: Any = sys.modules.get("flax.nnx")
    shapes = (nnx or jax).eval_shape(step.make)
    outcome["real_parameters"] = sum(leaf.size for leaf in jax.tree.leaves(shapes[0]))
    with timed(outcome, "real_seconds"):
        planned = sporax.plan(
            step.fn, *shapes, devices=step.axes or REAL, hardware=HARDWARE, donate_argnums=step.donate
        )
    outcome["step_seconds"], outcome["real_bytes"] = planned.predicted_seconds, peak_bytes(planned.result)
    outcome["warnings"] = list(planned.summary().warnings)
    outcome["real_notes"] = list(planned.plan.notes)


# ------------------------------------------------------------------------------------------------------------ processes


def result_of(name: str, options: argparse.Namespace) -> Path:
    """The file of a row's outcome."""
    folder: Path = options.folder
    return folder / f"{re.sub(r'[^a-zA-Z0-9]+', '_', name)}.json"


def start(name: str, options: argparse.Namespace) -> Outcome:
    """Run a row in a process of its own, unless it has a result."""
    result = result_of(name, options)
    if not result.exists() or not {*PARTS.values()} <= {*json.loads(result.read_text())}:
        command = [
            sys.executable,
            __file__,
            "--child",
            name,
            "--folder",
            options.folder,
            "--checkouts",
            options.checkouts,
        ]
        flags = f"--xla_force_host_platform_device_count={DEVICES}"
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags,
            "JAX_ENABLE_COMPILATION_CACHE": "false",
        }
        log = result.with_suffix(".log")
        with log.open("w") as file:
            try:
                subprocess.run(command, env=environment, timeout=SECONDS, check=False, stdout=file, stderr=file)
            except subprocess.TimeoutExpired:
                result.write_text(json.dumps({"errors": {"time": f"more than {SECONDS} s"}}))
        if not result.exists():
            result.write_text(json.dumps({"errors": {"process": log.read_text()[-600:]}}))
    outcome: Outcome = json.loads(result.read_text())
    print(name, json.dumps(outcome), flush=True)
    return outcome


def main() -> None:
    """Run the rows, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True, help="folder with a checkout of each repository")
    parser.add_argument("--folder", type=Path, required=True, help="where results are stored")
    parser.add_argument("--only", default="", help="names with this text")
    parser.add_argument("--write", type=Path, help="file for the summary; rows of what was not run stay")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder, options.checkouts = options.folder.resolve(), options.checkouts.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.child:
        result = result_of(options.child, options)
        before = json.loads(result.read_text()) if result.exists() else {}
        outcome = run_row(options.child, options.checkouts, {**before, "errors": {}})
        result.write_text(json.dumps(outcome))
        os._exit(0)
    from public_jax_programs import PROGRAMS

    words = {name: {"size": row.real, "change": row.change} for name, row in PROGRAMS.items()}
    found = {name: {**words[name], **start(name, options)} for name in PROGRAMS if options.only in name}
    if options.write:
        before = json.loads(options.write.read_text()) if options.write.exists() else {}
        options.write.write_text(json.dumps({**before, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
