"""Programs: discovery of variables, donation, variants, reasons, results."""

import logging

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxTypeError
from sporax.runtime.program.program import Program
from sporax.runtime.state import frames


class Cell:
    """A variable and a guard in one, as small as can be."""

    def __init__(self, value, name="v"):
        self.raw = jnp.asarray(value, jnp.float32)
        self.name = name
        self.flag = 1

    def fingerprint(self):
        return {"flag": self.flag}

    def describe(self):
        return self.name


def test_reads_and_writes_are_found_by_tracing():
    read, written, untouched = Cell(2.0, "r"), Cell(3.0, "w"), Cell(4.0, "u")

    def function(x):
        frames.write(written, frames.read(written) + frames.read(read) * x)
        return frames.read(written)

    program = Program(function, "f")
    assert float(program(jnp.float32(10.0))) == 23.0
    assert float(program(jnp.float32(1.0))) == 25.0
    assert float(written.raw) == 25.0
    assert float(untouched.raw) == 4.0
    assert [(compilation.num_read, compilation.num_written) for compilation in program.compilations] == [(1, 1)]


def test_a_variable_written_and_never_read_is_returned():
    variable = Cell(0.0)
    program = Program(lambda x: frames.write(variable, x * 2), "f")
    assert program(jnp.float32(4.0)) is None
    assert float(variable.raw) == 8.0


def test_written_buffers_are_donated_and_read_ones_are_not():
    read, written = Cell(jnp.ones(1024)), Cell(jnp.ones(1024))
    program = Program(lambda: frames.write(written, frames.read(written) + frames.read(read)), "f")
    before_read, before_written = read.raw, written.raw
    program()
    assert before_written.is_deleted()
    assert not before_read.is_deleted()


@pytest.mark.parametrize("which", ["read", "written"])
def test_a_result_that_is_a_variable_survives_the_next_donation(which):
    read, written = Cell(jnp.ones(8)), Cell(jnp.ones(8))

    def function():
        frames.write(written, frames.read(written) + frames.read(read))
        return frames.read({"read": read, "written": written}[which])

    program = Program(function, "f")
    kept = program()
    before = float(kept[0])
    program()
    Program(lambda: frames.write(read, frames.read(read) * 3), "g")()
    assert float(kept[0]) == before


def test_static_results_and_structure_come_back():
    program = Program(lambda x: {"a": (x + 1, "word"), "b": [None, 3]}, "f")
    result = program(jnp.float32(1.0))
    assert result["a"][1] == "word"
    assert result["b"] == [None, 3]
    assert float(result["a"][0]) == 2.0


def test_equal_numbers_of_different_types_are_different_programs():
    program = Program(lambda x, flag: x + 1 if flag is True else x + 2, "f")
    x = jnp.float32(0.0)
    assert [float(program(x, flag)) for flag in (True, 1, True, 1)] == [1.0, 2.0, 1.0, 2.0]
    assert len(program.compilations) == 2


def test_reasons_name_what_changed():
    guard = Cell(1.0, "Net 'fc'")

    def function(x, scale=1):
        frames.depend_on(guard)
        return x * guard.flag * scale

    program = Program(function, "f")
    program(jnp.ones(2, jnp.float32))
    program(jnp.ones(3, jnp.float32))
    program(jnp.ones(3, jnp.float32), scale=2)
    guard.flag = 5
    frames.touch()
    assert float(program(jnp.ones(3, jnp.float32), scale=2)[0]) == 10.0
    reasons = [item.reason for item in program.compilations]
    assert reasons[0] == "first call"
    assert reasons[1] == "argument 0 changed from float32[2] to float32[3]"
    assert "structure" in reasons[2]
    assert reasons[3] == "Net 'fc': flag changed from 1 to 5"


def test_configuration_that_changes_back_finds_the_old_variant():
    guard = Cell(1.0)

    def function(x):
        frames.depend_on(guard)
        return x * guard.flag

    program = Program(function, "f")
    for flag in (1, 2, 1, 2, 1):
        guard.flag = flag
        frames.touch()
        assert float(program(jnp.float32(1.0))) == flag
    assert len(program.compilations) == 2


def test_a_touch_without_change_compiles_nothing():
    program = Program(lambda x: x + 1, "f")
    for _ in range(3):
        frames.touch()
        program(jnp.float32(1.0))
    assert len(program.compilations) == 1


def test_a_variable_that_changes_its_shape_is_compiled_for_again():
    variable = Cell(jnp.ones(3))
    program = Program(lambda: jnp.sum(frames.read(variable)), "f")
    assert float(program()) == 3.0
    variable.raw = jnp.ones(5, jnp.float32)
    assert float(program()) == 5.0


def test_unhashable_static_arguments_are_refused_by_name_and_type():
    with pytest.raises(SporaxTypeError, match="For 'f'.*but got set"):
        Program(lambda x: x, "f")({1, 2})


def test_an_error_while_tracing_leaves_no_frame_and_no_variant():
    def function(x):
        raise RuntimeError("mine")

    program = Program(function, "f")
    with pytest.raises(RuntimeError, match="mine"):
        program(jnp.float32(1.0))
    assert frames.current_frame() is None
    assert program.compilations == []


def test_branching_on_a_variable_fails_instead_of_being_fixed():
    variable = Cell(1.0)
    program = Program(lambda: 1.0 if frames.read(variable) > 0 else 2.0, "f")
    with pytest.raises(jax.errors.TracerBoolConversionError):
        program()


def test_compilations_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="sporax.compile"):
        Program(lambda x: x, "my_step")(jnp.float32(1.0))
    assert "compiled my_step: first call" in caplog.text


def test_lowering_does_not_run():
    variable = Cell(1.0)
    program = Program(lambda x: frames.write(variable, frames.read(variable) + x), "f")
    text = program.lower(jnp.float32(1.0)).as_text()
    assert "add" in text
    assert float(variable.raw) == 1.0
