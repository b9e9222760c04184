"""What users attach to primitives, under the names of MindSpore's base class."""

import pytest

from sporax.mindspore import ops


def test_marks_are_attached_and_listed():
    add = ops.Add()
    assert add.get_attr_dict() == {}
    with pytest.warns(
        UserWarning, match="For 'Add', the mark 'level' has no effect: nothing reads a mark of this name"
    ):
        add.add_attr("level", 2)
    assert (add.level, add.get_attr_dict()) == (2, {"level": 2})
    add.get_attr_dict()["level"] = 3
    assert add.level == 2
    add.del_attr("level")
    assert add.get_attr_dict() == {}


def test_names_of_inputs_and_outputs():
    add = ops.Add()
    add.init_prim_io_names(inputs=["x", "y"], outputs=["sum"])
    assert (add.input_names, add.output_names) == (["x", "y"], ["sum"])
    with pytest.raises(TypeError, match="For 'Add', 'output_names' must be a list of strings"):
        add.init_prim_io_names(["x"], "sum")


def test_data_of_users_is_no_mark():
    add = ops.Add()
    assert add.get_user_data("key") is None
    add.set_user_data("key", [1])
    assert (add.get_user_data("key"), add.get_attr_dict()) == ([1], {})
