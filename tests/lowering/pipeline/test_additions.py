"""Sums over the rounds of a loop: which chains of additions are one."""

from sporax.ir.graph import LITERAL, Operator
from sporax.ir.operation import Operation
from sporax.lowering.ingest.ingest import Equation
from sporax.lowering.pipeline.flat import additions

BEFORE = 0


def sum_of(after, *operators, read_elsewhere=()):
    """What `additions` says of operators given as (name, operands, result)."""
    entries = [
        (Operator(Operation(name, (), ()), operands, (result,)), Equation(None, {}))
        for name, operands, result in operators
    ]
    producers = {result: number for number, (_, _, result) in enumerate(operators)}
    readers = {}
    for tensor in [after, *read_elsewhere, *(operand for _, operands, _ in operators for operand in operands)]:
        readers[tensor] = readers.get(tensor, 0) + 1
    return additions(after, BEFORE, entries, producers, readers)


def test_terms_come_in_the_order_of_their_additions():
    chain = (("add", (BEFORE, 1), 2), ("add_any", (3, 2), 4), ("add", (4, 5), 6))
    assert sum_of(6, *chain) == ([2, 1, 0], [1, 3, 5])


def test_another_operator_on_the_way_makes_it_no_sum():
    assert sum_of(4, ("mul", (BEFORE, 1), 2), ("add", (2, 3), 4)) is None


def test_a_running_total_that_something_else_reads_makes_it_no_sum():
    chain = (("add", (BEFORE, 1), 2), ("add", (2, 3), 4))
    assert sum_of(4, *chain) is not None
    assert sum_of(4, *chain, read_elsewhere=(2,)) is None
    assert sum_of(4, *chain, read_elsewhere=(BEFORE,)) is None


def test_a_value_that_is_doubled_is_no_sum():
    assert sum_of(2, ("add", (BEFORE, BEFORE), 2)) is None


def test_a_literal_term_makes_it_no_sum():
    assert sum_of(2, ("add", (BEFORE, LITERAL), 2)) is None
