"""Completion of commands and flags: the scripts that shells read."""

import shutil
import subprocess

import pytest

from sporax.launch import cli


def script(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text, *words):
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    line = f'{text}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_sporax; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_flags_actions_and_files(capsys, tmp_path, monkeypatch):
    text = script("bash", capsys)
    assert set(cli.COMMANDS) <= set(completed(text, "sporax", ""))
    assert completed(text, "sporax", "pl") == ["plan"]
    assert {"--worker_num", "--worker_log_name"} == set(completed(text, "sporax", "run", "--work"))
    assert completed(text, "sporax", "plan", "x.py", "--compa") == ["--compare"]
    assert completed(text, "sporax", "ps", "sca") == ["scale"]
    assert "--scheduler" in completed(text, "sporax", "ps", "scale", "--sch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert completed(text, "sporax", "run", "tra") == ["train.py"]


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_read_their_script(capsys, shell, tmp_path):
    text = script(shell, capsys)
    for word in ("msrun", "worker_num", "scale", "verify-steps"):
        assert word in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_a_command_whose_packages_are_missing_has_no_flags(capsys, monkeypatch):
    loaded = cli.load_command

    def load(name):
        if name == "k8s":
            raise ImportError("No module named 'kopf'")
        return loaded(name)

    monkeypatch.setattr(cli, "load_command", load)
    text = script("bash", capsys)
    assert set(completed(text, "sporax", "k8s", "--")) == {"--help"}
    assert "--worker_num" in completed(text, "sporax", "run", "--")
