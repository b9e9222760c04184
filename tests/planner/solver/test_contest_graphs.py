import gzip
import json

import pytest
from contest_graphs import read_graph

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError


def document():
    return {
        "problem": {
            "name": "two",
            "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3]], "usages": [[5, 1], [2]]},
            "edges": {"nodes": [[0, 1], [0]], "costs": [[7, 8], [10, 20]]},
            "usage_limit": 6,
        }
    }


@pytest.mark.parametrize("compress", [False, True])
def test_reads_plain_and_gzipped_files(tmp_path, compress):
    data = json.dumps(document()).encode()
    path = tmp_path / "graph.json.gz"
    path.write_bytes(gzip.compress(data) if compress else data)
    graph = read_graph(path)
    assert graph.num_nodes == 2
    assert graph.num_edges == 1
    assert graph.limit == 6
    assert graph.costs.tolist() == [11, 22, 3]  # the one-node edge is in the node's costs


def _set(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("problem",), [], "field 'problem' must be a dict, but got \\[\\]"),
        (("problem", "nodes"), {}, "field 'intervals'"),
        (("problem", "nodes", "intervals", 1), [1], "nodes.intervals\\[1\\].*two non-negative integers"),
        (("problem", "nodes", "intervals", 1), [3, 1], "nodes.intervals\\[1\\].*must not end before it begins"),
        (("problem", "nodes", "costs", 1), [float("-inf")], "above -inf.* got cost -inf .* in strategy 0 of node 1"),
        (("problem", "nodes", "costs", 1), [10**400], "every cost must fit a floating-point number"),
        (
            ("problem", "edges", "costs", 0),
            [float("-inf"), 1],
            "table of edge 0 must hold numbers above -inf, but entry 0",
        ),
        (("problem", "nodes", "costs", 0), "x", "nodes.costs\\[0\\].*list of numbers, but got 'x'"),
        (("problem", "nodes", "costs", 0, 1), True, "nodes.costs\\[0\\].*entry 1 must be a number, but got True"),
        (("problem", "nodes", "usages", 0, 0), 1.5, "nodes.usages\\[0\\].*entry 0 must be an integer, but got 1.5"),
        (("problem", "nodes", "usages", 0, 0), -1, "nodes.usages\\[0\\].*but got -1"),
        (("problem", "edges", "nodes", 0), [0, "b"], "edges.nodes\\[0\\].*list of node numbers"),
        (("problem", "edges", "nodes", 0), [0, 7], "edge 0 must join nodes below 2, but got nodes"),
        (("problem", "edges", "costs", 0), [7], "2 x 1 = 2 costs, but got 1"),
        (("problem", "edges", "costs"), [[7, 8]], "same length, but got 2 and 1"),
        (("problem", "usage_limit"), "6", "usage_limit must be a non-negative integer, but got '6'"),
    ],
)
def test_malformed_documents_say_what_and_where(tmp_path, path, value, message):
    data = document()
    _set(data, path, value)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(data))
    with pytest.raises(SporaxValueError, match=message) as caught:
        read_graph(file)
    assert "bad.json" in str(caught.value)


def test_edges_of_three_nodes_are_not_supported(tmp_path):
    data = document()
    data["problem"]["edges"]["nodes"][0] = [0, 1, 1]
    file = tmp_path / "wide.json"
    file.write_text(json.dumps(data))
    with pytest.raises(SporaxNotImplementedError, match="one or two nodes, but got 3"):
        read_graph(file)


@pytest.mark.parametrize(
    "data",
    [b"{", b"\x1f\x8bnonsense", gzip.compress(b"{}", mtime=0)[:-4], b"\xff\xfe{}x"],
    ids=["half a bracket", "not gzip", "cut gzip", "not text"],
)
def test_broken_files_are_refused(tmp_path, data):
    file = tmp_path / "broken.json.gz"
    file.write_bytes(data)
    with pytest.raises(SporaxValueError, match=r"broken\.json\.gz"):
        read_graph(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SporaxValueError, match="must be readable"):
        read_graph(tmp_path / "none.json")
