"""What tests of the Kubernetes operator share; the helpers are in `support_k8s`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
