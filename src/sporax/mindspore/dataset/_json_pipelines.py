"""Pipelines as JSON: `serialize`, `deserialize`, `show` and `compare`.

The form is MindSpore's: each step is an object with `op_type`, its settings, and `children`. A source has the arguments of its
constructor; its sampler is an object of its own (`_json_values`). Functions of the program and sources in its memory
leave only their place, as in MindSpore: such a pipeline can be written and compared, not read. Random steps draw the same
numbers in the pipeline that is read.
"""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import _checks, config
from sporax.mindspore.dataset._dataset import Dataset, zip_datasets
from sporax.mindspore.dataset._json_values import (
    PYTHON,
    decoded,
    decoded_operation,
    decoded_sampler,
    encoded,
    encoded_operation,
    encoded_sampler,
)
from sporax.mindspore.dataset._nodes.batches import PaddedCollate, PerBatchMap
from sporax.mindspore.dataset._nodes.node import Source
from sporax.mindspore.dataset._operations import recorded_arguments
from sporax.mindspore.dataset._sources.format import FileDataset
from sporax.mindspore.dataset._sources.memory import GeneratorDataset, NumpySlicesDataset
from sporax.mindspore.dataset._streams import ENDLESS
from sporax.mindspore.dataset._subclasses import ConcatDataset, MappableDataset
from sporax.mindspore.dataset.samplers import Shuffle as FileShuffle

_log = logging.getLogger("sporax.dataset")

Document = dict[str, Any]

_SAMPLING = ("num_samples", "shuffle", "sampler", "num_shards", "shard_id")
_NOT_WRITTEN = ("cache", "decrypt")
_WRITTEN_AS = {"FakeImageNode": "FakeImageDataset"}
"""Sources whose name in MindSpore's JSON is not that of their class."""


def serialize(dataset: Dataset, json_filepath: str = "") -> Document:
    """The pipeline as a dict that JSON can hold.

    Args:
        dataset: the pipeline.
        json_filepath: the file to write it to as well, if not empty.

    Returns:
        One object per step with `op_type`, settings and `children`.

    Raises:
        SporaxTypeError: not a Dataset, or an argument that JSON has nothing for.
        OSError: the file cannot be written.
    """
    if not isinstance(dataset, Dataset):
        raise _checks.type_error("serialize", "dataset", "a Dataset", dataset)
    document = _encoded(dataset)
    if json_filepath:
        Path(_checks.check_str("serialize", "json_filepath", json_filepath)).write_text(json.dumps(document))
    return document


def deserialize(input_dict: Document | None = None, json_filepath: str | None = None) -> Dataset | None:
    """The pipeline that `serialize`, here or in MindSpore, wrote.

    Args:
        input_dict: what it returned.
        json_filepath: the file it wrote; counts if both are given.

    Returns:
        The pipeline; None without an argument.

    Raises:
        SporaxRuntimeError: a step is not known, or was a function of the program's.
        OSError: the file cannot be read.
    """
    document = input_dict
    if json_filepath:
        path = Path(_checks.check_str("deserialize", "json_filepath", json_filepath))
        try:
            document = json.loads(path.read_text())
        except ValueError as error:
            raise SporaxRuntimeError(f"For 'deserialize', {json_filepath!r} is no JSON: {error}") from error
    if not document:
        return None
    _checks.check_instance("deserialize", "input_dict", document, dict)
    return _decoded(document)


def show(dataset: Dataset, indentation: int | None = 2) -> None:
    """Write the pipeline as JSON to the log `sporax.mindspore.dataset`, at the level INFO.

    Args:
        dataset: the pipeline.
        indentation: spaces per level; None for one line.
    """
    _log.info(json.dumps(serialize(dataset), indent=indentation))


def compare(pipeline1: Dataset, pipeline2: Dataset) -> bool:
    """Whether two pipelines are written as the same JSON; functions count by name, arrays in memory not at all."""
    return serialize(pipeline1) == serialize(pipeline2)


