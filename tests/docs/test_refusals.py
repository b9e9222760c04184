"""What the pages say is refused is refused: each such sentence has a small program here, or names the test that has one.

A sentence with "refuse" that is not in the table fails, and so does an entry whose sentence is gone. Programs that need several
devices, processes or a control plane are tests of their own; the table says where, and that test must expect an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.cluster.private import DIRECTORY_VARIABLE, shared_directory
from sporax.cluster.token import token_from_environ
from sporax.mindspore import nn, ops
from sporax.mindspore.dataset import vision
from sporax.mindspore.nn.optim import _helpers

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Program:
    """Must raise an error whose message has `words`."""

    run: Callable[[Path], object]
    words: str


@dataclass(frozen=True)
class Elsewhere:
    """The test that runs it."""

    test: str
    expects: str = "raises"


def load_encrypted(folder: Path) -> None:
    ms.save_checkpoint(nn.Dense(2, 2), str(folder / "a.ckpt"))
    ms.load_checkpoint(str(folder / "a.ckpt"), dec_key=b"0" * 16)


def export_onnx(folder: Path) -> None:
    ms.export(nn.Dense(2, 2), ms.Tensor(np.ones((1, 2), np.float32)), file_name=str(folder / "a"), file_format="ONNX")


def open_token(folder: Path) -> None:
    (folder / "token").write_text("x" * 64)
    (folder / "token").chmod(0o644)
    token_from_environ({"SPORAX_TOKEN_FILE": str(folder / "token")})


def open_directory(folder: Path) -> None:
    folder.chmod(0o755)
    shared_directory({DIRECTORY_VARIABLE: str(folder)})


def centralize_on_servers(_: Path) -> None:
    weight = ms.Parameter(ms.Tensor(np.ones((2, 2), np.float32)), name="weight")
    optimizer = nn.Momentum([{"params": [weight], "grad_centralization": True}], 0.1, 0.9)
    _helpers._kind(optimizer, 0)


REFUSALS: dict[tuple[str, str], Program | Elsewhere] = {
    ("checkpoints", "Encrypted files"): Program(load_encrypted, "dec_key"),
    ("dataset", "`MixUp(is_single=False)`"): Program(lambda _: vision.MixUp(4, 2, 0.2, is_single=False), "is_single"),
    ("interop", 'The other kinds of MindSpore (`"aot"`'): Program(
        lambda _: ops.Custom(lambda x: x, lambda x: x, lambda x: x, func_type="hybrid"), "func_type"
    ),
    ("interop", "the formats ONNX and AIR"): Program(export_onnx, "ONNX"),
    ("security", "A file that others can read"): Program(open_token, "only its owner may be able"),
    ("security", "A directory that belongs to another user"): Program(open_directory, "must belong to this user alone"),
    ("dataset", "(`python_multiprocessing`) cannot share a cache"): Elsewhere("tests/mindspore/dataset/test_cache.py"),
    ("dataset", "`map` refuses to keep their results"): Elsewhere("tests/mindspore/dataset/test_cache.py"),
    ("dataset", "So is a row that an operation refuses"): Elsewhere("tests/mindspore/dataset/test_pipeline.py"),
    ("dataset", "A number that is not finite is refused"): Elsewhere(
        "tests/mindspore/mindrecord/test_files.py::test_a_row_larger_than_a_page_and_a_number_that_is_not_finite"
    ),
    ("kubernetes", "A spec that cannot run is refused"): Elsewhere(
        "tests/k8s/resource/test_spec.py::test_a_spec_that_cannot_run_is_refused_and_the_field_named"
    ),
    ("kubernetes_invalid_specs", "fields of pods that no one knows are refused"): Elsewhere(
        "tests/k8s/test_cluster_invalid.py::test_each_spec_that_cannot_run_is_refused_as_the_page_says", "row.layer"
    ),
    ("kubernetes_invalid_specs", "the *schema* of the CRD refuses the object"): Elsewhere(
        "tests/k8s/test_cluster_invalid.py::test_each_spec_that_cannot_run_is_refused_as_the_page_says", "row.layer"
    ),
    ("memory", 'refuse `"disk"`'): Elsewhere("tests/runtime/planned/test_host_variables.py::test_files_are_refused"),
    ("operator_parallel", "is therefore refused; `jit` and `AutoParallel`"): Elsewhere(
        "tests/mindspore/parallel/test_semi_auto_settings.py::test_eager_networks_are_refused"
    ),
    ("pipeline", "`check_schedule` refuses one"): Elsewhere(
        "tests/planner/pipeline/test_schedule_check.py::test_conflicts_are_named"
    ),
    ("pipeline", "`seqpipe`, `seqvpp`"): Elsewhere(
        "tests/mindspore/parallel/test_pipelines_that_do_not_fit.py::test_sequence_chunks_are_not_offered", "refused("
    ),
    ("security", "refused; the log names its address once"): Elsewhere(
        "tests/cluster/test_membership.py::test_nonsense_is_refused_and_does_not_disturb", '"refused"'
    ),
    ("solver", "malformed file is refused"): Elsewhere(
        "tests/planner/solver/test_contest_graphs.py::test_broken_files_are_refused"
    ),
}

REFUSALS |= {
    ("checkpoints", "save) are refused. A slice"): Elsewhere("tests/mindspore/train/checkpoint/test_slice_files.py"),
    ("checkpoints", "complex128 and floats of 8 bits are refused by name"): Elsewhere(
        "tests/runtime/storage/test_trees.py"
    ),
    ("checkpoints", "such a protobuf file is refused"): Elsewhere("tests/mindspore/train/checkpoint/test_strategy.py"),
    ("checkpoints", "* Refused, with the Parameter's name: tables in uneven"): Elsewhere(
        "src/sporax/mindspore/train/checkpoint/orbax_store.py", "backend='orbax' takes even slices, but parameter"
    ),
    ("graph_mode", "## What is refused, with file and line"): Elsewhere(
        "tests/mindspore/autograph/test_control_flow.py::test_arguments_that_do_not_fit_are_refused"
    ),
    ("kubernetes", "**Rules of the CRD.** Rules across fields"): Elsewhere(
        "tests/k8s/resource/test_admission_rules.py::test_what_no_type_or_bound_refuses_a_rule_does",
        "for message in broken",
    ),
    ("kubernetes", "leave them out of the definition, and the operator refuses"): Elsewhere(
        "tests/k8s/resource/test_admission_rules.py::test_rules_and_operator_agree_on_every_job",
        "except InvalidSpecError",
    ),
    ("kubernetes", "Random jobs compare what the rules refuse with"): Elsewhere(
        "tests/k8s/resource/test_admission_rules.py::test_rules_and_operator_agree_on_every_job",
        "except InvalidSpecError",
    ),
    ("kubernetes", "operator refuses, with an interpreter"): Elsewhere(
        "tests/k8s/resource/test_admission_rules.py::test_rules_and_operator_agree_on_every_job",
        "except InvalidSpecError",
    ),
    ("memory", "refused together with tables in uneven parts"): Elsewhere(
        "src/sporax/lowering/passes/recompute/plan_facts.py", "are not offered in steps "
    ),
    ("memory", "(data parallelism) refuse the setting"): Elsewhere(
        "src/sporax/runtime/program/variants.py", "recompute='auto' is offered in steps of one device"
    ),
    ("operator_parallel", "what MindSpore refuses is refused"): Elsewhere(
        "tests/mindspore/golden/test_operator_plans.py::test_what_mindspore_refuses_is_refused"
    ),
    ("operators", "Whatever MindSpore has and this page does not"): Program(
        lambda _: ops.primitive_that_is_nowhere, "primitive_that_is_nowhere"
    ),
    ("parameter_server", "* Weight decay schedules and gradient centralization"): Program(
        centralize_on_servers, "'grad_centralization' is not offered for parameters on servers"
    ),
    ("parameter_server", "A worker makes one exchange per step."): Elsewhere(
        "tests/ps/test_training.py::test_what_does_not_go_with_servers_is_refused_at_once", expects="run_job(REFUSED"
    ),
    ("pipeline", "* `loss_repeated_mean=False`, several"): Elsewhere(
        "tests/runtime/pipeline/test_planning.py::test_steps_that_make_no_pipeline_are_refused"
    ),
    ("reliability", "| `files` | a checkpoint with flipped"): Elsewhere(
        "tests/mindspore/train/checkpoint/test_damaged_slices.py", "except"
    ),
    ("reliability", "where the test says that it may be refused"): Elsewhere(
        "tests/mindspore/communication/test_pairs.py", "may_be_refused"
    ),
    ("reliability", "| equal to one device | refused |"): Elsewhere(
        "tests/mindspore/communication/test_pairs.py", "may_be_refused"
    ),
}
"""Where a file of `src` is named, the error is only shown to be there; no test runs into it yet."""


def sentences() -> list[tuple[str, str]]:
    """Page and line of everything that speaks of a refusal."""
    return [
        (page.stem, line.strip())
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for line in page.read_text().splitlines()
        if re.search(r"\brefus(e|es|ed)\b", line, re.IGNORECASE)
    ]


def test_every_refusal_in_the_pages_is_in_the_table_and_the_other_way_round() -> None:
    found = sentences()
    unknown = [
        (page, line) for page, line in found if not any(page == there and part in line for there, part in REFUSALS)
    ]
    gone = [key for key in REFUSALS if not any(page == key[0] and key[1] in line for page, line in found)]
    assert (unknown, gone) == ([], [])


@pytest.mark.parametrize("key", [key for key, value in REFUSALS.items() if isinstance(value, Program)], ids=str)
def test_what_a_page_says_is_refused_is_refused(key: tuple[str, str], tmp_path: Path) -> None:
    program = REFUSALS[key]
    assert isinstance(program, Program)
    with pytest.raises(Exception, match=program.words):
        program.run(tmp_path)


@pytest.mark.parametrize("key", [key for key, value in REFUSALS.items() if isinstance(value, Elsewhere)], ids=str)
def test_the_test_that_a_refusal_names_is_there_and_expects_an_error(key: tuple[str, str]) -> None:
    tested = REFUSALS[key]
    assert isinstance(tested, Elsewhere)
    file, _, name = tested.test.partition("::")
    text = (ROOT / file).read_text()
    body = text.partition(f"def {name}(")[2].partition("\ndef ")[0] if name else text
    assert tested.expects in body
