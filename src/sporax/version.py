"""`mindspore.version`: the release of MindSpore whose names and values are offered here; Sporax's own is `sporax.__version__`."""

import os
from typing import Any

from sporax.launch.alias import mindspore_version


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return mindspore_version(os.environ)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
