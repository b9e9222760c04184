"""`Tensor`: a thin, mutable wrapper around one `jax.Array`.

Everything that computes lives in `sporax.mindspore.ops`, whose operator table also attaches the arithmetic and the methods to
this class. Here is what makes a Tensor a Tensor: construction with MindSpore's dtype rules, what it reports about itself,
conversion to and from numpy and DLPack, indexing, and its registration as a pytree node.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import _indexing, _integer_gradients, dtype as dtypes, escaped_tensors
from sporax.mindspore.common._host_arrays import copied, to_device
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.symbol import has_open_sizes, smallest_shape
from sporax.runtime.process import host_allocator
from sporax.runtime.ranks import joint_arrays, local_ranks
from sporax.runtime.state import frames, trace_constants

# MindSpore's element types include 64 bits, so JAX has to keep them. Only the facade needs this: the planner and plain
# JAX users of it never import this module.
jax.config.update("jax_enable_x64", True)

host_allocator.keep_freed_memory()

_first_use = threading.RLock()
"""Held while values of lazy Tensors are made, by one thread for all: what a second one made would replace what is in use."""

_NUMBERS = (bool, int, float, complex)
_TRACED_VALUE = (
    "For '{what}', the value of this tensor is not known while the step is being compiled.\n"
    "  To choose between two computations use ops.cond(pred, true_fn, false_fn, *inputs) or ops.where;\n"
    "  to loop on a condition use ops.while_loop(cond_fn, loop_fn, init_val);\n"
    "  or run in PYNATIVE_MODE without @jit, where every value is known."
)


class Tensor:
    """An n-dimensional array with a dtype.

    Args:
        input_data: number, (nested) list or tuple, numpy array or Tensor. Python floats become float32 and ints int64;
            numpy arrays keep their dtype.
        dtype: element type; None keeps the one above.
        shape: only together with `dtype`, or with `dtype` and `init`.
        init: an Initializer; the values are made when they are first needed.
        const_arg: accepted for compatibility; arguments of compiled functions are distinguished by their type.
        device: accepted for compatibility; placement belongs to the context and to plans.

    Raises:
        SporaxTypeError: `input_data` or `dtype` is of a kind no Tensor can be made from.
        SporaxValueError: `init` without `dtype` and `shape`, or together with `input_data`.

    Example:
        >>> Tensor([1, 2.5]).dtype
        mindspore.float32
    """

    # The dict has attributes of the user.
    __slots__ = ("__dict__", "__weakref__", "_initializer", "_part_of", "raw")

    # What compiled programs know of a Tensor but its array: see `sporax.mindspore.common.gradient_hooks`.
    static_part: Any = None

    raw: jax.Array

    def __init__(
        self,
        input_data: Any = None,
        dtype: DType | None = None,
        shape: Any = None,
        init: Any = None,
        const_arg: bool = False,
        device: str | None = None,
    ) -> None:
        self._initializer: Any = None
        if dtype is not None and not isinstance(dtype, DType):
            raise For("Tensor").type_error(f"the 'dtype' should be one of {list(dtypes.all_types)}, but got {dtype!r}")
        if init is not None:
            self._init_lazily(input_data, dtype, shape, init)
        elif input_data is None and dtype is not None:  # without a shape: of any number of dimensions
            self.raw = jnp.zeros(_as_shape(smallest_shape(() if shape is None else shape)), dtype.np_dtype)
            if shape is None or has_open_sizes(shape):
                self.open_shape = None if shape is None else tuple(shape)
        else:
            array = to_array(input_data, dtype)
            # A Tensor made from another is a copy; a Parameter's buffer, moreover, is given away at the next step.
            self.raw = copied(array) if isinstance(input_data, Tensor) else array
            # The copy is as constant as what it was copied from.
            if self.raw is not array and frames.current_frame() is not None:
                trace_constants.derive(self.raw, (array,), np.asarray)

    def _init_lazily(self, input_data: Any, dtype: DType | None, shape: Any, init: Any) -> None:
        if not hasattr(init, "bound"):
            raise For("Tensor").type_error("'init' must be an Initializer", f"{type(init).__name__}: {init!r}")
        if input_data is not None or dtype is None or shape is None:
            raise SporaxValueError(
                "For 'Tensor', init, dtype and shape must have values at the same time, and input_data none; but got "
                f"dtype={dtype}, shape={shape}, input_data={'given' if input_data is not None else None}."
            )
        self._initializer = init.bound(_as_shape(shape), dtype)

    def __getattr__(self, name: str) -> Any:
        # Reached for `raw` only while a lazy Tensor has no values, so everyone else pays nothing for laziness.
        if name == "raw" and (self._initializer is not None or frames.slot(self, "raw") is not None):
            self._make_values()
            return object.__getattribute__(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def init_data(self, slice_index: int | None = None, shape: Any = None, opt_shard_group: Any = None) -> Tensor:
        """Make the values of a lazy Tensor now. Sharded creation belongs to plans, so it takes no slice here.

        Raises:
            SporaxTypeError: this Tensor was not made with an initializer.
        """
        if self._initializer is None:
            raise SporaxTypeError("For 'init_data', the Tensor must have been created with 'init', but it has values.")
        self._make_values()
        return self

    def _make_values(self) -> None:
        """Make the values, unless another thread has done so since the test whether they are there."""
        with _first_use:
            if self._initializer is None:
                return
            # A value that is first needed inside a step must not become part of its program.
            with jax.ensure_compile_time_eval():
                self.raw = self._initializer.make()
            self._initializer = None

    def make_at(self, sharding: jax.sharding.Sharding, arrange: Callable[[jax.Array], jax.Array] | None = None) -> None:
        """Make the values of a lazy Tensor now, every device its own slice. Nothing happens when they are there.

        Args:
            sharding: where they should be.
            arrange: brings the whole array into another form, which the caller takes away at once.
        """
        with _first_use:
            if self._initializer is not None:
                self.raw = self._initializer.make(sharding, arrange)
                self._initializer = None

    def forget_initializer(self) -> None:
        """Make no values: another process has them, or others were given."""
        # Values that another thread is making must not come after.
        with _first_use:
            self._initializer = None

    @property
    def unmade(self) -> jax.ShapeDtypeStruct | None:
        """Shape and dtype of a lazy Tensor whose values are still to be made, else None."""
        lazy = self._initializer
        return None if lazy is None else jax.ShapeDtypeStruct(lazy.shape, lazy.dtype.np_dtype)

    @property
    def array(self) -> jax.Array:
        """The `jax.Array` (or tracer) that holds the values now."""
        return self.raw

    @property
    def has_init(self) -> bool:
        """Whether the values are still to be made."""
        return self._initializer is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        # A lazy Tensor answers without making its values.
        lazy = self._initializer
        return lazy.shape if lazy is not None else tuple(self.array.shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        lazy = self._initializer
        if lazy is not None:
            return lazy.dtype
        return dtypes.from_numpy(self.array.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension, row-major."""
        return tuple(int(np.prod(self.shape[dim + 1 :], dtype=np.int64)) * self.itemsize for dim in range(self.ndim))

    @property
    def device(self) -> str:
        """Kind of device that holds the values: CPU, GPU or TPU."""
        return next(iter(self.array.devices())).platform.upper()

    def dim(self) -> int:
        """Number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Number of elements."""
        return self.size

    def __repr__(self) -> str:
        # Values that are known while a step is traced are printed as such.
        array = trace_constants.known(self.array) if isinstance(self.array, jax.core.Tracer) else self.array
        if array is None:
            return trace_constants.text_later(self, repr)
        gap = "\n" if self.ndim > 1 else " "
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, value={gap}{_listing(array)})"

    def __str__(self) -> str:
        values = trace_constants.known(self.array) if isinstance(self.array, jax.core.Tracer) else self.array
        if values is None:
            # Others, such as the translation of Python code, may want to know.
            for meet in _when_unknown:
                meet("str")
            return trace_constants.text_later(self, str)
        return str(_printable(values))

    def __format__(self, spec: str) -> str:
        For("Tensor.__format__").refuse_type(
            spec, "the format must be empty", f"'{spec}'; format tensor.item() instead"
        )
        return str(self)

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """The values as a writable numpy array of its own; writing to it does not change the Tensor.

        Differs from MindSpore, where the array may share the Tensor's memory: an XLA buffer must not change.
        """
        # A copy: an XLA buffer must not change.
        return np.array(_concrete(self.array, "asnumpy"))

    def numpy(self) -> np.ndarray[Any, Any]:
        """Same as `asnumpy`."""
        return self.asnumpy()

    def item(self) -> Any:
        """The only element as a Python number; in a step that is being compiled, where it is not known, as a Tensor.

        Raises:
            SporaxValueError: there is more than one element.
        """
        # In a compiled step the value comes later, so a Tensor stands for it.
        if self.size == 1 and frames.compiling() and trace_constants.known(self.array) is None:
            return wrap(jnp.reshape(self.array, ()))
        return self._scalar("item").item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return _concrete(self.array, "tolist").tolist()

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """A Tensor with the values of a numpy array."""
        For("from_numpy").typed("the input", array, "a numpy array", np.ndarray)
        return wrap(to_array(array, None))

    @classmethod
    def from_dlpack(cls, array: Any) -> Tensor:
        """A Tensor with the values of another library's array, as DLPack passes them; it may share their memory.

        Raises:
            SporaxTypeError: the object does not speak DLPack (a capsule does not: give the array itself).
        """
        if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
            raise For("from_dlpack").type_error("the input must be an array with '__dlpack__'", type(array).__name__)
        return wrap(jax.dlpack.from_dlpack(array))

    def to_dlpack(self) -> Any:
        """A DLPack capsule with the values; most libraries take the Tensor itself: ``torch.from_dlpack(tensor)``."""
        return self.__dlpack__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = np.asarray(_concrete(self.array, "numpy"))
        # Always a copy, whatever numpy requests.
        return np.array(values, dtype=dtype or values.dtype, copy=True)

    def __jax_array__(self) -> jax.Array:
        return self.array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return _concrete(self.array, "__dlpack__").__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()  # type: ignore[attr-defined]  # of every jax.Array, not declared

    def _scalar(self, what: str) -> np.ndarray[Any, Any]:
        values = np.asarray(_concrete(self.array, what))
        if values.size != 1:
            raise For(what).error(
                f"only one element tensors can be converted to Python scalars, but this one has shape {self.shape}"
            )
        return values

    def __bool__(self) -> bool:
        return bool(self._scalar("bool").item())

    def __int__(self) -> int:
        return int(self._scalar("int").item())

    def __float__(self) -> float:
        return float(self._scalar("float").item())

    def __complex__(self) -> complex:
        return complex(self._scalar("complex").item())

    def __index__(self) -> int:
        value = self._scalar("index").item()
        if isinstance(value, float):
            raise SporaxTypeError(f"For 'index', the tensor must hold an integer, but its dtype is {self.dtype}.")
        return int(value)

    def __len__(self) -> int:
        if not self.shape:
            raise For("len").type_error("the tensor must have at least one dimension: Not support len of a 0-D tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        # The length is known, so no index has to fail for the loop to end.
        return (self[index] for index in range(len(self)))

    # By identity, since comparing gives a Tensor.
    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return wrap(copied(self.array))

    def __reduce__(self) -> tuple[Any, ...]:
        return wrap_numpy, (np.asarray(_concrete(self.array, "pickle")),)

    def __getitem__(self, index: Any) -> Tensor:
        array = self.array
        # Integers carry their slopes along.
        part = _integer_gradients.run(functools.partial(_indexing.get, index=index), (array,))
        if frames.current_frame() is not None:
            trace_constants.derive(
                part, (array, *_arrays_in(index)), lambda *_: _indexing.get(trace_constants.known(array), index)
            )
        # Indexing everything gives the array itself, whose buffer may be given away.
        result = wrap(jnp.array(part, copy=True) if part is array else part)
        result._part_of = _PartOf(weakref.ref(self), index, frames.slot(self, "_part_of"))
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        # In MindSpore parts are views when code runs eagerly, and in compiled code as long as they have no name.
        is_view = not frames.compiling() or sys.getrefcount(self) <= _REFERENCES_WITHOUT_NAME
        self._put(index, value, is_view)

    def _put(self, index: Any, value: Any, is_view: bool) -> None:
        """Write to a part; where this Tensor is a view, also to the one that it was read from."""
        self._assign(_indexing.put(self.array, index, value))
        if is_view and (part_of := frames.slot(self, "_part_of")) is not None:
            parent, is_read_again = part_of.parent()
            if parent is not None:
                parent._put(part_of.index, self, is_read_again or not frames.compiling())

    def assign_value(self, value: Tensor) -> Tensor:
        """Take over the values (a copy) and dtype of another Tensor."""
        self._replace(copied(to_array(value, None)))
        return self

    def set_dtype(self, dtype: DType) -> DType:
        """Convert the values in place; returns the new dtype."""
        self._replace(self.array.astype(dtypes.to_dtype(dtype).np_dtype))
        return self.dtype

    def _replace(self, array: jax.Array) -> None:
        if self._initializer is not None:
            self.forget_initializer()
        self.raw = array

    _assign = _replace  # Parameters also say by what they are differentiated then


class _PartOf(NamedTuple):
    """Where a Tensor was read from, ``x[index]``; it keeps neither that Tensor nor its values alive.

    Attributes:
        reference: the Tensor.
        index: of the part.
        above: where that Tensor itself was read from, if it was.
    """

    reference: weakref.ref[Tensor]
    index: Any
    above: _PartOf | None

    def parent(self) -> tuple[Tensor | None, bool]:
        """The Tensor, and whether it was gone and is read again: `x[0]` of ``x[0][1] = 5``. None where nothing of it is left."""
        tensor = self.reference()
        if tensor is not None or self.above is None:
            return tensor, False
        outer, _ = self.above.parent()
        return (None if outer is None else outer[self.above.index]), True


class _Probe:
    """Counts the references to an object without a name to whose part something is assigned."""

    count = 0

    def __setitem__(self, index: int, value: int) -> None:
        _Probe.count = sys.getrefcount(self)


_Probe()[0] = 0
_REFERENCES_WITHOUT_NAME = _Probe.count


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def wrap(array: jax.Array) -> Tensor:
    """A Tensor around `array`, without copying or checking."""
    # `__init__` would check and convert; every operator comes through here.
    tensor = _new(Tensor)
    tensor.raw = array
    tensor._initializer = None
    if escaped_tensors.MADE and isinstance(array, jax.core.Tracer):
        escaped_tensors.note(tensor)
    return tensor


def wrap_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor with the values of a numpy array that no one will write to again: may share its memory."""
    return wrap(jnp.asarray(array, dtype=array.dtype))


def to_array(value: Any, dtype: DType | None) -> jax.Array:
    """The `jax.Array` for anything a Tensor can be made from; copies memory that others may write to.

    Raises:
        SporaxTypeError: no Tensor can be made from `value`.
    """
    target = None if dtype is None else dtype.np_dtype
    if isinstance(value, Tensor):
        value = value.array
    if isinstance(value, jax.Array):
        return value if target is None else _cast(value, target)
    if isinstance(value, np.ndarray | np.generic):
        # Refuses dtypes that MindSpore does not have.
        dtypes.from_numpy(value.dtype)
        # Copied, unless the cast has copied already.
        return _constant(np.array(value) if target is None else np.asarray(value).astype(target))
    if isinstance(value, _NUMBERS):
        return _constant(np.asarray(value).astype(target or _python_dtype([value])))
    if isinstance(value, (list | tuple | range) if frames.compiling() else list | tuple):
        return _from_sequence(value, target)
    raise SporaxTypeError(
        "For 'Tensor', the type of 'input_data' should be one of [Tensor, ndarray, bool, int, float, complex, list, tuple], "
        f"but got type '{type(value).__name__}'."
    )


def _from_sequence(values: Sequence[Any], target: Any) -> jax.Array:
    leaves = list(_leaves(values))
    # Tensors among numbers: all become arrays, which are stacked.
    if any(isinstance(leaf, Tensor | jax.Array) for leaf in leaves):
        parts, kind = [to_array(value, None) for value in values], target or _common_dtype(leaves)
        stacked = jnp.stack(parts).astype(kind)
        trace_constants.derive(stacked, parts, lambda *pieces: np.stack(pieces).astype(kind))
        return stacked
    # numpy complains of lists of different lengths.
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise SporaxTypeError(f"For 'Tensor', the nested sequence is ragged: {error}.") from None
    if array.dtype == object or array.dtype.kind in "USV":
        raise SporaxTypeError(f"For 'Tensor', the elements must be numbers, but got {_odd_leaf(leaves)!r}.")
    return _constant(array.astype(target or _python_dtype(leaves)))


def _constant(array: np.ndarray[Any, Any]) -> jax.Array:
    """The `jax.Array` of a numpy array that no one will write to; outside steps nothing is compiled for it."""
    # A transfer instead of a program.
    if frames.current_frame() is None:
        return to_device(array)
    traced = jnp.asarray(array)
    # Remembered, so that code can read the value while the step is traced.
    trace_constants.note(traced, lambda: array)
    return traced


def _cast(array: jax.Array, dtype: Any) -> jax.Array:
    result = array.astype(dtype)
    trace_constants.derive(result, (array,), lambda value: value.astype(dtype))
    return result


def _arrays_in(index: Any) -> Iterator[jax.Array]:
    """The arrays that an index is made of."""
    for item in index if isinstance(index, tuple | list) else (index,):
        if isinstance(item, Tensor):
            yield item.array
        elif isinstance(item, tuple | list):
            yield from _arrays_in(item)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _common_dtype(leaves: Sequence[Any]) -> Any:
    return np.result_type(*(leaf.array.dtype if is_tensor(leaf) else np.asarray(leaf).dtype for leaf in leaves))


def _odd_leaf(leaves: Sequence[Any]) -> Any:
    return next((leaf for leaf in leaves if not isinstance(leaf, (*_NUMBERS, np.generic))), leaves)


def _python_dtype(leaves: Sequence[Any]) -> Any:
    """MindSpore's dtype for Python numbers: floats win and are 32 bits wide."""
    # An empty list is float32.
    kind = np.asarray(leaves).dtype if leaves else np.dtype(np.float32)
    if kind.kind == "f":
        return np.float32
    return np.int64 if kind.kind == "i" else kind


def _as_shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)


