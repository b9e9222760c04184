"""Special functions under the names of `mindspore.mint.special`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.ops._core.operator import MINT

_METHODS = {name: name for name in ("erfc", "exp2", "expm1", "log1p", "round", "sinc")}
_METHODS["log_softmax"] = "nn.functional.log_softmax"

globals().update({name: MINT[place] for name, place in _METHODS.items()})

__all__ = sorted(_METHODS)

answer_missing_names(__name__)
