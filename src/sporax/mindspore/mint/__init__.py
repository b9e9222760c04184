"""Functions, layers and optimizers under the names and signatures of `mindspore.mint`, which follow PyTorch's."""

import sporax.mindspore.ops  # casts the operators, which registers their mint forms
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.mint import _functions, linalg, nn, optim, special
from sporax.mindspore.mint.nn import functional
from sporax.mindspore.ops._core.operator import MINT

globals().update({name: function for name, function in MINT.items() if "." not in name})

__all__ = ["functional", "linalg", "nn", "optim", "special", *(name for name in MINT if "." not in name)]

answer_missing_names(__name__)
