"""`mindspore.train.summary.enums`: words that `SummaryRecord` takes."""

from __future__ import annotations

from enum import Enum

from sporax.mindspore._names.missing import missing_names

__getattr__ = missing_names(__name__)


class BaseEnum(Enum):
    """Words that can be listed."""

    @classmethod
    def to_list(cls) -> list[str]:
        """All of them."""
        return [member.value for member in cls]


class PluginEnum(BaseEnum):
    """Kinds of values: the first argument of `SummaryRecord.add_value`."""

    GRAPH = "graph"
    SCALAR = "scalar"
    IMAGE = "image"
    TENSOR = "tensor"
    HISTOGRAM = "histogram"
    TRAIN_LINEAGE = "train_lineage"
    EVAL_LINEAGE = "eval_lineage"
    CUSTOM_LINEAGE_DATA = "custom_lineage_data"
    DATASET_GRAPH = "dataset_graph"
    EXPLAINER = "explainer"
    LANDSCAPE = "landscape"


class ModeEnum(BaseEnum):
    """What a program does: the argument of `SummaryRecord.set_mode`."""

    TRAIN = "train"
    EVAL = "eval"
