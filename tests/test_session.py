"""The session's own rules: what is sampled, what stays together, what folders cost, and which tests follow a change."""

import importlib.util
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

import session_order
from compiled_files import remove_damaged
from session_costs import BUDGET, SLOW, folder, over_budget, slow_tests

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("changed_tests", ROOT / "tools" / "changed_tests.py")
changed_tests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(changed_tests)


class Item:
    """A test as pytest collects it, with `sampled(count)` or without."""

    def __init__(self, nodeid: str, count: int | None = None) -> None:
        self.nodeid, self.count, self.marks = nodeid, count, []

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(args=(self.count,)) if name == "sampled" and self.count else None

    def add_marker(self, name: str) -> None:
        self.marks.append(name)


def test_parameter_sets_that_are_left_out_are_spread_evenly():
    items = [Item(f"tests/a/test_b.py::test_c[{number}]", 3) for number in range(7)] + [
        Item("tests/a/test_b.py::test_d")
    ]
    session_order.mark_further_samples(items)
    assert [number for number, item in enumerate(items) if not item.marks] == [0, 2, 4, 7]
    assert {mark for item in items for mark in item.marks} == {"full"}


def test_tests_of_a_file_stay_together_and_long_files_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(session_order, "MEASURED", tmp_path / "seconds.json")
    names = [
        "tests/ir/test_a.py::test_1",
        "tests/base/test_b.py::test_1",
        "tests/ps/test_c.py::test_1",
        "tests/base/test_b.py::test_2",
    ]
    items = [Item(name) for name in names]
    session_order.order(items)  # the first run: by the number of tests
    assert [item.nodeid for item in items] == [names[1], names[3], names[0], names[2]]
    session_order.MEASURED.write_text('{"tests/ir/test_a.py": 9.5, "tests/base/test_b.py": 1.0}')
    session_order.order(items)
    assert [item.nodeid for item in items] == [names[0], names[1], names[3], names[2]]


class Node:
    """A worker, to whom tests are sent."""

    def send_runtest_some(self, tests: list[int]) -> None: ...


def test_two_workers_wait_and_the_others_compute():
    scheduling = pytest.importorskip("xdist.scheduler")
    config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True), getvalue=lambda name: ["popen"] * 4)
    made = session_order.scheduler(config, None)
    assert isinstance(made, scheduling.LoadScopeScheduling) and config.option.loadscopereorder is False
    nodes = [Node() for _ in range(4)]
    names = [
        *(f"tests/ps/test_{number}.py" for number in range(3)),
        *(f"tests/ir/test_{number}.py" for number in range(3)),
    ]
    made.workqueue.update({name: {f"{name}::test": False} for name in names})
    for node in nodes:
        made.assigned_work[node] = {}
        made.registered_collections[node] = [f"{name}::test" for name in names]
        made._assign_work_unit(node)
    taken = [name for node in nodes for name in made.assigned_work[node]]
    assert taken == [names[0], names[1], names[3], names[4]]
    made.assigned_work[nodes[0]][names[0]][f"{names[0]}::test"] = True  # it has waited to its end
    made._assign_work_unit(nodes[0])
    assert names[2] in made.assigned_work[nodes[0]]


@pytest.mark.parametrize("file", session_order.PARTS)
def test_long_files_are_divided_and_are_there(file):
    assert (ROOT / file).is_file()
    assert len({session_order.scope(f"{file}::test_x[{number}]") for number in range(100)}) == session_order.PARTS[file]


def test_files_that_look_at_the_same_jobs_are_one_scope():
    scopes = {session_order.scope(f"{session_order.TOGETHER}{name}::test_x") for name in session_order.TOGETHER_FILES}
    assert scopes == {session_order.TOGETHER}
    assert all((ROOT / session_order.TOGETHER / name).is_file() for name in session_order.TOGETHER_FILES)


def test_a_folder_is_compared_with_the_others_and_not_with_a_clock():
    budget = {"a": 100.0, "b": 50.0, "c": 50.0}
    assert not over_budget({"a": 300.0, "b": 160.0, "c": 140.0}, budget)  # a slow machine
    (line,) = over_budget({"a": 100.0, "b": 50.0, "c": 250.0}, budget)
    assert line == "c: 250.0 CPU seconds, which are 125.0 on the machine of the budget; at most 2 × 50.0 + 5"
    assert over_budget({"a": 1.0, "new": 1.0}, {"a": 1.0}) == ["new: no budget in tests/cpu_budget.json"]


