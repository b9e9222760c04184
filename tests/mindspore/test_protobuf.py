import pytest

from sporax.mindspore import _protobuf as protobuf


@pytest.mark.parametrize(
    ("value", "content"), [(0, b"\0"), (127, b"\x7f"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\x01")]
)
def test_numbers_go_there_and_back(value, content):
    assert protobuf.varint(value) == content
    assert list(map(protobuf.signed, protobuf.numbers(content))) == [value]


def test_a_message_is_its_fields():
    content = protobuf.number(1, 150) + protobuf.message(2, b"ab") + b"\x1d\1\0\0\0" + b"\x21" + b"\2" * 8
    assert list(protobuf.fields(content)) == [(1, 150), (2, b"ab"), (3, b"\1\0\0\0"), (4, b"\2" * 8)]
    assert protobuf.numbers(3) == [3]
    assert protobuf.numbers(memoryview(b"\1\xac\x02")) == [1, 300]


@pytest.mark.parametrize(
    ("content", "problem", "place"),
    [
        (b"\x08", "a number is truncated at byte 1", 0),
        (b"\x08\1\x12\5a", "a field of 5 bytes begins 1 bytes before the end", 2),
        (b"\x08\1\x0b", "byte 2 begins no field", 2),
        (b"\x08" + b"\xff" * 10, "a number is truncated", 0),
    ],
)
def test_what_is_no_message_is_named_with_its_place(content, problem, place):
    with pytest.raises(protobuf.MessageError, match=problem) as caught:
        list(protobuf.fields(content))
    assert caught.value.place == place
