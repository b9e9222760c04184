"""Texts of compiled programs, in the forms that XLA has written them."""

import pytest

from sporax.runtime.process.compiled_text import CompiledText, groups_of, num_bytes

TEXT = """HloModule jit_step, num_partitions=8

FileNames
1 "/home/me/train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%body (param: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %param = (s32[], f32[8,16]{1,0}) parameter(0)
  %rows = bf16[8,16]{1,0} get-tuple-element(%param), index=1
  %all-gather-start = (bf16[8,16]{1,0}, bf16[64,16]{1,0}) all-gather-start(%rows), replica_groups=[1,8]<=[8], metadata={op_name="jit(step)/while/body/dot" stack_frame_id=1}
  %all-gather-done = bf16[64,16]{1,0} all-gather-done(%all-gather-start)
  ROOT %tuple = (s32[], f32[8,16]{1,0}) tuple(%param, /*index=1*/%rows)
}

%inner (x: f32[]) -> f32[] {
  ROOT %x = f32[] parameter(0)
}

ENTRY %main (a: f32[8,16]) -> f32[] {
  %a = f32[8,16]{1,0} parameter(0)
  %loop = (s32[], f32[8,16]{1,0}) while(%a), condition=%inner, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %sum = f32[] all-reduce(%a), to_apply=%inner, replica_groups={{0,1},{2,3},{4,5},{6,7}}, metadata={op_name="jit(step)/sum" source_file="/old/way.py" source_line=3}
}
"""


def test_instructions_know_their_runs_bytes_and_lines():
    program = CompiledText.of(TEXT)
    (_, gather), (_, reduction) = program.collectives()
    assert (gather.opcode, gather.op_name, program.place(gather)) == (
        "all-gather",
        "jit(step)/while/body/dot",
        ("/home/me/train.py", 7),
    )
    assert program.operand_bytes("body", gather) == 8 * 16 * 2
    assert (reduction.opcode, program.place(reduction)) == ("all-reduce", ("/old/way.py", 3))
    assert program.runs()["body"] == (5, True) and program.runs()["main"] == (1, True)
    unknown = CompiledText.of(TEXT.replace("known_trip_count", "unknown"))
    assert unknown.runs()["body"] == (1, False)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("replica_groups={{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("source_target_pairs={{0,1},{1,0}}", [[0, 1], [1, 0]]),
        ("replica_groups=[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=mesh['a'=8] {'a':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("replica_groups={}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_groups_in_every_form(groups, expected):
    text = f"ENTRY %main (a: f32[8]) -> f32[8] {{\n  %a = f32[8]{{0}} all-reduce(%a), {groups}, use_global_device_ids=true\n}}"
    ((_, instruction),) = CompiledText.of(text).collectives()
    assert list(map(list, groups_of(instruction, 8))) == expected


def test_bytes_of_types():
    assert (
        num_bytes("(f32[8,2]{1,0}, bf16[4], pred[3], f8e4m3fn[5], s4[8], c64[2], u32[])") == 64 + 8 + 3 + 5 + 4 + 16 + 4
    )
