"""Arguments, transforms and samplers as JSON, and back: the leaves of serialized pipelines.

The form is MindSpore's: a transform is `tensor_op_name` with `tensor_op_params`, a sampler `sampler_name` with its settings,
an enumeration the number that MindSpore's C++ has for it, an array or a bytes object its data, shape and type. What a
transform was made with is taken from its constructor's arguments (`Recorded`). Functions leave only their name, so they can
be written and not read.
"""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import audio, text, transforms, vision
from sporax.mindspore.dataset._operations import Operation, PythonFunction, Transform, recorded_arguments
from sporax.mindspore.dataset._sources.schema import Schema
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
from sporax.mindspore.dataset.text import NormalizeForm, Vocab
from sporax.mindspore.dataset.vision import Border, Inter
from sporax.mindspore.dataset.vision.enums import AutoAugmentPolicy, ConvertMode, ImageBatchFormat, SliceMode

PYTHON = "pyfunc"
"""What stands for a function of the program's."""

_ORDERS: dict[type[enum.Enum], tuple[enum.Enum, ...]] = {
    Inter: (Inter.LINEAR, Inter.NEAREST, Inter.CUBIC, Inter.AREA, Inter.PILCUBIC, Inter.ANTIALIAS),
    Border: (Border.CONSTANT, Border.EDGE, Border.REFLECT, Border.SYMMETRIC),
    Shuffle: (Shuffle.FALSE, Shuffle.FILES, Shuffle.GLOBAL, Shuffle.INFILE, Shuffle.ADAPTIVE, Shuffle.PARTIAL),
    AutoAugmentPolicy: (AutoAugmentPolicy.IMAGENET, AutoAugmentPolicy.CIFAR10, AutoAugmentPolicy.SVHN),
}
"""The members by MindSpore's numbers, where these are not the members' own."""

_ENUMS: dict[str, type[enum.Enum]] = {
    "interpolation": Inter,
    "resample": Inter,
    "padding_mode": Border,
    "slice_mode": SliceMode,
    "convert_mode": ConvertMode,
    "image_batch_format": ImageBatchFormat,
    "policy": AutoAugmentPolicy,
    "normalize_form": NormalizeForm,
    "normalization_form": NormalizeForm,
    "operator": transforms.Relational,
    "shuffle": Shuffle,
    "stype": audio.ScaleType,
    "gain_type": audio.GainType,
    "resample_method": audio.ResampleMethod,
    "fade_shape": audio.FadeShape,
    "density_function": audio.DensityFunction,
    "modulation": audio.Modulation,
    "window": audio.WindowType,
    "window_type": audio.WindowType,
    "norm": audio.NormType,
    "mel_type": audio.MelType,
    "mel_scale": audio.MelType,
    "pad_mode": audio.BorderType,
}
"""Arguments that are enumerations."""

_OWN_ENUMS: dict[type, dict[str, Callable[[Any], enum.Enum]]] = {
    audio.MFCC: {"norm": audio.NormMode},
    audio.LFCC: {"norm": audio.NormMode},
    audio.Flanger: {"interpolation": audio.Interpolation},
}
"""Those of one class, by names that elsewhere are of another enumeration."""

_CPP_NAMES = {"HWC2CHW": "HwcToChw"}
"""Classes whose transforms have another name in MindSpore's JSON."""

_CPP_ARGUMENTS = {"degree": "degrees"}
"""Arguments that have another name in MindSpore's JSON."""

_WITHOUT_MEANING = frozenset({"device_target", "implementation", "random"})
"""What MindSpore writes of its own workings."""


def encoded(where: str, value: Any) -> Any:
    """A value as JSON has it.

    Raises:
        SporaxTypeError: JSON has nothing for it.
    """
    for kind, form in _FORMS.items():
        if isinstance(value, kind):
            return form(where, value)
    dtype = getattr(value, "np_dtype", value)
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, (np.generic, bool, int, float))):
        return np.dtype(dtype).name
    if isinstance(value, Operation) or callable(value):
        return encoded_operation(where, value)
    raise SporaxTypeError(
        f"For '{where}', a value of type {type(value).__name__} cannot be written as JSON: {value!r}."
    )


def _number(where: str, member: enum.Enum) -> Any:
    order = _ORDERS.get(type(member))
    return member.value if order is None else order.index(member)


def _array_form(where: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"data": array.reshape(-1).tolist(), "shape": list(array.shape), "type": str(array.dtype)}


