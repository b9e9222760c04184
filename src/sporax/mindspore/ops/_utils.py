"""`mindspore.ops._utils`: shapes that operators of users' own calculate with."""

from __future__ import annotations

from sporax.base.errors import SporaxValueError
from sporax.mindspore._names.missing import missing_names

__getattr__ = missing_names(__name__)


def get_broadcast_shape(
    x_shape: list[int], y_shape: list[int], prim_name: str, arg_name1: str = "x", arg_name2: str = "y"
) -> list[int]:
    """The shape that two shapes broadcast to.

    Args:
        x_shape, y_shape: shapes; all sizes are known.
        prim_name, arg_name1, arg_name2: names for the message.

    Raises:
        SporaxValueError: they do not.
    """
    length = max(len(x_shape), len(y_shape))
    # Aligned from the last dim, with ones in front.
    one, other = ([1] * (length - len(shape)) + list(shape) for shape in (x_shape, y_shape))
    for place, sizes in enumerate(zip(one, other, strict=True)):
        if 1 not in sizes and sizes[0] != sizes[1]:
            raise SporaxValueError(
                # Counted from the end, as the shapes may have different lengths.
                f"For '{prim_name}', {arg_name1}.shape and {arg_name2}.shape need to broadcast, but dim {place - length} "
                f"is {sizes[0]} and {sizes[1]}: {arg_name1}.shape = {x_shape} and {arg_name2}.shape = {y_shape}."
            )
    return [left if right == 1 else right for left, right in zip(one, other, strict=True)]