# -------------------------------------------------------------------------------------------------------------- to JSON


def _encoded(dataset: Dataset) -> Document:
    writer = next((_WRITERS[base.__name__] for base in type(dataset).__mro__ if base.__name__ in _WRITERS), None)
    if writer is not None:
        document = writer(dataset._node, dataset.children)
    elif dataset.children:
        return _part_of_source(dataset)
    else:
        document = _source(dataset)
    return {**document, "children": [_encoded(child) for child in dataset.children]}


def _workers(workers: int | None) -> Document:
    return {
        "num_parallel_workers": config.get_num_parallel_workers() if workers is None else workers,
        "connector_queue_size": config.get_prefetch_size(),
    }


def _operation(name: str) -> Any:
    """The class or function of the package, which is built on this module; None where it offers no such name."""
    package = importlib.import_module("sporax.mindspore.dataset")
    return getattr(package, name) if name in package.__all__ else None


def _source(dataset: Dataset) -> Document:
    node = dataset._node
    workers = _workers(getattr(node, "workers", None))
    if isinstance(dataset, (GeneratorDataset, NumpySlicesDataset)):
        warnings.warn(
            "For 'serialize', a source in the program's memory leaves only its place, so it cannot be read again."
        )
        return {"op_type": "GeneratorDataset", **workers}
    kind = next(base for base in type(dataset).__mro__ if _operation(base.__name__) is base)
    arguments = recorded_arguments(dataset, kind)
    by_files = isinstance(dataset, FileDataset)
    left_out = {"num_parallel_workers", *_NOT_WRITTEN, *(() if by_files else _SAMPLING)}
    document = {name: encoded("serialize", value) for name, value in arguments.items() if name not in left_out}
    if by_files:
        document |= _sampled_files(arguments)
    elif isinstance(node, Source):
        document["sampler"] = encoded_sampler("serialize", node.sampler)
    return {"op_type": kind.__name__, **document, **workers}


def _sampled_files(arguments: Mapping[str, Any]) -> Document:
    shuffle = arguments["shuffle"]
    if not isinstance(shuffle, FileShuffle):
        shuffle = FileShuffle.FALSE if shuffle is False else FileShuffle.GLOBAL
    return {
        "shuffle": encoded("serialize", shuffle),
        "num_samples": arguments["num_samples"] or 0,
        "num_shards": arguments["num_shards"] or 1,
        "shard_id": arguments["shard_id"] or 0,
    }


def _part_of_source(dataset: Dataset) -> Document:
    """A part of a split: the source with the part's sampler."""
    document = _encoded(dataset.children[0])
    assert isinstance(dataset._node, Source)
    return document | (
        {"sampler": encoded_sampler("serialize", dataset._node.sampler)} if "sampler" in document else {}
    )


def _batch(node: Any, children: Sequence[Dataset]) -> Document:
    mapped = node.collate if isinstance(node.collate, PerBatchMap) else None
    return {
        "op_type": "Batch",
        "batch_size": node.fixed_size or PYTHON,
        "drop_remainder": node.drop_remainder,
        "input_columns": list(mapped.inputs) if mapped else [],
        "output_columns": list(mapped.outputs) if mapped else [],
        **({"per_batch_map": PYTHON} if mapped else {}),
        **_workers(node.workers),
    }


def _pads(pads: Mapping[str, Any] | None) -> Document | None:
    return None if pads is None else {name: encoded("serialize", pad) for name, pad in pads.items()}


def _take(node: Any, children: Sequence[Dataset]) -> Document:
    randomized = node.parent is not children[0]._node
    if not node.skip and not randomized:
        return {"op_type": "Take", "count": _count(node.take)}
    return {"op_type": "Split", "start": node.skip, "count": node.take, "randomize": randomized}


def _count(number: int) -> int:
    return -1 if number == ENDLESS else int(number)


