"""Pipelines as JSON: `serialize`, `deserialize`, `show` and `compare`.

The form is MindSpore's: each step is an object with `op_type`, its arguments, and `children`; `_json_values` writes it.
Functions of the program and sources in its memory leave only their place, as in MindSpore: such a pipeline can be written and
compared, not read. Random steps draw the same numbers in the pipeline that is read.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._dataset import Dataset, steps
from sporax.mindspore.dataset._json_values import PYTHON, Document, decoded, decoded_argument, decoded_sampler

_log = logging.getLogger("sporax.dataset")

_WRITTEN_AS = {"FakeImageNode": "FakeImageDataset"}
"""Sources whose name in MindSpore's JSON is not that of their class."""

_FUNCTIONS = ("predicate", "per_batch_map", "batch_size", "element_length_function", "callback")


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
        raise check.type_error("serialize", "dataset", "a Dataset", dataset)
    return dataset.to_json(json_filepath)


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
        path = Path(check.text("deserialize", "json_filepath", json_filepath))
        try:
            document = json.loads(path.read_text())
        except ValueError as error:
            raise SporaxRuntimeError(f"For 'deserialize', {json_filepath!r} is no JSON: {error}") from error
    if not document:
        return None
    check.instance("deserialize", "input_dict", document, dict)
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


def _decoded(document: Document) -> Dataset:
    if "op_type" not in document:
        raise SporaxRuntimeError(f"For 'deserialize', every step must have 'op_type', but got {sorted(document)}.")
    kind = document["op_type"]
    if document.get("num_parallel_workers") == config.get_num_parallel_workers():
        # What the settings say is not asked for.
        document = {name: value for name, value in document.items() if name != "num_parallel_workers"}
    for name in _FUNCTIONS:
        if document.get(name) not in (None, []) and (document[name] == PYTHON or name == "callback"):
            raise SporaxRuntimeError(
                f"For 'deserialize', {name!r} of {kind!r} is a function or object of the program's, of which JSON keeps only "
                "the place; build this pipeline with the code that made it."
            )
    children = [_decoded(child) for child in document.get("children", ())]
    step = steps.get(f"{'Padded' * (kind == 'Batch' and 'pad_info' in document)}{kind}Dataset")
    return _decoded_source(kind, document) if step is None else _decoded_step(step, document, children)


def _decoded_step(step: Callable[..., Dataset], document: Document, children: list[Dataset]) -> Dataset:
    names = inspect.signature(step).parameters
    arguments = {name: decoded(document[name]) for name in names if name in document}
    pads = arguments.get("pad_info")
    if pads:
        arguments["pad_info"] = {name: tuple(pad) for name, pad in pads.items()}
    # No columns stand for those that the step takes by default.
    arguments = {name: None if value == [] else value for name, value in arguments.items()}
    made: Any = step(tuple(children) if "datasets" in names else children[0], **arguments)
    sampler = document.get("sampler")
    # MindSpore writes a sequential sampler where none was set.
    if sampler is not None and sampler["sampler_name"] != "SequentialSampler":
        made.use_sampler(decoded_sampler(sampler))
    return made


def _decoded_source(name: str, document: Document) -> Dataset:
    name = _WRITTEN_AS.get(name, name)
    # The package, which is built on this module, knows all sources.
    package = importlib.import_module("sporax.mindspore.dataset")
    kind = getattr(package, name) if name in package.__all__ else None
    if name == "GeneratorDataset" or not (isinstance(kind, type) and issubclass(kind, Dataset)):
        reason = "reads an object in the program's memory, which JSON does not hold" if kind else "is not known"
        raise SporaxRuntimeError(f"For 'deserialize', the step {name!r} {reason}.")
    left_out = {"op_type", "children", "connector_queue_size", "sampler"}
    arguments = {
        key: decoded_argument(kind, key, value)
        for key, value in document.items()
        if key not in left_out and not (key == "class_indexing" and not value)
    }
    if arguments.get("num_shards") == 1:
        del arguments["num_shards"], arguments["shard_id"]
    made: Any = kind
    dataset: Dataset = made(**arguments)
    if isinstance(document.get("sampler"), dict):
        dataset._sample_by(decoded_sampler(document["sampler"]))
    return dataset
