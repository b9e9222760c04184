"""Names of operators as people see them."""

import pytest

from sporax.report.view.operator_names import common_prefix


@pytest.mark.parametrize(
    ("paths", "prefix"),
    [
        ([], ""),
        (["net.dense.matmul", "net.dense.bias"], "net.dense"),
        (["net.layers.3.attn", "net.layers.4.attn"], "net"),
        (["a.b", "a.b.c"], "a"),
        (["x", "y"], ""),
    ],
)
def test_the_leading_cells_that_all_paths_share(paths, prefix):
    assert common_prefix(paths) == prefix