def decoded(where: str, name: str, value: Any) -> Any:
    """The value of an argument `name` from JSON; those within a dict have its keys as names."""
    if isinstance(value, list):
        return [decoded(where, name, item) for item in value]
    if isinstance(value, dict):
        return _decoded_object(where, name, value)
    kind = _ENUMS.get(name)
    order = None if kind is None else _ORDERS.get(kind)
    takes: type = str if order is None and kind is not None and issubclass(kind, str) else int
    if kind is None or not isinstance(value, takes) or isinstance(value, (bool, enum.Enum)):
        return value
    try:
        number: Any = value
        return kind(number) if order is None else order[number]
    except (ValueError, IndexError):
        raise SporaxRuntimeError(f"For '{where}', '{name}' has no member number {value}.") from None


def _decoded_object(where: str, name: str, value: dict[str, Any]) -> Any:
    keys = set(value)
    if "tensor_op_name" in keys:
        return decoded_operation(where, value)
    if "sampler_name" in keys:
        return decoded_sampler(where, value)
    if keys == {"data", "shape", "type"}:
        if value["type"] == "bytes":
            return bytes(value["data"])
        array = np.array(value["data"], value["type"]).reshape(value["shape"])
        return array if array.ndim else array.item()
    if keys == {"slice"}:
        return Ellipsis if value["slice"] == "..." else slice(*value["slice"])
    if keys == {"vocab"}:
        return Vocab.from_dict(value["vocab"])
    if keys == {"schema"}:
        return _schema(value["schema"])
    if keys == {"tensor_op", "prob"}:
        return decoded_operation(where, value["tensor_op"]), value["prob"]
    return {key: decoded(where, key, item) for key, item in value.items()}


def _schema(document: str) -> Schema:
    schema = Schema()
    schema.from_json(json.loads(document))
    return schema


# ----------------------------------------------------------------------------------------------------------- operations


def encoded_operation(where: str, operation: Any) -> dict[str, Any]:
    """A transform with its arguments, or the name of a function."""
    function = operation.function if isinstance(operation, PythonFunction) else operation
    if not isinstance(function, Transform):
        name = getattr(function, "__name__", type(function).__name__)
        return {"python_module": getattr(function, "__module__", ""), "tensor_op_name": name}
    name = type(function).__name__
    arguments = {key: _of_transform(where, key, value) for key, value in recorded_arguments(function).items()}
    return {"tensor_op_name": _CPP_NAMES.get(name, name), "tensor_op_params": arguments or None}


def _of_transform(where: str, name: str, value: Any) -> Any:
    """An argument of a transform; policies are lists of lists of transforms with probabilities."""
    if name == "policy" and isinstance(value, list):
        pairs = [[(operation, prob) for operation, prob in group] for group in value]
        return [
            [{"prob": prob, "tensor_op": encoded_operation(where, operation)} for operation, prob in group]
            for group in pairs
        ]
    return encoded(where, value)


def decoded_operation(where: str, document: Mapping[str, Any]) -> Any:
    """The transform.

    Raises:
        SporaxRuntimeError: it was a function, is not known, or its arguments do not fit.
    """
    python_names = {cpp: python for python, cpp in _CPP_NAMES.items()}
    name = python_names.get(document["tensor_op_name"], document["tensor_op_name"])
    kind = _transform_class(where, name, document)
    accepted = inspect.signature(kind).parameters
    if kind in _OWN_ENUMS:
        document = _with_own(kind, document)
    arguments = {
        (key if key in accepted else _CPP_ARGUMENTS.get(key, key)): _argument(where, key, value)
        for key, value in (document["tensor_op_params"] or {}).items()
        if key not in _WITHOUT_MEANING or key in accepted
    }
    unknown = next((key for key in arguments if key not in accepted), None)
    if unknown is not None:
        raise SporaxRuntimeError(f"For '{where}', the operation {name!r} has no argument {unknown!r}.")
    positional: list[Any] = []
    for key, parameter in accepted.items():
        if parameter.kind is parameter.POSITIONAL_ONLY and key in arguments:
            positional.append(arguments.pop(key))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += arguments.pop(key, ())
    return kind(*positional, **arguments)


def _transform_class(where: str, name: str, document: Mapping[str, Any]) -> Any:
    """The class of a transform with this name."""
    module = document.get("python_module", "mindspore.dataset")
    kind = next((getattr(part, name) for part in (vision, transforms, text, audio) if name in part.__all__), None)
    if kind is None or "tensor_op_params" not in document or not module.startswith("mindspore.dataset"):
        raise SporaxRuntimeError(
            f"For '{where}', the operation {name!r} of {module!r} is a function or class of the program's, of which JSON "
            "keeps the name alone; build this pipeline with the code that made it."
        )
    return kind


