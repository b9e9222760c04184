"""Settings of the whole test session: eight simulated CPU devices in every process, set before JAX starts."""

import gc
import importlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest

# A machine may be busy with something else, so no example has a deadline. Every run draws the same examples; `make soak` draws others.
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fixed")

os.environ.setdefault("SPORAX_NO_CACHE", "1")  # every test compiles what it runs

# Tracing allocates much and leaves few cycles: with Python's 700 a tenth of the session would be searching for garbage.
gc.set_threshold(50_000, 20, 20)

# Tests start hundreds of processes, in which Sporax's 850 modules would be parsed again if nobody kept their bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Pages are as wide as in files, also those of child processes: readline, which pytest loads, writes the width of its
# terminal into their environment where this is missing.
os.environ["COLUMNS"] = "120"

sys.path.append(str(Path(__file__).parent))  # modules beside this file, last: folders here have names of modules

_FLAGS = {
    "--xla_force_host_platform_device_count": "8",
    # Small programs run once: machine code that is made quickly is worth more than code that runs quickly. It saves a fifth
    # to a third of the session's time and changes nothing above LLVM, so collectives and buffers are the same.
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    # One module of code per program: parts for more threads than there are cores would each be set up and optimized alone.
    "--xla_cpu_parallel_codegen_split_count": "1",
}
if version("jaxlib").startswith(("0.10.", "0.11.0")):
    # Fusions are written as LLVM's code at once and not by way of MLIR, which takes half of the time of small programs.
    # Newer compilers have no such way, and a process that is given a flag it does not know ends without a word.
    _FLAGS["--xla_cpu_use_fusion_emitters"] = "false"
_given = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join(
    [_given, *(f"{flag}={value}" for flag, value in _FLAGS.items() if flag not in _given)]
).strip()

# Programs that an earlier run compiled, or another process of this one, are read: two fifths of the session's time.
COMPILED = Path(__file__).parents[1] / ".cache" / "compiled" / version("jaxlib")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax  # noqa: E402 -- after its settings

import session_costs  # noqa: E402 -- found beside this file
import session_order  # noqa: E402
from compiled_files import remove_damaged, resident_bytes  # noqa: E402
from lowering_context import share_contexts  # noqa: E402

share_contexts()

# A stored program may have the names of another one with the same instructions. Tests that read names use `names_of_programs`;
# processes that tests start all do.
os.environ["JAX_COMPILATION_CACHE_INCLUDE_METADATA_IN_KEY"] = "1"

# Importing the facade turns 64-bit values on. They are on in every test, whichever tests ran before it in its process.
jax.config.update("jax_enable_x64", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", action="store_true", help="show CPU seconds by folder, compare them with tests/cpu_budget.json"
    )
    parser.addoption("--renew", action="store_true", help="write texts of compiled steps again (`make golden`)")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.costs or getattr(config, "workerinput", {}).get("costs"):
        config.pluginmanager.register(session_costs.SessionCosts(config))
    if not hasattr(config, "workerinput"):
        remove_damaged(COMPILED)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput["costs"] = node.config.option.costs


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return session_order.scheduler(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """As many as there are cores, and those that wait for processes of their tests."""
    return (os.cpu_count() or 1) + session_order.WAITERS


@pytest.hookimpl(tryfirst=True)  # marks are there before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    session_order.mark_further_samples(items)
    session_order.mark_slow(items)
    session_order.order(items)


_FULL = 3.5e9
"""Bytes of memory from which a worker forgets compiled programs between files: what was traced is traced again after that."""
_GROWTH = 1e9
"""Bytes by which it must have grown again: not all that is freed goes back to the system."""
_after_last = 0.0


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Between files, forget compiled programs that have grown large."""
    global _after_last
    if nextitem is None or nextitem.path == item.path or resident_bytes() < max(_FULL, _after_last + _GROWTH):
        return
    jax.clear_caches()
    gc.collect()
    _after_last = resident_bytes()


def pytest_sessionfinish() -> None:
    """Look for garbage once. pytest looks five times after this, for errors in destructors, through all that tests have traced."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, and why: no fact of MindSpore and no job on several machines is left out in silence."""
    skipped = terminalreporter.stats.get("skipped", [])
    if without := {str(report.longrepr[2]) for report in skipped if "several_machines" in report.nodeid}:
        terminalreporter.section("jobs on several machines were not tried")
        terminalreporter.line("\n".join(sorted(without)))
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in skipped
        if "test_facts.py" in report.nodeid and isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("skipped facts of MindSpore")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} {reason}")
        terminalreporter.line(f"{reasons.total():5} in all")


@pytest.fixture
def names_of_programs() -> Iterator[None]:
    """Compiled programs have the names of the operators that they were made of."""
    jax.config.update("jax_compilation_cache_include_metadata_in_key", True)
    yield
    jax.config.update("jax_compilation_cache_include_metadata_in_key", False)


@pytest.fixture
def without_cache_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has chosen no folder for JAX's compiled programs; the session has."""
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None, raising=False)


@pytest.fixture(autouse=True)
def _mode_stays_in_its_test() -> Iterator[None]:
    """The modes of the process, and whether it has joined a job, are what they were before the test."""
    context = sys.modules.get("sporax.mindspore.context")
    session = sys.modules.get("sporax.runtime.session")
    joined = session is not None and session.SESSION.world is not None
    before = context.get_context("mode") if context else None
    parallel = context.get_auto_parallel_context("parallel_mode") if context else "stand_alone"
    yield
    context = sys.modules.get("sporax.mindspore.context")
    if context and context.get_context("mode") != before:
        context.set_context(mode=context.PYNATIVE_MODE if before is None else before)
    if context and context.get_auto_parallel_context("parallel_mode") != parallel:
        context.reset_auto_parallel_context()
    if session := sys.modules.get("sporax.runtime.session"):
        session.SESSION.reported_size = None  # a test that reads the number of ranks binds no other
        if session.SESSION.world is not None and not joined:
            importlib.import_module("sporax.mindspore.communication").release()


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """Run in both modes."""
    import sporax.mindspore as ms  # not before the devices are set

    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield request.param
    ms.set_context(mode=before)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Wait for something that happens soon; fails the test if it does not happen at all."""

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, "did not happen"
            time.sleep(0.02)

    return wait
