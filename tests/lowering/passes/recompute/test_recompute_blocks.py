"""Blocks of a network, and what each level of one computes again and keeps."""

import jax
import jax.numpy as jnp
import pytest

from sporax.lowering.marks.tags import new_tag
from sporax.lowering.passes.recompute.recompute_blocks import blocks_of, chosen
from sporax.lowering.rewriter import flat, is_backward, stack_of
from sporax.planner.memory.recomputation import Level

X = jnp.ones((2, 3, 4))
W = jnp.eye(4)


def attention(x, w):
    """Scores and their use between products with weights."""
    query = x @ w
    scores = jnp.exp(jnp.einsum("bij,bkj->bik", query, query))
    return jnp.einsum("bij,bjk->bik", scores, x) @ w


def program(marked=None):
    """The gradient of two numbered blocks and a head; the block `marked` has the user's tag."""

    def loss(w):
        x = X
        for number in range(2):
            with jax.named_scope(f"net.blocks.{number}" if number else "net.blocks.0"):
                scope = new_tag().scope if number == marked else "body"
                with jax.named_scope(scope):
                    x = jnp.sin(attention(x, w))
        with jax.named_scope("net.head"):
            return (x * 2).sum()

    return flat(jax.make_jaxpr(jax.grad(loss))(W))


def names(closed, positions):
    return [closed.jaxpr.eqns[place].primitive.name for place in positions]


def test_a_numbered_cell_is_a_block_without_the_backward_pass():
    closed = program()
    blocks = blocks_of(closed)
    assert [block.path for block in blocks] == ["net.blocks.0", "net.blocks.1"]
    for block in blocks:
        assert names(closed, block.positions).count("dot_general") == 4
        assert not any(is_backward(stack_of(closed.jaxpr.eqns[place])) for place in block.positions)
        (result,) = (var for var in block.results if var.aval.shape == X.shape)
        assert closed.jaxpr.eqns[block.positions[-1]] or result


def test_what_the_user_has_marked_is_no_part_of_a_block():
    assert [block.path for block in blocks_of(program(marked=0))] == ["net.blocks.1"]


@pytest.mark.parametrize(
    ("level", "products", "kept"),
    [(Level.EVERYTHING, 4, 0), (Level.POINTWISE, 4, 4), (Level.PRODUCTS, 4, 2), (Level.ATTENTION, 2, 1)],
)
def test_levels_keep_less_and_less(level, products, kept):
    closed = program()
    first, second = blocks_of(closed)
    choice = chosen(closed, (first, second), (level, Level.NOTHING))
    assert set(choice.tags) <= set(first.positions)
    assert names(closed, choice.tags).count("dot_general") == products
    assert first.results <= choice.saved
    assert len(choice.saved - first.results) == kept
    assert list(choice.paths.values()) == ["net.blocks.0"]


def test_nothing_chosen_tags_nothing():
    closed = program()
    blocks = blocks_of(closed)
    choice = chosen(closed, blocks, (Level.NOTHING,) * 2)
    assert (dict(choice.tags), choice.saved, dict(choice.paths)) == ({}, frozenset(), {})
