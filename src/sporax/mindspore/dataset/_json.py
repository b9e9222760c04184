"""Pipelines as JSON: `serialize`, `deserialize`, `show` and `compare`.

The form is MindSpore's: each step is an object with `op_type`, its arguments, and `children`; a transform is `tensor_op_name`
with `tensor_op_params`, a sampler `sampler_name` with its settings, an enumeration the number that MindSpore's C++ has for it,
an array or a bytes object its data, shape and type. What a transform was made with is taken from its constructor's arguments
(`Recorded`). Functions of the program and sources in its memory leave only their name or place, as in MindSpore: such a pipeline
can be written and compared, not read. Random steps draw the same numbers in the pipeline that is read.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import logging
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore._declared import fields_of
from sporax.mindspore.dataset import _checks as check, audio, config, text, transforms, vision
from sporax.mindspore.dataset._arguments import recorded_arguments
from sporax.mindspore.dataset._callbacks import DSCallback
from sporax.mindspore.dataset._dataset import Dataset, steps
from sporax.mindspore.dataset._described import Described
from sporax.mindspore.dataset._operations import Operation, PythonFunction, Transform
from sporax.mindspore.dataset._sources.tfrecord import Schema
from sporax.mindspore.dataset.samplers import (
    BuiltinSampler,
    DistributedSampler,
    FixedOrder,
    IterSampler,
    PKSampler,
    RandomSampler,
    SequentialSampler,
    Shuffle,
    SubsetRandomSampler,
    SubsetSampler,
    WeightedRandomSampler,
)
from sporax.mindspore.dataset.text import Vocab
from sporax.mindspore.dataset.vision import Border, Inter
from sporax.mindspore.dataset.vision.enums import AutoAugmentPolicy

Document = dict[str, Any]

_NOT_WRITTEN = ("cache", "decrypt", "python_multiprocessing")

PYTHON = "pyfunc"
"""What stands for a function of the program's."""

_ORDERS: dict[type[enum.Enum], tuple[enum.Enum, ...]] = {
    Inter: (Inter.LINEAR, Inter.NEAREST, Inter.CUBIC, Inter.AREA, Inter.PILCUBIC, Inter.ANTIALIAS),
    Border: (Border.CONSTANT, Border.EDGE, Border.REFLECT, Border.SYMMETRIC),
    Shuffle: (Shuffle.FALSE, Shuffle.FILES, Shuffle.GLOBAL, Shuffle.INFILE, Shuffle.ADAPTIVE, Shuffle.PARTIAL),
    AutoAugmentPolicy: (AutoAugmentPolicy.IMAGENET, AutoAugmentPolicy.CIFAR10, AutoAugmentPolicy.SVHN),
}
"""The members by MindSpore's numbers, where these are not the members' own."""

_CPP_NAMES = {"HWC2CHW": "HwcToChw"}
"""Classes whose transforms have another name in MindSpore's JSON."""

_CPP_ARGUMENTS = {"degree": "degrees"}
"""Arguments that have another name in MindSpore's JSON."""

_OPTIONS_OF = {"melkwargs": audio.MelSpectrogram, "speckwargs": audio.Spectrogram}
"""Arguments that hold those of another transform."""

_WITHOUT_MEANING = frozenset({"device_target", "implementation", "random"})
"""What MindSpore writes of its own workings."""


def document(step: Described) -> Document:
    """A pipeline: of each step `op_type`, its arguments, and `children`.

    Raises:
        SporaxTypeError: an argument that JSON has nothing for.
    """
    # A program's own subclass is written as ours.
    name = next(base.__name__ for base in type(step).__mro__ if base.__module__.startswith("sporax."))
    arguments = {
        "callback" if key == "callbacks" else key: PYTHON if _is_function(value) else encoded(value)
        for key, value in step._arguments().items()
        if key not in _NOT_WRITTEN
    }
    if "num_parallel_workers" in arguments:
        arguments["num_parallel_workers"] = step.num_parallel_workers or config.get_num_parallel_workers()
        arguments["connector_queue_size"] = config.get_prefetch_size()
    kind = step._op_type or (name.removesuffix("Dataset") if step._children else name)
    return {"op_type": kind, **arguments, "children": [document(child) for child in step._children]}


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, (type, Operation))


def encoded(value: Any) -> Any:
    """A value as JSON has it.

    Raises:
        SporaxTypeError: JSON has nothing for it.
    """
    for kind, form in _FORMS.items():
        if isinstance(value, kind):
            return form(value)
    dtype = getattr(value, "np_dtype", value)
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, (np.generic, bool, int, float))):
        return np.dtype(dtype).name
    if isinstance(value, Operation) or callable(value):
        return encoded_operation(value)
    raise For("serialize").type_error(f"a value of type {type(value).__name__} cannot be written as JSON: {value!r}")


def _number(member: enum.Enum) -> Any:
    order = _ORDERS.get(type(member))
    return member.value if order is None else order.index(member)


