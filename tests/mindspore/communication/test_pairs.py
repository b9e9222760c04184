"""Pairs of features over several processes: each pair trains to the numbers of one device or is refused, and none waits for ever.

Starting processes is most of what a pair costs, so a job trains one pair after another. A pair that hangs or ends its job is
known by what its processes have written; those behind it get another job. Pairs with parameter servers are in
`tests/ps/test_pairs.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_flags import COMPILER
from forked_commands import ForkedCommand

PROGRAM = Path(__file__).parent / "programs" / "pairs.py"
SECONDS = 150
"""Within which a pair must end; it takes two seconds on a quiet machine."""
GROUP = 40
"""Pairs of one job."""
ALONE = ("pipeline", "accumulation", "amp", "loss_scale", "lazy")
"""Features that change the numbers of one device, too."""
FEATURES = (
    *("shard", "functional_shard", "optimizer_parallel", "accumulation_shard", "comm_fusion"),
    *("dataset_strategy", "full_batch", "broadcast", "offload", "host_embedding", "host_optimizer"),
    *("recompute", "sink", "functions", "checkpoint", "second_step", "evaluate", "pynative", "reuse", "verify"),
    *ALONE,
)
MODES = ("data_parallel", "semi_auto", "recursive", "dynamic", "propagation")
REFUSED = (
    ("data_parallel", {"pipeline"}),
    ("data_parallel", {"full_batch", "sink"}),
    ("", {"pipeline", "functions"}),
    # A stage has one device here.
    ("", {"pipeline", "shard"}),
    ("", {"pipeline", "functional_shard"}),
    ("", {"pipeline", "dataset_strategy"}),
    *((mode, {"pynative"}) for mode in MODES[1:]),
    *((mode, {"broadcast", "sink"}) for mode in MODES[1:]),
)
"""What may be refused: modes and features."""
EXCLUDING = (
    {"dataset_strategy", "full_batch"},
    {"optimizer_parallel", "accumulation_shard"},
    {"accumulation", "accumulation_shard"},
    {"sink", "functions"},
    {"loss_scale", "functions"},
    {"checkpoint", "second_step"},
)
"""Pairs that set one thing to two values."""


def pairs(mode: str) -> list[str]:
    """All pairs of features in a parallel mode, and each feature alone with the mode."""
    both = (set(pair) for pair in itertools.combinations(FEATURES, 2))
    names = ["", *FEATURES, *("+".join(sorted(pair)) for pair in both if pair not in EXCLUDING)]
    return [f"{mode}:{name}" for name in names]


# --------------------------------------------------------------------------------------------------- jobs


def outcomes(
    folder: Path, wanted: Sequence[str], num: int, seconds: float = SECONDS
) -> dict[str, list[dict[str, Any]]]:
    """What each process says of each pair: "weights", "refused", "defect", "raw", "died" or "hangs", with its text."""
    found: dict[str, list[dict[str, Any]]] = {}
    number = 0
    while left := [pair for pair in wanted if pair not in found][:GROUP]:
        here = folder / f"job-{number}"
        number += 1
        here.mkdir(parents=True)
        job, output = _start(here, left, num)
        hangs = _wait(job, here, left, num, seconds)
        for pair in left:
            said = _said(here, pair, num)
            if len(said) < num:
                kind = "hangs" if hangs else "refused" if _is_headline(said, output) else "died"
                # What the others say of a pair that hangs comes from its end.
                found[pair] = [*([] if hangs else said), {kind: output.read_text()[-3000:]}]
                break
            found[pair] = said
    return found


def _start(here: Path, wanted: Sequence[str], num: int) -> tuple[subprocess.Popen[bytes], Path]:
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", str(num), "--local_devices", "1"]
    command += ["--log_dir", str(here / "logs"), str(PROGRAM), str(here), str(num), *wanted]
    output = here / "output"
    with output.open("wb") as file:
        environ = {**os.environ, "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu"}
        return ForkedCommand(command, stdout=file, stderr=subprocess.STDOUT, env=environ, cwd=here), output


def _wait(job: subprocess.Popen[bytes], here: Path, wanted: Sequence[str], num: int, seconds: float) -> bool:
    """Wait for the end of a job; whether it was ended because a pair took too long."""
    done, since = 0, time.monotonic()
    while job.poll() is None:
        while done < len(wanted) and len(_said(here, wanted[done], num)) == num:
            done, since = done + 1, time.monotonic()
        if time.monotonic() - since > seconds:
            job.terminate()
            with suppress(subprocess.TimeoutExpired):
                job.wait(30)
            job.kill()
            job.wait()
            return True
        time.sleep(0.1)
    return False


def _said(here: Path, pair: str, num: int) -> list[dict[str, Any]]:
    files = (here / f"{pair}.{rank}.json" for rank in range(num))
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _is_headline(said: Sequence[dict[str, Any]], output: Path) -> bool:
    """Whether a process that refused the pair ended the job with its error."""
    text = output.read_text()
    return any("refused" in one and one["refused"].splitlines()[0] in text for one in said)


# ------------------------------------------------------------------------------------------------ verdicts


def reference(pair: str) -> str:
    """The pair that one device trains to the same numbers."""
    names = set(pair.partition(":")[2].split("+"))
    if pair.startswith("data_parallel") and names & {"optimizer_parallel", "accumulation_shard"}:
        names.add("adam")
    if "accumulation_shard" in names:
        names.add("accumulation")
    if "sink" in names:  # `Model` divides by the number of micro batches
        names -= {"pipeline", "accumulation"}
    return "alone:" + "+".join(name for name in (*ALONE, "adam", "evaluate") if name in names)


def verdict(pair: str, said: Sequence[dict[str, Any]], expected: dict[str, Any]) -> str:
    """ "equal", "refused", or what is wrong with a pair."""
    kinds = [next(iter(one)) for one in said]
    if set(kinds) <= {"refused"}:
        words = next(one["refused"] for one in said)
        return "refused" if words.startswith("For '") else f"refused, but in other words: {words}"
    if set(kinds) != {"weights"}:
        return "; ".join(f"{kind}: {one.get('trace', one[kind])}" for kind, one in zip(kinds, said, strict=True))
    for one in said:
        if difference := _difference(one["weights"], expected["weights"], 2e-3 if "amp" in pair else 1e-6):
            return difference
    return "equal"


def _difference(weights: dict[str, Any], expected: dict[str, Any], allowed: float) -> str:
    if set(weights) != set(expected):
        return f"has the Parameters {sorted(weights)}"
    for name, right in expected.items():
        if weights[name] is None:
            continue  # not known here
        far = np.abs(np.array(weights[name]) - np.array(right)).max()
        if not far <= allowed:
            return f"{name} differs by {far:.2g}"
    return ""


def checked(folder: Path, wanted: Sequence[str], num: int) -> Iterator[tuple[str, str]]:
    """Each pair with its verdict."""
    right = outcomes(folder / "one", sorted({reference(pair) for pair in wanted}), 1)
    for pair, said in outcomes(folder / "all", wanted, num).items():
        yield pair, verdict(pair, said, right[reference(pair)][0])


def may_be_refused(pair: str) -> bool:
    mode, _, names = pair.partition(":")
    return any(mode.startswith(where) and features <= set(names.split("+")) for where, features in REFUSED)


def check(folder: Path, wanted: Sequence[str], num: int = 2) -> None:
    found = dict(checked(folder, wanted, num))
    assert list(found) == list(wanted)
    wrong = {
        pair: word
        for pair, word in found.items()
        if word not in ("equal", "refused") or (word == "refused" and not may_be_refused(pair))
    }
    assert not wrong, "\n\n".join(f"{pair}: {word}" for pair, word in wrong.items())


# -------------------------------------------------------------------------------------------------- tests


@pytest.mark.full
def test_some_pairs_train_as_one_device_or_are_refused(tmp_path: Path) -> None:
    draw = random.Random(3)
    check(tmp_path, [draw.choice(pairs(mode)) for mode in ("data_parallel", "semi_auto", "recursive") for _ in (1, 2)])


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", MODES)
def test_every_pair_trains_as_one_device_or_is_refused(tmp_path: Path, mode: str) -> None:
    check(tmp_path, pairs(mode))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["semi_auto", "recursive"])
def test_features_of_four_processes(tmp_path: Path, mode: str) -> None:
    """With two stages each is driven by two processes, so that a stage can be sharded."""
    check(tmp_path, [pair for pair in pairs(mode) if "+" not in pair or "pipeline" in pair], 4)


@pytest.mark.soak
def test_a_pair_that_waits_for_ever_is_named(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ["semi_auto:recompute", "semi_auto:sleep", "semi_auto:reuse"], 2, seconds=30)
    kinds = {pair: [next(iter(one)) for one in said] for pair, said in found.items()}
    assert kinds == {
        "semi_auto:recompute": ["weights"] * 2,
        "semi_auto:sleep": ["hangs"],
        "semi_auto:reuse": ["weights"] * 2,
    }