def _printable(array: Any) -> np.ndarray[Any, Any]:
    values = np.asarray(array)
    return values.astype(np.float32) if values.dtype == dtypes.bfloat16.np_dtype else values


def _listing(array: Any) -> str:
    """The values in MindSpore's notation: floats with all their digits, in columns; `` ... `` for what is left out."""
    values = _printable(array)
    if not values.size:
        return ""
    if not values.ndim or values.dtype.kind != "f":
        return np.array2string(values, separator=", ").replace(", ...,", " ...").removesuffix(".")
    if np.asarray(array).dtype == dtypes.bfloat16.np_dtype:
        texts = {value: f"{value:g}" for value in values.ravel().tolist()}
    else:
        digits = 4 if values.dtype == np.float16 else 8
        texts = {value: f"{value: .{digits}e}" for value in values.ravel().tolist()}
    width = max(map(len, texts.values()))
    # By value: the texts have one width, so that columns align.
    formats = {"float_kind": lambda value: texts.get(float(value), "nan").rjust(width)}
    return np.array2string(values, separator=", ", formatter=cast("Any", formats)).replace(", ...,", " ...")


_NUMPY_FORMS = frozenset(("asnumpy", "numpy", "tolist"))
_when_unknown: list[Callable[[str], None]] = []


def when_unknown(meet: Callable[[str], None]) -> None:
    """Have `meet` called with what was requested, whenever a value is requested that is not known while a step is compiled."""
    _when_unknown.append(meet)


