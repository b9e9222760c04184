"""What tests of the Kubernetes operator share; the helpers are in `support_k8s`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A real control plane with an operator and a kubelet; started once."""
    from support_k8s.site import Site

    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.stop()
