"""Hardware profiles: those that come with the package, and what is said of a bad file."""

import json

import pytest
from msgspec import to_builtins

from sporax.base.errors import SporaxValueError
from sporax.ir.hardware import HardwareProfile, known_profiles, load_profile

GOOD = to_builtins(load_profile("h200"))


def test_the_profiles_of_the_package_can_be_read():
    names = known_profiles()

    assert {"ascend910", "a100", "h100", "h200", "tpu-v5e", "tpu-v5p", "cpu"} <= set(names)
    for name in names:
        profile = load_profile(name)
        assert profile.name == name
        assert profile.source
        assert profile.flops_per_second("bfloat16") > 0
        assert [link.group for link in profile.links] == sorted(link.group for link in profile.links)


def test_a_profile_can_be_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**GOOD, "name": "mine"}))

    assert load_profile(str(path)).name == "mine"


def test_a_file_is_read_again_and_must_be_text(tmp_path):
    path = tmp_path / "mine.json"
    for name in ("first", "second"):
        path.write_text(json.dumps({**GOOD, "name": name, "memory_bytes": 8e10}))
        profile = load_profile(str(path))
        assert (profile.name, profile.memory_bytes, type(profile.memory_bytes)) == (name, 80_000_000_000, int)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SporaxValueError, match=r"the file '.*mine.json' must be readable as text, but"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("profile", "dtype", "name"),
    [
        ("h100", "float8_e4m3fn", "float8"),
        ("h100", "float8_e5m2fnuz", "float8"),
        ("h100", "uint8", "int8"),
        ("h100", "int4", "int8"),
        ("a100", "int4", "int4"),
        ("a100", "float8_e4m3fn", "bfloat16"),
        ("tpu-v5p", "float4_e2m1fn", "bfloat16"),
        ("h100", "int32", "default"),
        ("cpu", "int8", "default"),
    ],
)
def test_narrow_types_have_a_rate_of_their_own_or_that_of_the_next_wider_one(profile, dtype, name):
    profile = load_profile(profile)
    assert profile.rate_name(dtype) == name
    borrowed = not dtype.removeprefix("u").startswith(name) and dtype != "int32"
    assert profile.borrowed_rate(dtype) == (name if borrowed else "")


def test_operands_of_two_types_are_converted_to_the_wider_one():
    profile = load_profile("h100")
    assert profile.nominal_flops("float8_e4m3fn", "bfloat16") == profile.flops["bfloat16"]


def test_links_by_distance():
    profile = load_profile("h100")

    assert profile.link_between((0, 7)).name == "NVLink"
    assert profile.link_between((7, 8)).name == "network"


def test_an_unknown_name_is_refused():
    with pytest.raises(
        SporaxValueError, match=r"must be one of \('a100', .*or the path of a JSON file, but got 'h300'"
    ):
        load_profile("h300")


@pytest.mark.parametrize(("change", "message"), [
    ({"colour": 1}, "'mine' has the unknown key 'colour'"),
    ({"name": 3}, "'name' of 'mine' must be a text, but got 3"),
    ({"memory_bandwidth": float("nan")}, "'memory_bandwidth' of 'mine' must be a number > 0, but got nan"),
    ({"memory_bytes": float("inf")}, "'memory_bytes' of 'mine' must be a number <= .*, but got inf"),
    ({"compute_efficiency": 7}, "'compute_efficiency' of 'mine' must be a number <= 1, but got 7"),
    ({"links": [{**GOOD["links"][0], "group": 2.5}]}, r"'links\[0\].group' of 'mine' must be a whole number, but got 2.5"),
    ({"links": GOOD["links"][::-1]}, "'mine' must have 'links' that stand innermost first"),
    ({"memory_bytes": 0}, "'memory_bytes' of 'mine' must be a number > 0, but got 0"),
    ({"launch_seconds": -1}, "must be a number >= 0"),
    ({"overlap": 1.5}, "'overlap' of 'mine' must be a number <= 1, but got 1.5"),
    ({"memory_bandwidth": "fast"}, "must be a number, but got 'fast'"),
    ({"links": []}, "'links' of 'mine' must be a list"),
    ({"links": [{"name": "x"}]}, r"'links\[0\]' of 'mine' must have 'group', but has \['name'\]"),
    ({"flops": {"float32": 1e9}}, "a rate called 'default'"),
    ({"merged_bytes": {"send": 1}}, "'merged_bytes' of 'mine' has the unknown key 'send'"),
    ({"merged_bytes": 7}, "'merged_bytes' of 'mine' must be an object, but got 7"),
    ({"merged_bytes": {"all_reduce": 0}}, "'merged_bytes.all_reduce' of 'mine' must be a number > 0, but got 0"),
    ({"flops": {"default": 0}}, "'flops.default' of 'mine' must be a number > 0"),
])  # fmt: skip
def test_a_bad_profile_is_refused(change, message):
    with pytest.raises(SporaxValueError, match=message):
        HardwareProfile.from_json(json.dumps({**GOOD, **change}), "mine")


def test_without_a_word_nothing_is_merged():
    said = {name: value for name, value in GOOD.items() if name != "merged_bytes"}

    assert HardwareProfile.from_json(json.dumps(said)).merged_bytes == {}
    assert HardwareProfile.from_json(load_profile("h200").to_json()) == load_profile("h200")


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(SporaxValueError, match="'mine'"):
        HardwareProfile.from_json(text, "mine")
