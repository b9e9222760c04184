"""Settings of plans under an environment, and sizes as people write them."""

import pytest

from sporax.base.errors import SporaxValueError
from sporax.base.units import parse_bytes
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings

SETTINGS = PlanSettings(ParallelConfig(device_num=8, parallel_mode="semi_auto_parallel"))


def test_an_empty_environment_changes_nothing():
    assert SETTINGS.under({}) == SETTINGS


def test_the_environment_wins():
    actual = SETTINGS.under(
        {"SPORAX_PLAN_MODE": "sharding_propagation", "SPORAX_PLAN_MEMORY": "80GB", "SPORAX_HARDWARE": "h200"}
    )
    assert (actual.parallel.parallel_mode, actual.parallel.search_mode) == ("auto_parallel", "sharding_propagation")
    assert actual.cost.device_memory_capacity == 80e9
    assert actual.hardware == "h200"
    back = actual.under({"SPORAX_PLAN_MODE": "semi_auto"})
    assert back.parallel.parallel_mode == "semi_auto_parallel"


@pytest.mark.parametrize("mode", ["ilp", "repeated_blocks"])
def test_our_own_searches_are_modes_as_well(mode):
    actual = SETTINGS.under({"SPORAX_PLAN_MODE": mode})
    assert (actual.parallel.parallel_mode, actual.parallel.search_mode) == ("auto_parallel", mode)


@pytest.mark.parametrize("environ", [{"SPORAX_PLAN_MODE": "guess"}, {"SPORAX_PLAN_MEMORY": "much"}])
def test_what_cannot_be_read_is_refused(environ):
    with pytest.raises(SporaxValueError, match=next(iter(environ))):
        SETTINGS.under(environ)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("1.5 KiB", 1536),
        ("2000000", 2_000_000),
        (700, 700),
        ("0.5mb", 500_000),
        (".5 TB", 5 * 10**11),
        ("8e9", 8 * 10**9),
        (1.5e9, 1_500_000_000),
    ],
)
def test_texts_of_sizes_are_read_as_bytes(text, size):
    assert parse_bytes(text, "For 'x', 'size'") == size


@pytest.mark.parametrize(
    "size", ["", "0", "0 GB", "lots", "nan", "1e999", "-5", -5, 0, True, None, "80 gigs", "9" * 30]
)
def test_what_is_no_size_is_refused(size):
    with pytest.raises(SporaxValueError, match="'size' must be a number of bytes above 0 or a text like '80GB'"):
        parse_bytes(size, "For 'x', 'size'")


@pytest.mark.parametrize("size", ["80", 80, "80000", "0.5"])
def test_small_numbers_need_a_unit(size):
    with pytest.raises(
        SporaxValueError, match=f"^For 'x', 'size' must have a unit, as in '{size}GB' or '{size}MB', but got"
    ):
        parse_bytes(size, "For 'x', 'size'")
