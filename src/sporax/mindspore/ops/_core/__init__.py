"""How an operator is made: kernel, primitive class, Tensor method, argument checks, promotion, marks."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = {name: f"{__name__}.{name}" for name in ("check", "extremes", "placed_calls")}
_HOMES |= {"promote": f"{__name__}.promotion"}
_HOMES |= homes_in(
    __name__,
    """
    operator: Array FUNCTIONS MINT Operand Operator PRIMITIVES Primitive export operator other_form
    check: ImageFormat known pair per_dim
    parameters: refusing renamed taking with_parameters with_signature
    dims: Along FOLLOWS LAST Product Stated channels labels position_by_position
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
