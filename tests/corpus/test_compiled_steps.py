"""Compiled steps have the collectives that their texts say, in the same order: a refactoring changes none of them."""

import difflib

import compiled_steps
import jax
import pytest

import sporax.mindspore as ms
from sporax.mindspore import communication
from sporax.runtime import world


@pytest.fixture
def as_scripts_have_it(names_of_programs):
    """Graph mode and the types of MindSpore's scripts, and no settings of other programs."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    yield
    if world.world() is not None:
        communication.release()
    ms.set_context(mode=before)
    ms.reset_auto_parallel_context()


@pytest.mark.parametrize("name", compiled_steps.PROGRAMS)
def test_its_collectives_are_those_of_its_text(name, as_scripts_have_it, request):
    path = compiled_steps.GOLDEN / f"{name}.txt"
    with jax.enable_x64(not name.startswith("jax_")):
        found = compiled_steps.golden_text(name)
    if request.config.option.renew:
        path.write_text(found)
        return
    expected = path.read_text()
    if expected.partition("\n")[0] != found.partition("\n")[0]:  # another XLA names, orders and combines otherwise
        expected, found = (compiled_steps.without_versions(text) for text in (expected, found))
    changes = difflib.unified_diff(expected.splitlines(), found.splitlines(), "before", "now", lineterm="", n=1)
    assert found == expected, "\n".join(
        [f"{name}: other collectives. If that is meant, `make golden` writes the texts again.", *changes]
    )


def test_every_text_is_of_a_program():
    assert {path.stem for path in compiled_steps.GOLDEN.glob("*.txt")} == set(compiled_steps.PROGRAMS)


HLO = """\
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %row.NUMBER = f32[4]{0} get-tuple-element(%p), index=1
  %all-reduce.NUMBER = f32[4]{0} all-reduce(%row.NUMBER), replica_groups=[2,4]<=[8], to_apply=%add, \
metadata={op_name="jit(step)/net/transpose(jvp(fc))/communication:resharding/psum"}
  ROOT %t = (s32[], f32[4]{0}) tuple(%i, %all-reduce.NUMBER)
}

%cond (p: (s32[], f32[4])) -> pred[] {
  %p = (s32[], f32[4]{0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[4]{0}) tuple(%zero, %a)
  %loop = (s32[], f32[4]{0}) while(%start), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %b = f32[4]{0} get-tuple-element(%loop), index=1
  ROOT %whole.NUMBER = f32[32]{0} all-gather(%b), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
}
"""


def test_a_line_has_what_a_collective_does_and_no_number_of_an_instruction():
    expected = [
        "all-reduce add f32[4] {0,1,2,3}{4,5,6,7} loop of 3: net fc resharding",
        "all-gather f32[4] {0,1,2,3,4,5,6,7}: ?",
    ]
    for number in ("1", "27"):
        assert [*compiled_steps.lines(HLO.replace("NUMBER", number))] == expected
    text = "# JAX 1\n= step\n" + "\n".join(expected)
    assert compiled_steps.without_versions(text).splitlines() == [
        "= step",
        "all-gather over 8: 4",
        "all-reduce over 4: 12",
    ]
