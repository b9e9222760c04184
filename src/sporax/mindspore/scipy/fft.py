"""Orthonormal cosine transforms of type 2 and their inverses, along one dim or several: `mindspore.scipy.fft`.

Other types and scalings are refused, as in MindSpore. Integers and float16 are computed in float32.
"""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.ops._generated import GENERATED

__all__ = ["dct", "dctn", "idct", "idctn"]

answer_missing_names(__name__)

dct, idct, dctn, idctn = (GENERATED[name].operator for name in ("DCT", "IDCT", "DCTN", "IDCTN"))
