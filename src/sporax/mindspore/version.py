"""`mindspore.version`: the version of MindSpore that scripts read; Sporax's own is `sporax.__version__`."""

import os

from sporax.mindspore._names.alias import mindspore_version

__all__ = ["__version__"]

__version__ = mindspore_version(os.environ)
