"""What tests of the Kubernetes operator share; the helpers are in `support_k8s`."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A real control plane with an operator and a kubelet; started once.

    With SPORAX_DISTURBED=SEED a proxy between the two loses calls and holds watches back during all tests.
    """
    from support_k8s.site import Site

    seed = os.environ.get("SPORAX_DISTURBED")
    site = Site(tmp_path_factory.mktemp("site"), int(seed) if seed else None)
    yield site
    site.stop()