def _with_own(kind: type, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the members of enumerations that only this class has by these names."""
    parameters: dict[str, Any] = document["tensor_op_params"]
    own = {name: member(parameters[name]) for name, member in _OWN_ENUMS.get(kind, {}).items()}
    return {**document, "tensor_op_params": parameters | own}


def _argument(where: str, name: str, value: Any) -> Any:
    """An argument of a transform; MindSpore writes one size as a list of one, and None as an empty list."""
    if name in ("size", "kernel_size") and isinstance(value, list) and len(value) == 1:
        return value[0]
    if name in ("center", "offset") and value == []:
        return None
    result = decoded(where, name, value)
    return tuple(result) if isinstance(result, list) and name in _TUPLES else result


_TUPLES = frozenset({"degrees", "translate", "scale", "ratio", "threshold", "fill_value", "center", "bits", "ignore"})
"""Arguments of transforms that are tuples, not lists."""


# ------------------------------------------------------------------------------------------------------------- samplers


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


def encoded_sampler(where: str, sampler: BuiltinSampler) -> dict[str, Any]:
    """A sampler with its settings and those below it.

    Raises:
        SporaxTypeError: a sampler of the program's own.
    """
    kind = next((kind for kind in _SAMPLERS if isinstance(sampler, kind)), None)
    if kind is None or (isinstance(sampler, IterSampler) and not sampler.is_pure()):
        raise SporaxTypeError(
            f"For '{where}', the sampler {type(sampler).__name__} is the program's own and cannot be written as JSON; pass its "
            "row numbers as a list."
        )
    settings = {name: _of_sampler(where, sampler, name) for name in _SAMPLERS[kind]}
    if kind is RandomSampler:
        settings["reshuffle_each_epoch"] = True
    document = {"sampler_name": type(sampler).__name__, "num_samples": sampler.num_samples or 0, **settings}
    below = sampler.get_child()
    return document if below is None else document | {"child_sampler": [encoded_sampler(where, below)]}


def _of_sampler(where: str, sampler: BuiltinSampler, name: str) -> Any:
    if isinstance(sampler, IterSampler):
        return [int(index) for index in sampler.sampler]
    value = getattr(sampler, name)
    if isinstance(value, BuiltinSampler):
        return encoded_sampler(where, value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def decoded_sampler(where: str, document: Mapping[str, Any]) -> BuiltinSampler:
    """The sampler.

    Raises:
        SporaxRuntimeError: it is not known.
    """
    kinds = {kind.__name__: kind for kind in _SAMPLERS}
    kind = kinds.get(document["sampler_name"])
    if kind is None:
        raise SporaxRuntimeError(
            f"For '{where}', the sampler {document['sampler_name']!r} is not known; known are {sorted(kinds)}."
        )
    # MindSpore has another name for it in samplers of datasets.
    settings = {"shuffle": document["shuffle_mode"], **document} if "shuffle_mode" in document else document
    arguments = {name: settings[name] for name in _SAMPLERS[kind] if name in settings}
    if kind is FixedOrder:
        arguments["sampler"] = decoded_sampler(where, document["sampler"])
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
        sampler.add_child(decoded_sampler(where, below))
    return sampler


_FORMS: dict[type, Callable[[str, Any], Any]] = {
    enum.Enum: _number,
    NoneType: lambda where, value: value,
    int: lambda where, value: value,
    float: lambda where, value: value,
    str: lambda where, value: value,
    np.generic: lambda where, value: value.item(),
    Path: lambda where, value: str(value),
    bytes: lambda where, value: {"data": list(value), "shape": [len(value)], "type": "bytes"},
    np.ndarray: _array_form,
    slice: lambda where, value: {"slice": [value.start, value.stop, value.step]},
    EllipsisType: lambda where, value: {"slice": "..."},
    list: lambda where, value: [encoded(where, item) for item in value],
    tuple: lambda where, value: [encoded(where, item) for item in value],
    Mapping: lambda where, value: {str(key): encoded(where, item) for key, item in value.items()},
    Vocab: lambda where, value: {"vocab": value.vocab()},
    Schema: lambda where, value: {"schema": value.to_json()},
    BuiltinSampler: encoded_sampler,
}
"""How values of each type are written; the first that fits counts."""