def decoded(value: Any) -> Any:
    """A value from JSON."""
    match value:
        case list():
            return [decoded(item) for item in value]
        case {"tensor_op_name": _}:
            return decoded_operation(value)
        case {"sampler_name": _}:
            return decoded_sampler(value)
        case {"tensor_op": operation, "prob": prob, **rest} if not rest:
            return decoded_operation(operation), prob
        case {"data": data, "shape": _, "type": "bytes"}:
            return bytes(data)
        case {"data": data, "shape": shape, "type": dtype, **rest} if not rest:
            array = np.array(data, dtype).reshape(shape)
            return array if array.ndim else array.item()
        case {"slice": place, **rest} if not rest:
            return Ellipsis if place == "..." else slice(*place)
        case {"vocab": words, **rest} if not rest:
            return Vocab.from_dict(words)
        case {"schema": columns, **rest} if not rest:
            schema = Schema()
            schema.from_json(json.loads(columns))
            return schema
        case dict():
            return {key: decoded(item) for key, item in value.items()}
    return value


def _enumeration(hint: Any) -> type[enum.Enum] | None:
    """The enumeration that an annotation names."""
    kinds = (hint, *typing.get_args(hint))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum)), None)


def decoded_argument(kind: Any, name: str, value: Any) -> Any:
    """An argument `name` of a class from JSON: a member of an enumeration if its annotation has one.

    Raises:
        SporaxRuntimeError: there is no such member.
    """
    if name in _OPTIONS_OF and isinstance(value, dict):
        return {key: decoded_argument(_OPTIONS_OF[name], key, item) for key, item in value.items()}
    members = _enumeration(typing.get_type_hints(kind if fields_of(kind) else kind.__init__).get(name))
    order = _ORDERS.get(members) if members else None
    takes: type = str if members and order is None and issubclass(members, str) else int
    if members is None or not isinstance(value, takes) or isinstance(value, bool):
        return decoded(value)
    try:
        number: Any = value
        return members(number) if order is None else order[number]
    except (ValueError, IndexError):
        raise SporaxRuntimeError(f"For 'deserialize', '{name}' has no member number {value}.") from None


def encoded_operation(operation: Any) -> dict[str, Any]:
    """A transform with its arguments, or the name of a function."""
    function = operation.function if isinstance(operation, PythonFunction) else operation
    if not isinstance(function, Transform):
        name = getattr(function, "__name__", type(function).__name__)
        return {"python_module": getattr(function, "__module__", ""), "tensor_op_name": name}
    name = type(function).__name__
    arguments = recorded_arguments(function)
    if isinstance(policy := arguments.get("policy"), list):
        # Lists of lists of transforms with probabilities.
        arguments["policy"] = [[{"prob": prob, "tensor_op": each} for each, prob in group] for group in policy]
    return {"tensor_op_name": _CPP_NAMES.get(name, name), "tensor_op_params": encoded(arguments) or None}


def decoded_operation(document: Mapping[str, Any]) -> Any:
    """The transform.

    Raises:
        SporaxRuntimeError: it was a function, is not known, or its arguments do not fit.
    """
    python_names = {cpp: python for python, cpp in _CPP_NAMES.items()}
    name = python_names.get(document["tensor_op_name"], document["tensor_op_name"])
    kind = _transform_class(name, document)
    accepted = inspect.signature(kind).parameters
    arguments = {
        (key if key in accepted else _CPP_ARGUMENTS.get(key, key)): _argument(kind, key, value)
        for key, value in (document["tensor_op_params"] or {}).items()
        if key not in _WITHOUT_MEANING or key in accepted
    }
    unknown = next((key for key in arguments if key not in accepted), None)
    For("deserialize").refuse_state(unknown is not None, f"the operation {name!r} has no argument {unknown!r}")
    positional: list[Any] = []
    for key, parameter in accepted.items():
        if parameter.kind is parameter.POSITIONAL_ONLY and key in arguments:
            positional.append(arguments.pop(key))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += arguments.pop(key, ())
    return kind(*positional, **arguments)


def _transform_class(name: str, document: Mapping[str, Any]) -> Any:
    """The class of a transform with this name."""
    module = document.get("python_module", "mindspore.dataset")
    kind = next((getattr(part, name) for part in (vision, transforms, text, audio) if name in part.__all__), None)
    if kind is None or "tensor_op_params" not in document or not module.startswith("mindspore.dataset"):
        raise SporaxRuntimeError(
            f"For 'deserialize', the operation {name!r} of {module!r} is a function or class of the program's, of which JSON "
            "keeps the name alone; build this pipeline with the code that made it."
        )
    return kind


def _argument(kind: Any, name: str, value: Any) -> Any:
    """An argument of a transform; MindSpore writes one size as a list of one, and None as an empty list."""
    if name in ("size", "kernel_size") and isinstance(value, list) and len(value) == 1:
        return value[0]
    if name in ("center", "offset") and value == []:
        return None
    result = decoded_argument(kind, name, value)
    return tuple(result) if isinstance(result, list) and name in _TUPLES else result


