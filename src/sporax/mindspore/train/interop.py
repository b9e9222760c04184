"""Weights from elsewhere: torch state dicts, in safetensors files, into a network written with MindSpore's names.

Layers agree on the layout of their weights (Dense and Conv as in torch) and differ in names: torch says
``bn.running_mean`` where MindSpore says ``bn.moving_mean``. `torch_names` works the differences out from the Cells
themselves; what is structured or named otherwise in the torch model is said by a map of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sporax.base.errors import For
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.normalization import BatchNorm3d
from sporax.mindspore.train.serialization import load_checkpoint, load_param_into_net

__all__ = ["load_torch_weights", "torch_names"]
answer_missing_names(__name__)

_NORMALIZATION = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
# torch counts batches; of MindSpore's layers only those of `mint` do so.
_UNUSED_SUFFIX = ".num_batches_tracked"

NameMap = Mapping[str, str] | Callable[[str], str | None]


def torch_names(net: Cell) -> dict[str, str]:
    """Names of the Parameters of `net` by the names they have in a torch model of the same structure.

    Args:
        net: its Cells are at the same paths as the torch model's modules.

    Example:
        >>> torch_names(SequentialCell(Conv2d(1, 2, 3), BatchNorm2d(2)))["1.running_mean"]
        '1.moving_mean'
    """
    names: dict[str, str] = {}
    wrapped: dict[Cell, str] = {}  # what holds the Parameters of another layer, by that one's path
    for path, cell in net.cells_and_names():
        # BatchNorm3d holds a BatchNorm2d, which is one layer in torch.
        if isinstance(cell, BatchNorm3d):
            wrapped[cell.bn2d] = path
        path = wrapped.get(cell, path)
        for attribute, parameter in cell.parameters_and_names(expand=False):
            torch_attribute = "weight" if attribute == "embedding_table" else attribute
            # The names belong to normalization only: another layer may call something "beta".
            if "gamma" in cell._params:
                torch_attribute = _NORMALIZATION.get(attribute, attribute)
            names[f"{path}.{torch_attribute}" if path else torch_attribute] = parameter.name
    return names


def load_torch_weights(
    net: Cell, file_name: str, name_map: NameMap | None = None, strict: bool = True
) -> tuple[list[str], list[str]]:
    """Load a torch state dict (``safetensors.torch.save_file(model.state_dict(), …)``) into a network.

    Args:
        net: the network.
        file_name: the safetensors file.
        name_map: torch name -> Parameter's name, as a dict or a function; entries it lacks (or gives None for) are left
            out. None works the names out, see `torch_names`.
        strict: every Parameter of `net` must be loaded and every entry of the file used.

    Returns:
        Names in `net` that were not loaded, and torch names that were not used.

    Raises:
        SporaxTypeError: `name_map` is neither a dict nor a function.
        SporaxRuntimeError: a shape or dtype differs, or names are left over and `strict` is set; nothing was loaded.
        SporaxValueError: the file does not exist or is broken.
    """
    For("load_torch_weights").boolean("strict", strict)
    rename = _renaming(torch_names(net) if name_map is None else name_map)
    names = {parameter.name for parameter in net.get_parameters()}
    values = {
        name: value
        for name, value in load_checkpoint(file_name, format="safetensors").items()
        # Counters that the network does not have are no sign of a mistake.
        if not name.endswith(_UNUSED_SUFFIX) or rename(name) in names
    }
    renamed: dict[str, Parameter] = {}
    unused = []
    for name, value in values.items():
        target = rename(name)
        if target in names:
            renamed[str(target)] = value
        else:
            unused.append(name)
    missing = sorted(names - renamed.keys())
    # Nothing is loaded before all names are known to fit.
    if strict and (missing or unused):
        raise For("load_torch_weights").state_error(
            f"the names in '{file_name}' must fit the network, but the network's {missing} are not there and the "
            f"file's {sorted(unused)} are not in the network. Give a 'name_map', or strict=False. Nothing was loaded"
        )
    not_loaded, _ = load_param_into_net(net, renamed, strict_load=False)
    return not_loaded, unused


def _renaming(name_map: Any) -> Callable[[str], str | None]:
    if isinstance(name_map, Mapping):
        return lambda name: name_map.get(name)
    if callable(name_map):
        return name_map
    raise For("load_torch_weights").type_error("'name_map' must be a dict or a function", type(name_map).__name__)
