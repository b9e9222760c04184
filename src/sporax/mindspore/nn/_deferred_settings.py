"""Attributes that are read or made when they are first read: settings of the process, and what MindSpore's layers have.

A script may set the parallel mode, or call `init`, after it has made a training Cell. What such a Cell kept of the settings
before would be wrong without a word, so it keeps nothing: compiled steps depend on the settings themselves.

Scripts also read settings of a layer and set strategies on its operators, ``net.dense.reshape.shard(…)``; here a layer may be a
single operator. So plain arguments of the constructor are attributes by their names, what MindSpore's layers make of them is in
`_DERIVED`, and operators are those of `layer_operators.txt`, recorded with MindSpore 2.10
(`tools/golden/make_layer_operators.py`). Such an operator takes no part in the layer, and says so when something is set on it,
unless it only moves or reshapes: then it follows its input anyway.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError
from sporax.mindspore.common.dtype import DType, float32
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.communication.management import get_group_size, get_rank
from sporax.mindspore.ops._core.operator import PRIMITIVES, Primitive

MADE_WITH = "_made_with"
_PLAIN = (bool, int, float, str, tuple, list, type(None), DType)
_FOLLOWING = frozenset("Cast Concat DType ExpandDims Reshape Shape Slice Split Squeeze Stack Tile Transpose".split())
_DERIVED: dict[str, Callable[[Any], object]] = {
    "Conv2dBnAct.has_act": lambda layer: layer.activation is not None,
    "DenseBnAct.has_act": lambda layer: layer.activation is not None,
    "DynamicLossScaleUpdateCell.minimum_loss_scale": lambda layer: Tensor(1.0, float32),
    "GLU.dim": lambda layer: layer.axis,
    "Linear.has_bias": lambda layer: layer.bias is not None,
    "MultiheadAttention.head_dim": lambda layer: layer.embed_dim // layer.num_heads,
    "MultiheadAttention.k_is_v": lambda layer: False,
    "MultiheadAttention.q_is_k": lambda layer: False,
    "Rprop.etaminus": lambda layer: layer.etas[0],
    "Rprop.etaplus": lambda layer: layer.etas[1],
    "Rprop.step_size_max": lambda layer: layer.step_sizes[1],
    "Rprop.step_size_min": lambda layer: layer.step_sizes[0],
    "SequentialCell.cell_list": list,
    "SoftmaxCrossEntropyWithLogits.off_value": lambda layer: Tensor(0.0, float32),
    "SoftmaxCrossEntropyWithLogits.on_value": lambda layer: Tensor(1.0, float32),
    "SyncBatchNorm.rank_id": lambda layer: get_rank(),
    "SyncBatchNorm.rank_size": lambda layer: get_group_size(),
    "_Around.name": lambda layer: type(layer).__name__,
    "_TransformerLayer.activation1": lambda layer: argument(layer, "activation"),
    "_TransformerLayer.dropout_num": lambda layer: argument(layer, "dropout"),
    "_TransformerLayer.layernorm_eps": lambda layer: argument(layer, "layer_norm_eps"),
}
"""What MindSpore's layers make of their arguments, by layer and attribute."""


def late_setting(name: str, present: Callable[[], Any], doc: str) -> Any:
    """A property of a Cell with the present setting, until someone sets the attribute.

    Args:
        name: of the attribute.
        present: gives the setting.
        doc: what it is.
    """
    own = f"_own_{name}"

    def read(cell: Any) -> Any:
        return cell.__dict__[own] if own in cell.__dict__ else present()

    def write(cell: Any, value: Any) -> None:
        # By `__setattr__` of Cells, so that compiled steps know of it.
        setattr(cell, own, value)

    return property(read, write, doc=doc)


def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a constructor, as an object of a layer keeps them; `_PLAIN` stands for those that may be large."""
    plain = tuple(value if isinstance(value, _PLAIN) else _PLAIN for value in args)
    return plain, {name: value if isinstance(value, _PLAIN) else _PLAIN for name, value in kwargs.items()}


def find(layer: Any, name: str) -> Any:
    """The attribute of a layer.

    Raises:
        LookupError: MindSpore's layer has none of this name, or it cannot be had here.
    """
    classes = [kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("sporax.")]
    for kind in classes:
        if derived := _DERIVED.get(f"{kind}.{name}"):
            return derived(layer)
        if primitive := _operators().get(kind, {}).get(name):
            made = _made(primitive)
            if primitive not in _FOLLOWING:
                made.attrs = _Unread(f"{classes[0]}.{name}")
            setattr(layer, name, made)
            return made
    return argument(layer, name)


def argument(layer: Any, name: str) -> Any:
    """What a layer was made with under this name; raises LookupError where that is not known."""
    args, kwargs = layer.__dict__[MADE_WITH]
    signature = inspect.signature(type(layer).__init__)
    bound = signature.bind_partial(layer, *args, **kwargs)
    bound.apply_defaults()
    if name not in bound.arguments or not isinstance(value := bound.arguments[name], _PLAIN) or value is _PLAIN:
        raise LookupError(name)
    return value


def _made(primitive: str) -> Primitive:
    """An operator by its name; one without work where there is none here, or its constructor needs what only the layer knows."""
    kind = PRIMITIVES.get(primitive)
    with suppress(SporaxTypeError):
        if isinstance(kind, type):
            return kind()
    return type(primitive, (_WithoutWork,), {})()


class _WithoutWork(Primitive):
    """An operator that is there for its name and its marks."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to compute.

        Raises:
            SporaxNotImplementedError: always.
        """
        raise SporaxNotImplementedError(
            f"For '{self.name}', the operator of a layer must be left to the layer, which computes without it here."
        )


class _Unread(dict[str, Any]):
    """Marks of an operator that takes no part in its layer."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def __setitem__(self, name: str, value: Any) -> None:
        if not self:
            warnings.warn(
                f"For '{self._where}', '{name}' has no effect: the layer computes without this operator.", stacklevel=3
            )
        super().__setitem__(name, value)


@functools.cache
def _operators() -> dict[str, dict[str, str]]:
    """Operators by layer and attribute."""
    lines = (Path(__file__).parent / "layer_operators.txt").read_text().splitlines()
    entries = (line.split() for line in lines if not line.startswith("#"))
    # What Cells of MindSpore before 2.3 have.
    tables = {"Cell": {"cast": "Cast"}}
    return tables | {layer: dict(entry.split("=") for entry in attributes) for layer, *attributes in entries}
