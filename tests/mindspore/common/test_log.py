"""`sporax.mindspore.log` reads the environment when it is loaded, so it is watched in processes of its own."""

import os
import re
import subprocess
import sys

import pytest

SAY = """
from sporax.mindspore import log as logger
logger.info("loss %s", 3)
logger.warning("slow")
print(logger.get_level(), logger.get_log_config())
"""


def run(**environ: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GLOG_")}
    return subprocess.run([sys.executable, "-c", SAY], env=clean | environ, capture_output=True, text=True, timeout=120)


def test_warnings_and_errors_go_to_stderr():
    done = run()
    line = r"\[WARNING\] ME\(\d+:\d+,MainProcess\):\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.000 \[<string>:4\] slow\n"
    assert re.fullmatch(line, done.stderr)
    assert done.stdout == "2 {'GLOG_v': '2', 'GLOG_logtostderr': '1'}\n"


def test_level_and_directory_come_from_the_environment(tmp_path):
    done = run(GLOG_v="1", GLOG_logtostderr="0", GLOG_log_dir=str(tmp_path), RANK_ID="3")
    assert done.stderr == ""
    text = (tmp_path / "rank_3" / "logs" / "mindspore.log").read_text()
    assert re.findall(r"\] (loss 3|slow)\n", text) == ["loss 3", "slow"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [({"GLOG_v": "7"}, "'GLOG_v' must be 0"), ({"GLOG_logtostderr": "0"}, "'GLOG_log_dir' must be set")],
)
def test_settings_that_make_no_sense(environ: dict[str, str], words: str):
    done = run(**environ)
    assert done.returncode == 1
    assert words in done.stderr
