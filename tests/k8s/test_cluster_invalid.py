"""Every spec of docs/kubernetes_invalid_specs.md is refused on a real control plane, by the layer and with the words that stand there.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

from support_k8s.control_plane import on_control_plane
from support_k8s.invalid import PAGE, SPECS, rows_of, send

pytestmark = on_control_plane()

MOST_SECONDS = 10.0  # on a busy machine


def test_each_spec_that_cannot_run_is_refused_as_the_page_says(site):
    stated = {row.what: row for row in rows_of(PAGE.read_text())}
    for number, (what, body) in enumerate(SPECS):
        row = send(site, number, what, body)
        assert (row.layer, row.words) == (stated[what].layer, stated[what].words), what
        assert row.seconds < MOST_SECONDS, what
