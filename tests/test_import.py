"""What importing does, in fresh processes."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sporax
import sporax.mindspore

HEAVY = (
    # What plans a step, lowers it and reports on it: programs of one device need none of it.
    "sporax.planner.budget",
    "sporax.planner.communication",
    "sporax.planner.cost",
    "sporax.planner.loops",
    "sporax.planner.memory",
    "sporax.planner.planning",
    "sporax.planner.propagation",
    "sporax.planner.rules.",
    "sporax.planner.search",
    "sporax.planner.solver",
    "sporax.lowering.ingest.",
    "sporax.lowering.passes.checksums",
    "sporax.lowering.passes.host.",
    "sporax.lowering.passes.pass_order",
    "sporax.lowering.passes.recompute.",
    "sporax.lowering.passes.repeat.",
    "sporax.lowering.pipeline",
    "sporax.report",
    "sporax.runtime.pipeline",
    "sporax.runtime.planned.",
    # What processes of a job need to find each other, and parameter servers.
    "sporax.cluster.membership",
    "sporax.cluster.rendezvous",
    "sporax.cluster.scheduler",
    "sporax.cluster.watchdog",
    "sporax.ps.client",
    "sporax.ps.protocol",
    "sporax.ps.server",
    # Libraries for some users.
    "grain",
    "jax.extend",
    "jax.scipy.linalg",
    "optax",
    "orbax",
    "rich",
    "scipy",
    "sqlite3",
    "xml",
    "zmq",
)
"""What `import` of Tensor, nn, ops, Model and data sets must leave to those who need it."""
ENGINE = Path(sporax.__file__).parent
WALL = ENGINE / "mindspore"


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_import_alone_loads_no_jax():
    assert run("import sys, sporax; print('jax' in sys.modules, sporax.__version__)").split() == [
        "False",
        sporax.__version__,
    ]


def test_the_planner_loads_no_jax():
    assert run("import sys, sporax.planner, sporax.ir.layout; print('jax' in sys.modules)").strip() == "False"


def test_values_and_rules_of_the_planner_load_no_scipy_and_searches_do():
    code = "import sys; from sporax.planner import PlanRequest, Devices, Budget, cost_model; before = 'scipy' in sys.modules"
    code += "; from sporax.planner import make_plan; print(before, 'scipy' in sys.modules, callable(make_plan))"
    assert run(code).split() == ["False", "True", "True"]


def test_64_bit_types_come_with_the_facade_only():
    assert run("import sporax, jax; print(jax.config.jax_enable_x64)").strip() == "False"
    assert run("import sporax.mindspore.nn, jax; print(jax.config.jax_enable_x64)").strip() == "True"


def test_importing_the_facade_starts_no_backend_and_loads_nothing_heavy():
    broken = "import jax; jax.config.update('jax_platforms', 'no_such_platform')\n"
    with pytest.raises(subprocess.CalledProcessError):  # starting a backend would fail
        run(broken + "jax.devices()")
    packages = ("nn", "ops", "train", "dataset", "parallel", "communication", "Tensor", "Model")
    loaded = run(
        broken
        + "import sys, sporax.mindspore as ms\n"
        + ", ".join(f"ms.{name}" for name in packages)
        + "\nprint(*sys.modules, sep='\\n')"
    ).splitlines()
    assert "sporax.mindspore.train.model" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


LEFT_TO_THEIR_USERS = (
    "jax.extend",
    "jax.scipy.special",
    "sporax.ir.graph",
    "sporax.ir.plan.",
    "sporax.lowering.execute.part_lookup",
    "sporax.lowering.marks.mark_primitive",
    "sporax.lowering.rewriter",
    "sporax.mindspore.autograph._rewriter",
    "sporax.mindspore.autograph.flow",
    "sporax.mindspore.context._strategy_files",
    "sporax.mindspore.dataset.",
    "sporax.mindspore.nn.",
    "sporax.mindspore.parallel",
    "sporax.mindspore.train",
    "sporax.planner",
    "sporax.runtime.program.program",
    "sporax.runtime.ranks.collectives",
    "statistics",
)
"""What Tensor, nn and ops load when a name of theirs needs it."""
MOST_MODULES = {"Tensor, ms.nn, ms.ops": 245, "Tensor, ms.nn, ms.ops, ms.Model, ms.dataset": 326}
"""Modules of ours that these may load; 355 and 530 when packages loaded all of their modules."""


@pytest.mark.parametrize("names", MOST_MODULES)
def test_an_import_loads_few_modules(names):
    code = f"import sys, sporax.mindspore as ms; ms.{names}; print(*sys.modules, sep='\\n')"
    loaded = run(code).splitlines()
    assert len([name for name in loaded if name.startswith("sporax")]) <= MOST_MODULES[names]
    if "Model" not in names:
        assert [name for name in loaded if name.startswith(LEFT_TO_THEIR_USERS)] == []


OTHERS = {
    "sporax.ir.config.parallel_config.FusionRule",
    "sporax.ir.graph.OperatorGraph",
    "sporax.ir.operator_dims.OperatorDims",
}
"""Dataclasses that Tensor, nn and ops load and that write `__repr__` themselves."""


def test_dataclasses_write_no_methods_while_they_are_imported():
    code = """