def test_slow_tests_are_named_by_function_where_most_sets_are_and_by_file_where_a_job_is_shared():
    measured = {f"tests/ir/test_a.py::test_most[{number}]": seconds for number, seconds in enumerate((SLOW, 2.0, 0.0))}
    measured |= {f"tests/ir/test_a.py::test_few[{number}]": seconds for number, seconds in enumerate((2.0, 0.0, 0.0))}
    measured |= {
        "tests/ir/test_a.py::test_quick": 0.0,
        "tests/ps/test_b.py::test_1": 3.0,
        "tests/ps/test_b.py::test_2": 0.0,
    }
    assert set(slow_tests(measured)) == {
        "tests/ir/test_a.py::test_most",
        "tests/ir/test_a.py::test_few[0]",
        "tests/ps/test_b.py",
    }


def test_what_the_list_names_is_marked_as_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(session_order, "SLOW_LIST", tmp_path / "slow_tests.txt")
    session_order.SLOW_LIST.write_text("tests/a.py\ntests/b.py::test_c\ntests/b.py::test_d[1]\n")
    names = ["a.py::test_e", "b.py::test_c[0]", "b.py::test_d[0]", "b.py::test_d[1]", "b.py::test_f"]
    items = [Item(f"tests/{name}") for name in names]
    session_order.mark_slow(items)
    assert [item.marks for item in items] == [["slow"], ["slow"], [], ["slow"], []]


def test_slow_tests_that_the_list_names_are_there():
    for name in session_order.SLOW_LIST.read_text().splitlines():
        file, _, test = name.partition("[")[0].partition("::")
        assert (
            (ROOT / file).exists() if not test else f"def {test.rpartition('::')[2]}(" in (ROOT / file).read_text()
        ), name


def test_every_folder_of_tests_has_a_budget_and_all_together_take_twenty_minutes():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert {folder(file) for file in files} == set(BUDGET)
    assert sum(BUDGET.values()) <= 1200


def test_unfinished_files_of_compiled_programs_are_removed(tmp_path):
    good = zlib.compress(b"program" * 100)
    for name, content in {"good": good, "unfinished": good[:-5], "empty": b"", "other": b"\x28\xb5\x2f\xfd..."}.items():
        (tmp_path / f"{name}-cache").write_bytes(content)
    remove_damaged(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".sound", "good-cache", "other-cache"]
    (tmp_path / "later-cache").write_bytes(good[:-5])  # what is newer than the last look is looked at
    remove_damaged(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".sound", "good-cache", "other-cache"]
    remove_damaged(tmp_path / "missing")


@pytest.mark.parametrize(
    ("changed", "runs", "leaves_out"),
    [
        (
            ["src/sporax/planner/rules/x.py"],
            {"planner", "lowering", "report", "runtime", "mindspore", "k8s", "docs"},
            {"base", "ir", "ps"},
        ),
        (["src/sporax/base/x.py"], {"base", "ir", "planner", "ps", "several_machines"}, set()),
        (["src/sporax/mindspore/nn/x.py"], {"mindspore", "examples", "docs"}, {"launch", "k8s", "runtime"}),
        (
            ["tests/ir/test_frames.py", "tests/k8s/test_image.py"],
            {"k8s/test_image.py"},
            {"k8s", "docs", "mindspore", "ir/test_frames.py"},
        ),
        (["tests/planner/rules/cases.json"], {"planner/rules"}, {"planner", "lowering", "docs"}),
        (["src/sporax/k8s/x.py", "tests/k8s/test_image.py"], {"k8s", "docs"}, {"k8s/test_image.py", "launch"}),
        (["tests/conftest.py"], {"base", "planner", "mindspore", "security"}, set()),
        (["tests/security/test_files.py"], {"security/test_files.py"}, {"security", "base", "mindspore", "docs"}),
        (["docs/planner.md", "tests/slow_tests.txt", "tests/test_house.py"], set(), {"base", "mindspore"}),
    ],
)
def test_a_change_concerns_its_package_and_those_above(changed, runs, leaves_out):
    folders = {name.removeprefix("tests/") for name in changed_tests.folders_of(changed)}
    assert runs <= folders
    assert not leaves_out & folders


def test_floors_are_those_of_the_contract():
    assert changed_tests.floors()[0] == ["launch", "mindspore", "k8s"]
    assert changed_tests.floors()[-1] == ["base"]


def test_a_clone_without_tags_compares_with_the_commit_that_set_the_version(tmp_path, monkeypatch):
    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)

    def commit(path: str, text: str) -> str:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        changed_tests._git("add", path)
        changed_tests._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", path)
        return changed_tests._git("rev-parse", "HEAD")

    changed_tests._git("init", "--initial-branch", "main")
    commit("src/sporax/_version.py", "1")
    assert changed_tests.base() == ""  # nothing is known before the oldest commit of a clone
    release = commit("src/sporax/_version.py", "2")
    assert changed_tests.base() == ""  # a release is tested in all its variants
    commit("src/sporax/ir/a.py", "")
    assert changed_tests.base() == release
