import pytest

from sporax import context
from sporax.ir.errors import SporaxKeyError, SporaxTypeError
from sporax.parallel import set_op_strategy_config


@pytest.mark.filterwarnings("ignore:.*stored, but has no effect today")
def test_stored_for_the_planner():
    set_op_strategy_config("SAVE", "/data/out.json")
    set_op_strategy_config("LOAD", "/data/in.json")
    config = context.snapshot()
    assert (config.op_strategy_save_file, config.op_strategy_load_file) == ("/data/out.json", "/data/in.json")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("foo", "/a.json"), SporaxKeyError),
        (("save", "/a.json"), SporaxKeyError),
        ((3, "/a.json"), SporaxKeyError),
        (("SAVE", "a.json"), SporaxKeyError),
        (("SAVE", "/a.txt"), SporaxKeyError),
        ((), SporaxKeyError),
        (("SAVE", 3), SporaxTypeError),
    ],
)
def test_refused(arguments, error):
    with pytest.raises(error, match="For 'set_op_strategy_config'"):
        set_op_strategy_config(*arguments)