import sys, sporax.mindspore as ms
from sporax.base.lazy_members import LazyMembers
ms.Tensor, ms.nn, ms.ops, ms.Model, ms.dataset
modules = [module for name, module in sys.modules.items() if name.startswith("sporax")]
kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
ours = [kind for kind in kinds if "__dataclass_fields__" in vars(kind) and kind.__module__.startswith("sporax")]
written = [kind for kind in ours if not isinstance(vars(kind)["__repr__"], LazyMembers)]
print(*(f"{kind.__module__}.{kind.__qualname__}" for kind in written))
"""
    assert set(run(code).split()) == OTHERS


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("nn.Dense(2, 3)", "sporax.mindspore.nn.convolution"),
        ("nn.Momentum", "sporax.mindspore.nn.optim.adam"),
        ("train.Accuracy", "sporax.mindspore.train.model"),
        ("Model", "sporax.mindspore.train.checkpoint.loading"),
        ("Model", "sporax.mindspore.context._strategy_files.files"),
        ("dataset.NumpySlicesDataset([1])", "sporax.mindspore.dataset._sources.images"),
        ("dataset.NumpySlicesDataset([1])", "jax"),
    ],
)
@pytest.mark.sampled(3)
def test_a_name_loads_no_module_of_its_neighbours(line, module):
    assert run(f"import sys, sporax.mindspore as ms; ms.{line}; print('{module}' in sys.modules)").strip() == "False"


@pytest.mark.parametrize("package", [sporax, sporax.mindspore])
def test_every_listed_name_is_there(package):
    for name in package.__all__:
        assert getattr(package, name) is not None, name
    assert set(package.__all__) <= set(dir(package))


def test_modules_have_what_they_list():
    paths = (module.name for module in pkgutil.walk_packages(sporax.mindspore.__path__, "sporax.mindspore."))
    modules = [importlib.import_module(path) for path in paths if ".shadow" not in path]
    assert not [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]


def test_a_missing_name_is_reported_with_where_to_look():
    with pytest.raises(AttributeError, match=r"'NoSuchThing'.*docs/api\.md"):
        _ = sporax.mindspore.NoSuchThing


def test_the_door_of_the_engine_says_where_mindspores_names_are():
    where = "no attribute 'nn'; MindSpore's names are in sporax.mindspore: `import sporax.mindspore as ms`"
    with pytest.raises(AttributeError, match=where):
        _ = sporax.nn
    with pytest.raises(ImportError, match=where):
        from sporax import nn  # noqa: F401
    assert not hasattr(sporax, "Tensor")
    from sporax import planner  # a package that is there is no missing name

    assert planner.__name__ == "sporax.planner"


def test_importing_the_engine_does_not_touch_mindspores_paths():
    code = "import sys, sporax.planner, sporax.runtime.planned.function; print('sporax.mindspore' in sys.modules)"
    assert run(code).strip() == "False"


def named_behind_the_wall() -> Iterator[tuple[str, str]]:
    """File and text of each string of the engine that names a module behind the wall."""
    for path in sorted(ENGINE.rglob("*.py")):
        if path.is_relative_to(WALL):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and text.startswith("sporax.mindspore") and " " not in text:
                yield path.relative_to(ENGINE).as_posix(), text


def test_the_engine_names_three_modules_behind_the_wall():
    assert list(named_behind_the_wall()) == [
        ("launch/cli.py", "sporax.mindspore._names.check"),
        ("launch/cli.py", "sporax.mindspore.train.checkpoint.command"),
        ("launch/target.py", "sporax.mindspore._names.alias"),
    ]
