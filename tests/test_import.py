"""What importing does, in fresh processes."""

import subprocess
import sys

import pytest

import sporax


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


def test_64_bit_types_come_with_the_facade_only():
    assert run("import sporax, jax; print(jax.config.jax_enable_x64)").strip() == "False"
    assert run("import sporax.nn, jax; print(jax.config.jax_enable_x64)").strip() == "True"


def test_importing_the_facade_starts_no_backend():
    broken = "import jax; jax.config.update('jax_platforms', 'no_such_platform')\n"
    with pytest.raises(subprocess.CalledProcessError):  # starting a backend would fail
        run(broken + "jax.devices()")
    run(broken + "import sporax.nn, sporax.ops, sporax.train, sporax.dataset, sporax.parallel, sporax.communication")


def test_every_listed_name_is_there():
    for name in sporax.__all__:
        assert getattr(sporax, name) is not None, name
    assert set(sporax.__all__) <= set(dir(sporax))


def test_a_missing_name_is_told_where_to_look():
    with pytest.raises(AttributeError, match=r"'NoSuchThing'.*docs/api\.md"):
        _ = sporax.NoSuchThing
