import argparse

import pytest

from sporax.base.errors import SporaxValueError
from sporax.launch import options
from sporax.launch.options import MSRUN_DEFAULTS, RUN_DEFAULTS, SCHEDULER, Defaults, DryRunOptions, LaunchOptions


def parse(*words: str, defaults: Defaults = RUN_DEFAULTS) -> LaunchOptions:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, defaults)
    return options.checked(parser.parse_args([*words, "sh", "-c", "true"]), defaults)


def test_run_without_worker_num_is_one_process():
    assert parse().worker_num is None
    assert parse().target.arguments == ("-c", "true")


def test_run_takes_all_workers_on_this_node():
    chosen = parse("--worker_num", "4")
    assert (chosen.worker_num, chosen.local_worker_num, chosen.join, chosen.is_one_node) == (4, 4, True, True)


def test_msrun_starts_eight_here_and_returns():
    chosen = parse(defaults=MSRUN_DEFAULTS)
    assert (chosen.worker_num, chosen.local_worker_num, chosen.join) == (8, 8, False)
    assert parse("--worker_num", "16", defaults=MSRUN_DEFAULTS).local_worker_num == 8
    assert parse("--worker_num", "2", defaults=MSRUN_DEFAULTS).local_worker_num == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--worker_num=0"], "worker_num must be greater than 0, but got 0"),
        (["--worker_num=4", "--local_worker_num=0"], "local_worker_num must be greater than 0, but got 0"),
        (["--worker_num=4", "--local_worker_num=8"], "at most worker_num, which is 4, but got 8"),
        (["--worker_num=2", "--master_port=80"], "between 1024 and 65535, but got 80"),
        (["--worker_num=2", "--node_rank=-2"], "node_rank must be -1 or"),
        (["--worker_num=2", "--cluster_time_out=0"], "cluster_time_out must be greater than 0"),
        (["--worker_num=2", "--tail_worker_log=0,2"], r"tail_worker_log must be -1 or numbers in \[0, 2\)"),
        (["--worker_num=2", "--rank_table_file=none.json"], "rank_table_file must be a file that exists"),
        (["--local_devices=0"], "local_devices must be greater than 0"),
        (["--log_dir=x"], "--log_dir must be used together with --worker_num"),
        (["--worker_num=2", "--sim_rank_id=0"], "sim_rank_id must be used together with --sim_level"),
        (["--worker_num=2", "--sim_level=0", "--sim_rank_id=2"], r"sim_rank_id must be -1 or in \[0, 2\)"),
        (["--worker_num=2", "--sim_level=0", "--local_devices=2"], "local_devices must be left out in a dry run"),
        (["--sim_level=1"], "--sim_level must be used together with --worker_num"),
        (["--bind_core=True"], "--bind_core must be used together with --worker_num"),
        (["--profile=x", "--profile_steps=8:5"], "profile_steps must be FIRST:LAST .* such as 5:8 .* but got 8:5"),
        (["--profile_steps=5:8"], "profile_steps must be used together with --profile, but got 5:8"),
        ([f"--profile={__file__}"], "profile must be a folder, or the name of a new one"),
        (
            ["--profile=x"],
            "profile must be used with a Python script or module, whose steps can be counted, but got .*sh",
        ),
    ],
)
def test_values_that_make_no_sense(words: list[str], message: str):
    with pytest.raises(SporaxValueError, match=message):
        parse(*words)


def test_a_dry_run_of_one_rank_or_of_a_node():
    one = parse("--worker_num=1000", "--local_worker_num=8", "--sim_level=1", "--sim_rank_id=13")
    assert one.dry_run == DryRunOptions(1, (13,), 8)
    assert (one.local_worker_num, one.is_one_node) == (1, True)
    node = parse("--worker_num=8", "--local_worker_num=4", "--node_rank=1", "--sim_level=0")
    assert node.dry_run == DryRunOptions(0, (4, 5, 6, 7), 4)
    assert parse("--worker_num=4").dry_run is None


def test_the_environment_requests_a_dry_run_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "2")
    monkeypatch.setenv("RANK_ID", "3")
    assert parse("--worker_num=4").dry_run == DryRunOptions(2, (3,), 4)
    assert parse("--worker_num=4", "--sim_level=1", "--sim_rank_id=0").dry_run == DryRunOptions(1, (0,), 4)
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "4")
    with pytest.raises(SporaxValueError, match="must be one of"):
        parse("--worker_num=4")


def test_a_dry_run_of_too_many_ranks_simulates_the_first(capsys: pytest.CaptureFixture[str]):
    chosen = parse("--worker_num=129", "--sim_level=0")
    assert chosen.dry_run == DryRunOptions(0, (0,), 129)
    assert "only rank 0" in capsys.readouterr().err


def test_core_bindings_are_read_from_tables_and_switches():
    table = '{"device0": ["0-2", "5"], "device1": ["6,7"], "scheduler": ["3"]}'
    assert parse("--worker_num=2", "--bind_core", table).bind_core == {0: (0, 1, 2, 5), 1: (6, 7), SCHEDULER: (3,)}
    assert parse("--worker_num=2", "--bind_core=False").bind_core is False
    assert parse("--worker_num=2", "--bind_numa", "true").bind_numa is True
    assert parse("--worker_num=2").bind_core is None


@pytest.mark.parametrize("text", ["maybe", "[1]", '{"gpu0": ["1"]}', '{"device0": ["x"]}', '{"device0": 3}'])
def test_bindings_that_make_no_sense(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse("--worker_num=2", "--bind_core", text)
    assert "must be True, False or JSON" in capsys.readouterr().err


def test_tail_worker_log():
    assert parse("--worker_num=4").tail_worker_log is None
    assert parse("--worker_num=4", "--tail_worker_log", "0,3").tail_worker_log == (0, 3)
