"""Every spec of docs/kubernetes_invalid_specs.md is refused on a real control plane, by the layer and with the words that stand there.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

from support_k8s.control_plane import on_control_plane
from support_k8s.invalid import PAGE, rows_of, send, specs

pytestmark = on_control_plane()

MOST_SECONDS = 10.0  # on a busy machine


def test_each_spec_that_cannot_run_is_refused_as_the_page_says(site):
    """On a new server the words are compared where another layer says them than on an old one."""
    stated = {row.what: row for row in rows_of(PAGE.read_text(), site.plane.has_rules)}
    for number, (what, body) in enumerate(specs(site)):
        row = send(site, number, what, body)
        assert row.layer == stated[what].layer, what
        assert row.words == (stated[what].words or row.words), what
        assert row.seconds < MOST_SECONDS, what