def _rename(node: Any, children: Sequence[Dataset]) -> Document:
    changed = {old: new for old, new in node.names.items() if old != new}
    return {"op_type": "Rename", "input_columns": list(changed), "output_columns": list(changed.values())}


_WRITERS: dict[str, Callable[[Any, Sequence[Dataset]], Document]] = {
    "MapDataset": lambda node, children: {
        "op_type": "Map",
        "operations": [encoded_operation("serialize", operation) for operation in node.operations],
        "input_columns": list(node.inputs),
        "output_columns": list(node.outputs),
        "callback": [type(callback).__name__ for callback in node.callbacks],
        **_workers(node.workers),
    },
    "BatchDataset": _batch,
    "PaddedBatchDataset": lambda node, children: {
        **_batch(node, children),
        "pad_info": _pads(node.collate.pads if isinstance(node.collate, PaddedCollate) else None),
    },
    "BucketBatchByLengthDataset": lambda node, children: {
        "op_type": "BucketBatchByLength",
        "column_names": list(node.rewrite.columns),
        "bucket_boundaries": list(node.rewrite.boundaries),
        "bucket_batch_sizes": list(node.rewrite.sizes),
        "element_length_function": None if node.rewrite.length_of is None else PYTHON,
        "pad_info": _pads(node.rewrite.pads),
        "pad_to_bucket_boundary": node.rewrite.to_boundary,
        "drop_remainder": node.rewrite.drop_remainder,
        **_workers(None),
    },
    "FilterDataset": lambda node, children: {
        "op_type": "Filter",
        "predicate": PYTHON,
        "input_columns": list(node.inputs),
        "num_parallel_workers": _workers(node.workers)["num_parallel_workers"],
    },
    "ShuffleDataset": lambda node, children: {
        "op_type": "Shuffle",
        "buffer_size": node.buffer_size,
        "reset_each_epoch": True,
    },
    "RepeatDataset": lambda node, children: {"op_type": "Repeat", "count": _count(node.count)},
    "SkipDataset": lambda node, children: {"op_type": "Skip", "count": _count(node.skip)},
    "TakeDataset": _take,
    "RenameDataset": _rename,
    "ProjectDataset": lambda node, children: {"op_type": "Project", "columns": list(node.columns)},
    "ZipDataset": lambda node, children: {"op_type": "Zip", **_workers(None)},
    "ConcatDataset": lambda node, children: {
        "op_type": "Concat",
        "sampler": None if node.sampler is None else encoded_sampler("serialize", node.sampler),
    },
    "SyncWaitDataset": lambda node, children: {
        "op_type": "SyncWait",
        "condition_name": node.gate.name,
        "num_batch": node.gate.num_batch,
        "callback": None if node.gate.callback is None else PYTHON,
    },
}
"""What is written of the steps, by the class of the Dataset: a function of its node and of the Datasets below."""


# ------------------------------------------------------------------------------------------------------------ from JSON


def _decoded(document: Document) -> Dataset:
    if "op_type" not in document:
        raise SporaxRuntimeError(f"For 'deserialize', every step must have 'op_type', but got {sorted(document)}.")
    kind = document["op_type"]
    for name in ("predicate", "per_batch_map", "batch_size", "element_length_function", "callback"):
        if document.get(name) not in (None, []) and (document[name] == PYTHON or name == "callback"):
            raise SporaxRuntimeError(
                f"For 'deserialize', {name!r} of {kind!r} is a function or object of the program's, of which JSON keeps only "
                "the place; build this pipeline with the code that made it."
            )
    children = [_decoded(child) for child in document.get("children", ())]
    if kind in _READERS:
        return _READERS[kind](document, children)
    return _decoded_source(kind, document)


def _asked(document: Document) -> int | None:
    """The number of workers, None where it is what the settings say."""
    workers = document.get("num_parallel_workers")
    return None if workers == config.get_num_parallel_workers() else workers