def _concrete(array: jax.Array, what: str) -> Any:
    if isinstance(array, jax.core.Tracer):
        values = trace_constants.known(array)
        if values is None:
            for meet in _when_unknown:
                meet(what)
            # A step that needs numpy arrays can run operator by operator instead; other requests cannot.
            kind = frames.ValueNeededError if what in _NUMPY_FORMS and frames.compiling() else SporaxTypeError
            raise kind(_TRACED_VALUE.format(what=what))
        return values
    if local_ranks.is_inside() and local_ranks.differs(array):
        raise SporaxRuntimeError(
            f"For '{what}', a value must be equal on all ranks that this process acts for when Python reads it inside of a step."
        )
    # Other processes hold the rest of an array that is not fully addressable.
    return array if array.is_fully_addressable else joint_arrays.replicated(array)


def tensor(
    input_data: Any = None,
    dtype: DType | None = None,
    shape: Any = None,
    init: Any = None,
    const_arg: bool = False,
    device: str | None = None,
) -> Tensor:
    """Same as `Tensor`."""
    return Tensor(input_data, dtype, shape, init, const_arg, device)


def _flattened(tensor: Tensor) -> tuple[tuple[jax.Array], Any]:
    array, static = tensor.array, tensor.static_part
    return (array,), None if static is None else static.key(array)


def _unflattened(key: Any, children: tuple[jax.Array, ...]) -> Tensor:
    tensor = wrap(children[0])
    if key is not None:
        tensor.static_part = key[0].of(children[0])
    return tensor


_new = Tensor.__new__

jax.tree_util.register_pytree_node(Tensor, _flattened, _unflattened)
