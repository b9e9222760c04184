"""`export` and `load`: a network without its Python code.

MindSpore's MindIR is a format of its compiler that nothing else runs. What is saved here is a format of our own under the
same suffix: a zip file with three entries.

=========================  ==============================================================================================
``program``                StableHLO of the network, serialized by `jax.export`, for CPU, CUDA and TPU where all its
                           operators can be compiled for them, else for the platform of the process
``parameters.safetensors`` values of its Parameters
``manifest.json``          version of the format, names of the Parameters in their order, shapes and dtypes of the
                           inputs, structure of the outputs
=========================  ==============================================================================================

Files of MindSpore's own are refused, and so are the formats ONNX and AIR.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from sporax.base import atomic_write
from sporax.base.errors import (
    For,
    SporaxImportError,
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.mindspore import context, log
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.jax_cell import Graph, flattened
from sporax.runtime.state import frames
from sporax.runtime.storage import CorruptCheckpointError, StoredTensor, check_safetensors, safetensors_format

__all__ = ["export", "load"]

_SUFFIX = ".mindir"
_VERSION = 1
_PROGRAM, _PARAMETERS, _MANIFEST = "program", "parameters.safetensors", "manifest.json"
_PLATFORMS = ("cpu", "cuda", "tpu")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""Time of all entries, so that equal networks give equal files."""


def export(net: Cell, *inputs: Any, file_name: str, file_format: str, **kwargs: Any) -> None:
    """Write a network, as it is now, to a file that `load` reads and `nn.GraphCell` runs.

    Args:
        net: the network, in evaluation mode (``net.set_train(False)``).
        inputs: Tensors of the shapes and dtypes that it shall take; their values do not matter.
        file_name: the file; ``.mindir`` is added when it is missing.
        file_format: ``"MINDIR"``: a format of this package's own, not MindSpore's. ``"ONNX"`` and ``"AIR"`` are refused.
        kwargs: MindSpore's further arguments (encryption, obfuscation, custom operators), which are refused.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxNotImplementedError: one of `kwargs`.
        SporaxImportError: the extra ``export`` is not installed.
        SporaxRuntimeError: the network writes Parameters or draws random numbers, or the parallel mode shards it.
    """
    For("export").typed("net", net, "a Cell", Cell)
    if not isinstance(file_name, str) or not file_name:
        raise SporaxTypeError(f"For 'export', 'file_name' must be a str that is not empty, but got {file_name!r}.")
    if file_format != "MINDIR":
        words = f"'file_format' must be 'MINDIR', but got {file_format!r}; for others give the network to jax.export yourself."
        raise SporaxValueError(f"For 'export', {words}")
    if kwargs:
        raise SporaxNotImplementedError(f"For 'export', the argument {next(iter(kwargs))!r} is not offered.")
    # The program would hold collective operations for this job's devices.
    if context.get_auto_parallel_context("parallel_mode") in ("semi_auto_parallel", "auto_parallel"):
        raise SporaxRuntimeError(
            "For 'export', the parallel mode must not shard networks, but it is "
            f"'{context.get_auto_parallel_context('parallel_mode')}'. Call reset_auto_parallel_context() first."
        )
    wrong = next((value for value in inputs if not isinstance(value, Tensor)), None)
    For("export").refuse_type(wrong is not None, "inputs must be Tensors", type(wrong).__name__)
    # Before the network is traced, which may take long.
    _need_flatbuffers("export")
    _write(Path(file_name if file_name.endswith(_SUFFIX) else file_name + _SUFFIX), net, inputs)


def _need_flatbuffers(where: str) -> None:
    if importlib.util.find_spec("flatbuffers") is None:
        raise SporaxImportError(
            f"For '{where}', the package 'flatbuffers' must be installed, with which jax.export writes programs: "
            'pip install "sporax[export]".'
        )


