"""What the first page says, done as it says, with the package as users get it: a wheel, installed into an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from compiler_flags import COMPILER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "index.md").read_text()
PROGRAMS = {found[1]: found[0] for found in re.finditer(r"(?<=```python\n)# (\w+\.py)\n.*?(?=```)", PAGE, re.DOTALL)}
COMMANDS = re.findall(r"^\$ (sporax (?:run|plan|info).*|python .*)$", PAGE, re.MULTILINE)
IMAGES = sorted((ROOT / "deploy").glob("*.Dockerfile"))
EXPECTED = (
    r"devices: 1 x cpu",
    r"loss 0\.\d+ -> 0\.0\d+",
    r"loss 0\.\d+ -> 0\.0\d+",
    r"Plan for 64 devices",
    r"Plan for 64 devices",
    r"h200 × 64",
)
"""What the output of each command has."""


def instructions(image: Path) -> list[tuple[str, str]]:
    lines = image.read_text().splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


def sources(image: Path) -> list[str]:
    """What the image takes from the repository."""
    copies = [value.split()[:-1] for word, value in instructions(image) if word == "COPY"]
    return [name for names in copies for name in names if not names[0].startswith("--from")]


def test_there_is_a_program_and_a_command_for_each_kind_of_user():
    assert list(PROGRAMS) == ["train.py", "plan.py", "block.py"]
    starts = ["sporax info", "sporax run", "sporax run", "python plan.py", "sporax plan", "sporax plan"]
    assert [" ".join(command.split()[:2]) for command in COMMANDS] == starts
    no_step = ("#", "import ", "from ")
    steps = {
        name: [line for line in text.splitlines() if line and not line.startswith(no_step)]
        for name, text in PROGRAMS.items()
    }
    assert {name: len(lines) for name, lines in steps.items() if len(lines) > 10} == {}


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_an_image_for_jobs_has_what_it_copies_and_installs(image):
    found = instructions(image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bases = {value.split(" AS ")[0] for word, value in found if word == "FROM"}
    (version,) = [re.fullmatch(r"python:3\.(\d+)-slim", base) for base in bases]  # what one stage installs another runs
    assert int(version[1]) >= int(project["requires-python"].removeprefix(">=3."))
    assert [name for name in sources(image) if not (ROOT / name).exists()] == []
    (command,) = [value for word, value in found if word == "RUN"]
    extras = re.fullmatch(r"pip install --no-cache-dir --prefix=/install '\.\[([\w,]+)\]'", command)[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert ("cuda" in extras) == ("cuda" in image.name)
    assert [value for word, value in found if word == "USER"] == ["65532:65532"]
    assert [value for word, value in found if word == "ENTRYPOINT"] == ['["sporax"]']


def build(folder: Path) -> Path:
    """A wheel made of the files that the images copy, and of nothing else."""
    source = folder / "source"
    source.mkdir()
    for name in sources(IMAGES[0]):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.pyi"))
        else:
            shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(command, cwd=source, check=True, timeout=200)
    (wheel,) = folder.glob("sporax-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel, which sees the other packages of this one. Returns its folder of programs."""
    venv.create(folder, symlinks=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, str(wheel)], check=True, timeout=200)
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"] or [sysconfig.get_path("purelib")]
    (packages / "others.pth").write_text("\n".join(others))
    return folder / "bin"


@pytest.mark.full
@pytest.mark.timeout(900)  # half a minute of processor time, on a machine that may be busy with something else
def test_a_wheel_installs_and_the_first_page_works_with_it_on_a_terminal_of_80_columns(tmp_path):
    pytest.importorskip("hatchling", reason="the package's build backend is not installed (extra `test`)")
    wheel = build(tmp_path)
    files = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/sporax").rglob("*")
        if path.suffix not in ("", ".pyc")
    }
    files |= {"sporax/py.typed", "sporax/mindspore/ops/__init__.pyi", "sporax/mindspore/common/tensor.pyi"}
    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()
    programs = install(wheel, tmp_path / "environment")
    job = tmp_path / "job"
    job.mkdir()
    for name, text in PROGRAMS.items():
        (job / name).write_text(text)
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("MS_", "RANK_", "PYTHONPATH"))}
    environ |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "XLA_FLAGS": COMPILER, "COLUMNS": "80"}
    where = (
        "import pathlib, sporax; print(pathlib.Path(sporax.__file__).relative_to(pathlib.Path.cwd().parent).parts[0])"
    )
    outputs = []
    for command in (["python", "-c", where], *(command.split() for command in COMMANDS)):
        done = subprocess.run(command, env=environ, cwd=job, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line]
        assert [line for line in lines if len(line) > 80] == []
        messages = Counter(done.stderr.splitlines())
        assert [line for line, times in messages.items() if times > 1] == []
    assert outputs[0].strip() == "environment"
    missing = [pattern for pattern, text in zip(EXPECTED, outputs[1:], strict=True) if not re.search(pattern, text)]
    assert not missing, outputs
    assert outputs[2].splitlines()[-1] == outputs[3].splitlines()[-1]  # one device and eight: the same losses
    assert (job / "plans.html").stat().st_size > 10_000