_TUPLES = frozenset({"degrees", "translate", "scale", "ratio", "threshold", "fill_value", "center", "bits", "ignore"})
"""Arguments of transforms that are tuples, not lists."""


_SAMPLERS: dict[type[BuiltinSampler], tuple[str, ...]] = {
    SequentialSampler: ("start_index",),
    RandomSampler: ("replacement",),
    DistributedSampler: ("num_shards", "shard_id", "offset", "shuffle"),
    SubsetRandomSampler: ("indices",),
    SubsetSampler: ("indices",),
    WeightedRandomSampler: ("weights", "replacement"),
    PKSampler: ("num_val", "shuffle", "class_column"),
    IterSampler: ("indices",),
    FixedOrder: ("sampler", "shuffle"),
}
"""What is written of a sampler, by its class: its attributes, which are arguments of its constructor."""


def encoded_sampler(sampler: BuiltinSampler) -> dict[str, Any]:
    """A sampler with its settings and those below it.

    Raises:
        SporaxTypeError: a sampler of the program's own.
    """
    kind = next((kind for kind in _SAMPLERS if isinstance(sampler, kind)), None)
    if kind is None or (isinstance(sampler, IterSampler) and not sampler.is_pure()):
        raise SporaxTypeError(
            f"For 'serialize', the sampler {type(sampler).__name__} is the program's own and cannot be written as JSON; pass its "
            "row numbers as a list."
        )
    settings = {name: _of_sampler(sampler, name) for name in _SAMPLERS[kind]}
    if kind is RandomSampler:
        settings["reshuffle_each_epoch"] = True
    document = {"sampler_name": type(sampler).__name__, "num_samples": sampler.num_samples or 0, **settings}
    below = sampler.get_child()
    return document if below is None else document | {"child_sampler": [encoded_sampler(below)]}


def _of_sampler(sampler: BuiltinSampler, name: str) -> Any:
    if isinstance(sampler, IterSampler):
        return [int(index) for index in sampler.sampler]
    value = getattr(sampler, name)
    if isinstance(value, BuiltinSampler):
        return encoded_sampler(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def decoded_sampler(document: Mapping[str, Any]) -> BuiltinSampler:
    """The sampler.

    Raises:
        SporaxRuntimeError: it is not known.
    """
    kinds = {kind.__name__: kind for kind in _SAMPLERS}
    kind = kinds.get(document["sampler_name"])
    if kind is None:
        raise SporaxRuntimeError(
            f"For 'deserialize', the sampler {document['sampler_name']!r} is not known; known are {sorted(kinds)}."
        )
    # MindSpore has another name for it in samplers of datasets.
    settings = {"shuffle": document["shuffle_mode"], **document} if "shuffle_mode" in document else document
    arguments = {name: settings[name] for name in _SAMPLERS[kind] if name in settings}
    if kind is FixedOrder:
        arguments["sampler"] = decoded_sampler(document["sampler"])
    else:
        arguments["num_samples"] = document.get("num_samples") or None
    if kind is DistributedSampler:
        arguments["shuffle"] = bool(arguments.get("shuffle"))
    elif kind is PKSampler:
        arguments.setdefault("num_val", 0)
    elif kind is IterSampler:
        arguments["sampler"] = arguments.pop("indices")
    sampler: BuiltinSampler = kind(**arguments)
    for below in document.get("child_sampler", ()):
        sampler.add_child(decoded_sampler(below))
    return sampler


_FORMS: dict[type, Callable[[Any], Any]] = {
    enum.Enum: _number,
    **dict.fromkeys((NoneType, int, float, str), lambda value: value),
    np.generic: lambda value: value.item(),
    Path: lambda value: str(value),
    bytes: lambda value: {"data": list(value), "shape": [len(value)], "type": "bytes"},
    np.ndarray: lambda value: {
        "data": value.reshape(-1).tolist(),
        "shape": list(value.shape),
        "type": str(value.dtype),
    },
    slice: lambda value: {"slice": [value.start, value.stop, value.step]},
    EllipsisType: lambda value: {"slice": "..."},
    **dict.fromkeys((list, tuple), lambda value: [encoded(item) for item in value]),
    Mapping: lambda value: {str(key): encoded(item) for key, item in value.items()},
    Vocab: lambda value: {"vocab": value.vocab()},
    Schema: lambda value: {"schema": value.to_json()},
    BuiltinSampler: encoded_sampler,
    DSCallback: lambda value: type(value).__name__,
}
"""How values of each type are written; the first that fits counts."""


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
    For("deserialize").refuse_state("op_type" not in document, "every step must have 'op_type'", sorted(document))
    kind = document["op_type"]
    if document.get("num_parallel_workers") == config.get_num_parallel_workers():
        # What the settings say is not requested.
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