def _decoded_source(name: str, document: Document) -> Dataset:
    name = _WRITTEN_AS.get(name, name)
    kind = _operation(name)
    if name == "GeneratorDataset" or not (isinstance(kind, type) and issubclass(kind, Dataset)):
        reason = "reads an object in the program's memory, which JSON does not hold" if kind else "is not known"
        raise SporaxRuntimeError(f"For 'deserialize', the step {name!r} {reason}.")
    left_out = {"op_type", "children", "num_parallel_workers", "connector_queue_size", "sampler"}
    arguments = {
        key: decoded("deserialize", key, value)
        for key, value in document.items()
        if key not in left_out and not (key == "class_indexing" and not value)
    }
    if issubclass(kind, FileDataset) and arguments.get("num_shards") == 1:
        del arguments["num_shards"], arguments["shard_id"]
    if _asked(document) is not None:
        arguments["num_parallel_workers"] = document["num_parallel_workers"]
    dataset = kind(**arguments)
    if isinstance(document.get("sampler"), dict):
        assert isinstance(dataset, MappableDataset)
        assert isinstance(dataset._node, Source)
        dataset._node = dataset._node.with_sampler(decoded_sampler("deserialize", document["sampler"]))
    return dataset


def _read_map(document: Document, children: list[Dataset]) -> Dataset:
    operations = [decoded_operation("deserialize", operation) for operation in document["operations"]]
    outputs = document.get("output_columns") or None
    return children[0].map(operations, document["input_columns"] or None, outputs, _asked(document))


def _read_batch(document: Document, children: list[Dataset]) -> Dataset:
    size, drop, workers = document["batch_size"], document["drop_remainder"], _asked(document)
    if "pad_info" in document:
        return children[0].padded_batch(size, drop, workers, _read_pads(document["pad_info"]))
    return children[0].batch(size, drop, workers)


def _read_pads(pads: Any) -> Any:
    return None if pads is None else {name: tuple(decoded("deserialize", name, pad)) for name, pad in pads.items()}


def _read_bucket_batch(document: Document, children: list[Dataset]) -> Dataset:
    if "column_names" not in document:
        raise SporaxRuntimeError("For 'deserialize', MindSpore writes nothing of 'BucketBatchByLength' but its name.")
    return children[0].bucket_batch_by_length(
        document["column_names"],
        document["bucket_boundaries"],
        document["bucket_batch_sizes"],
        None,
        _read_pads(document["pad_info"]),
        document["pad_to_bucket_boundary"],
        document["drop_remainder"],
    )


def _read_concat(document: Document, children: list[Dataset]) -> Dataset:
    result = children[0].concat(children[1:])
    sampler = document.get("sampler")
    # MindSpore writes a sequential sampler where none was set.
    if sampler is not None and sampler["sampler_name"] != "SequentialSampler":
        if not isinstance(result, ConcatDataset):
            raise SporaxTypeError("For 'deserialize', a sampler of 'Concat' needs at least two children.")
        chosen: Any = decoded_sampler("deserialize", sampler)
        result.use_sampler(chosen)
    return result


_READERS: dict[str, Callable[[Document, list[Dataset]], Dataset]] = {
    "Map": _read_map,
    "Batch": _read_batch,
    "BucketBatchByLength": _read_bucket_batch,
    "Shuffle": lambda document, children: children[0].shuffle(document["buffer_size"]),
    "Repeat": lambda document, children: children[0].repeat(document["count"]),
    "Skip": lambda document, children: children[0].skip(document["count"]),
    "Take": lambda document, children: children[0].take(document["count"]),
    "Split": lambda document, children: children[0]._part(document["start"], document["count"], document["randomize"]),
    "Rename": lambda document, children: children[0].rename(document["input_columns"], document["output_columns"]),
    "Project": lambda document, children: children[0].project(document["columns"]),
    "Zip": lambda document, children: zip_datasets(tuple(children)),
    "Concat": _read_concat,
    "SyncWait": lambda document, children: children[0].sync_wait(document["condition_name"], document["num_batch"]),
}
