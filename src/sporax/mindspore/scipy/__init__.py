"""Linear algebra and cosine transforms with SciPy's names on Tensors: `mindspore.scipy`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.scipy import fft, linalg

__all__ = ["fft", "linalg"]

answer_missing_names(__name__)
