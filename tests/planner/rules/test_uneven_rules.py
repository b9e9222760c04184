"""Tables whose rows are in parts of different sizes."""

from planner_graphs import mesh_of, operation, placement

from sporax.planner.rules import local_operation, placements, rule_for

ROWS = (3, 4)  # two parts, in blocks of 4 rows


def test_block_fields_and_results_of_a_part_go_together():
    rule = rule_for(operation("part_lookup", [(8, 4), (16, 6)], [(16, 6, 4)], rows=ROWS))
    assert str(rule).startswith("(ab) e, d (ac) -> d (ac) e (map a=2, blocked b=4, blocked c=3, map d=16, map e=4,")
    operands, results = placements(rule, ((0,), *[()] * (len(rule.factors) - 1)))
    assert operands == (placement("0 -"), placement("- 0"))
    assert results == (placement("- 0 -"),)


def test_gradients_are_summed_over_the_batch_and_stay_in_their_part():
    whole = operation("part_update", [(16, 6, 4), (16, 6)], [(8, 4)], rows=ROWS, num_rows=8)
    rule = rule_for(whole)
    assert str(rule).startswith(
        "d (ac) e, d (ac) -> (ab) e (map a=2, blocked b=4, blocked c=3, reduce d=16 sum, map e=4,"
    )
    local = local_operation(whole, rule, ((0,), *[()] * (len(rule.factors) - 1)), mesh_of(2))
    assert local.params["num_rows"] == 4


def test_a_table_that_is_not_in_blocks_stays_whole():
    rule = rule_for(operation("part_lookup", [(7, 4), (16, 6)], [(16, 6, 4)], rows=ROWS))
    assert str(rule).startswith("a d, c b -> c b d (blocked a=7, blocked b=6, map c=16, map d=4,")


def test_spare_rows_are_filled_in_place():
    rule = rule_for(operation("fill_spare_rows", [(8, 4)], [(8, 4)], rows=ROWS))
    assert str(rule) == "a b -> a b (map a=8, map b=4)"
    assert rule.recipe == "fill_spare_rows"