def _write(path: Path, net: Cell, inputs: tuple[Tensor, ...]) -> None:
    parameters = {parameter.name: parameter for parameter in net.get_parameters()}
    # Filled while the function is traced: the structure cannot be an output of a JAX function.
    structure: list[Any] = []

    def run(values: list[jax.Array], arrays: list[jax.Array]) -> list[jax.Array]:
        frame = dict(zip(parameters.values(), values, strict=True))
        outputs, updates = frames.isolate(lambda: net(*map(wrap, arrays)), frame)
        # A write would be lost in the file, so it is an error rather than a surprise.
        if updates:
            names = sorted(getattr(variable, "name", "") or "a random stream" for variable in updates)
            raise For("export").state_error(
                f"the network must not write what it holds, but it writes {names}. Call net.set_train(False) first"
            )
        flat: list[jax.Array] = []
        structure[:] = [flattened(outputs, flat)]
        return flat

    values = [parameter.array for parameter in parameters.values()]
    arrays = [value.array for value in inputs]
    # Shapes alone: tracing needs no values.
    specifications = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (values, arrays))
    program = _exported(run, specifications)
    manifest = {
        "format": "sporax exported network",
        "version": _VERSION,
        "parameters": list(parameters),
        "inputs": [[list(array.shape), str(array.dtype)] for array in arrays],
        "outputs": structure[0],
    }
    weights = io.BytesIO()
    specs = [StoredTensor(name, each.array.shape, np.dtype(each.array.dtype)) for name, each in parameters.items()]
    check_safetensors(specs)
    safetensors_format.write_stream(weights, specs, lambda spec: np.asarray(parameters[spec.name].array), lambda _: {})
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        contents = {_MANIFEST: json.dumps(manifest).encode(), _PROGRAM: program, _PARAMETERS: weights.getvalue()}
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), content)


def _exported(run: Any, specifications: Any) -> bytes:
    """The serialized program, for all platforms if that can be."""
    try:
        exported = jax_export.export(jax.jit(run), platforms=_PLATFORMS)(*specifications)
    except (NotImplementedError, ValueError) as error:
        # An operator without a lowering for one of the platforms raises one of these.
        log.warning("For 'export', the network is saved for '%s' alone: %s", jax.default_backend(), error)
        exported = jax_export.export(jax.jit(run))(*specifications)
    return bytes(exported.serialize())


def load(file_name: str, **kwargs: Any) -> Graph:
    """Read a network that `export` wrote, for `nn.GraphCell`.

    Args:
        file_name: the file, with its suffix ``.mindir``.
        kwargs: MindSpore's further arguments (encryption, obfuscation), which are refused.

    Raises:
        SporaxTypeError, SporaxValueError: the name is not valid, there is no such file, or it is broken or not ours.
        SporaxNotImplementedError: one of `kwargs`.
    """
    if kwargs:
        raise SporaxNotImplementedError(f"For 'load', the argument {next(iter(kwargs))!r} is not offered.")
    For("load").refuse_type(not isinstance(file_name, str), "'file_name' must be a str", file_name, show=repr)
    path = Path(file_name)
    # The suffix is checked first: the content of other files would give a less clear error.
    if path.suffix != _SUFFIX or not path.is_file():
        raise For("load").error("'file_name' must name a file that ends with '.mindir'", repr(file_name))
    _need_flatbuffers("load")
    try:
        with zipfile.ZipFile(path) as archive:
            contents = {name: archive.read(name) for name in (_MANIFEST, _PROGRAM, _PARAMETERS)}
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise SporaxValueError(
            f"For 'load', {file_name!r} must be a file that 'export' of this package wrote; MindSpore's own are not read. "
            f"{error}"
        ) from error
    try:
        manifest = json.loads(contents[_MANIFEST])
        # A later version may mean other things by the same fields.
        if manifest["version"] != _VERSION:
            raise ValueError(f"its version must be {_VERSION}, but is {manifest['version']}")
        entries, _ = safetensors_format.read(memoryview(contents[_PARAMETERS]))
        values = {entry.name: jnp.asarray(entry.value) for entry in entries}
        return Graph(
            jax_export.deserialize(bytearray(contents[_PROGRAM])),
            {name: values[name] for name in manifest["parameters"]},
            tuple((tuple(shape), dtype) for shape, dtype in manifest["inputs"]),
            manifest["outputs"],
        )
    except (ValueError, KeyError, TypeError, CorruptCheckpointError) as error:
        raise SporaxValueError(f"For 'load', {file_name!r} is broken: {error}.") from error
