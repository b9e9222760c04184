"""Imports of our own modules inside functions: each has a reason, and the list only gets shorter."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("measure_house", ROOT / "tools" / "measure_house.py")
measure_house = importlib.util.module_from_spec(_spec)
sys.modules["measure_house"] = measure_house  # dataclasses look their module up
_spec.loader.exec_module(measure_house)

LATE: dict[tuple[str, str], tuple[int, str]] = {
    ("launch.commands.calibrate_command", "runtime.devices.calibrate.main"): (1, "other commands start without JAX"),
    ("launch.commands.plan_command", "launch.commands.plan_comparison"): (
        1,
        "wrong flags are refused before the searches are loaded",
    ),
    ("launch.commands.run", "launch.servers.ps_job.run_job"): (1, "needs the extra `ps`"),
    ("mindspore", "mindspore.ops"): (1, "Tensors need their operators; names that hand out no Tensor do not wait"),
    ("mindspore.communication.management", "runtime.ranks.server_start"): (
        1,
        "needs the extra `ps`, which a worker without servers lacks",
    ),
    ("mindspore.dataset._checks", "mindspore.context"): (1, "the context loads JAX, which reading data does not need"),
    ("mindspore.dataset._all_ranks", "mindspore.parallel.auto_parallel"): (1, "reading data does not need JAX"),
    ("mindspore.dataset._dataset", "mindspore.dataset._json"): (1, "JSON needs all transforms"),
    ("mindspore.dataset._iterators", "mindspore.dataset._engine"): (
        1,
        "numpy output needs neither JAX nor, before the first row, the engine",
    ),
    ("mindspore.dataset._iterators", "mindspore.common.tensor"): (
        1,
        "numpy output needs neither JAX nor, before the first row, the engine",
    ),
    ("mindspore.dataset._json", "mindspore.dataset"): (1, "sources are found by their names in the package"),
    ("mindspore.nn.wrap", "mindspore.nn"): (1, "the other half of the package is built on this module"),
    ("mindspore.train.callback._resumable", "mindspore.train.checkpoint.orbax_store.OrbaxStore"): (
        1,
        "needs the extra for Orbax",
    ),
    ("runtime.program.program", "runtime.planned.memory_report"): (1, "one device is compiled without the planner"),
}
"""For each module and what its functions import (both without `sporax.`): how many times, and why not at the top."""


def test_every_late_import_has_a_reason() -> None:
    found = Counter(
        (module.name.removeprefix("sporax."), name.removeprefix("sporax."))
        for module in measure_house.modules()
        for name in module.late_imports
    )
    listed = {key: count for key, (count, _) in LATE.items()}
    added = {key: count for key, count in found.items() if count > listed.get(key, 0)}
    assert not added, f"{added}: import at the top of the module"
    assert found == listed, "fewer than before: take them out of the list"
