"""Attributes that users hang on Cells: flags, buffers, and settings of MindSpore's compiler."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from sporax.base.errors import SporaxAttributeError, SporaxKeyError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import context
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.runtime.state import frames

_PRECISIONS = {"fp16": dtypes.float16, "fp32": dtypes.float32, "bf16": dtypes.bfloat16}


def _destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str | None, dtypes.DType | None]:
    """Device and dtype that `CellFlags.to` was given in one of its forms."""
    names = ["device", "dtype"]
    if args and isinstance(args[0], dtypes.DType):
        names = ["dtype"]
    elif "tensor" in kwargs or (args and isinstance(args[0], Tensor)):
        names = ["tensor"]
    arguments = dict(zip([*names, "non_blocking"], args, strict=False)) | kwargs
    device, dtype = arguments.get("device"), arguments.get("dtype")
    if isinstance(arguments.get("tensor"), Tensor):
        dtype = arguments["tensor"].dtype
    allowed = (*dtypes.float_type, *dtypes.complex_type)
    fits = isinstance(arguments.get("non_blocking", False), bool) and (device is None or isinstance(device, str))
    if (
        not fits
        or set(arguments) - {*names, "non_blocking"}
        or len(args) > len(names) + 1
        or dtype not in (None, *allowed)
    ):
        raise SporaxTypeError(
            "For 'Cell.to', the arguments must be (device, dtype), (dtype) or (tensor), with a floating or complex dtype, but "
            f"got {args} and {kwargs}."
        )
    return device, dtype


class CellFlags:
    """The part of `Cell` that keeps what users add to it.

    A buffer is a Tensor that belongs to a Cell without being one of its Parameters. It may be set while a step runs, as a
    Parameter may, so it is kept in one that no one lists.
    """

    _buffers: dict[str, Parameter | None]
    _transient_buffers: frozenset[str]
    _flags: dict[str, Any]
    _cell_name: str
    phase: str = "train"
    """What `set_train` said last: ``"train"`` or ``"predict"``."""

    if TYPE_CHECKING:

        def cells(self) -> Iterable[CellFlags]: ...
        def cells_and_names(self) -> Iterator[tuple[str, CellFlags]]: ...
        def parameters_and_names(
            self, name_prefix: str = "", expand: bool = True
        ) -> Iterator[tuple[str, Parameter]]: ...
        def update_parameters_name(self) -> None: ...
        def set_precision(self, inputs: Any) -> None: ...

    def add_flags(self, **flags: Any) -> Self:
        """Set attributes of this Cell; ``fp16``, ``fp32`` and ``bf16`` cast as `to_float` does."""
        self._flags.update(flags)
        for name, value in flags.items():
            setattr(self, name, value)
            if name in _PRECISIONS and value:
                self.set_precision(_PRECISIONS[name])
        return self

    def add_flags_recursive(self, **flags: Any) -> Self:
        """`add_flags` here and on all Cells below."""
        self.add_flags(**flags)
        for cell in self.cells():
            cell.add_flags_recursive(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """What `add_flags` has set."""
        return self._flags

    def get_scope(self) -> str | None:
        """Name of this Cell in paths of compiled programs, or None while it has none."""
        return f"Default/{self._cell_name}-{type(self).__name__}" if self._cell_name else None

    def update_cell_type(self, cell_type: str) -> None:
        """Keep a word about the kind of this Cell in ``cell_type``, as second-order optimizers of MindSpore's do.

        Raises:
            SporaxTypeError: not a string.
        """
        self.cell_type = check_type("update_cell_type", "cell_type", cell_type, "a string", str)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating Parameters and buffers of this Cell and all below it, in place; this Cell.

        Args:
            args, kwargs: ``to(device=None, dtype=None, non_blocking=False)``, ``to(dtype, non_blocking=False)`` or ``to(tensor,
                non_blocking=False)``, whose dtype is taken. The device must be the one that JAX computes on, since it places
                arrays itself; so there is no copy that `non_blocking` could speak of.

        Raises:
            SporaxTypeError: other arguments, or a dtype that is neither floating nor complex.
            SporaxValueError: another device.
        """
        device, dtype = _destination(args, kwargs)
        if device is not None and device.partition(":")[0] != context.get_context("device_target"):
            raise SporaxValueError.must(
                "Cell.to", "device", f"be '{context.get_context('device_target')}', where JAX computes", f"'{device}'"
            )
        if dtype is None:
            return self
        for _, cell in self.cells_and_names():
            own = [parameter for _, parameter in cell.parameters_and_names(expand=False)]
            for holder in (*own, *(buffer for buffer in cell._buffers.values() if buffer is not None)):
                if holder.dtype in (*dtypes.float_type, *dtypes.complex_type):
                    holder.set_dtype(dtype)
        frames.touch()
        return self

    def set_boost(self, boost_type: str) -> Self:
        """Ask for an acceleration of MindSpore's: it has no counterpart here and changes nothing, which is said.

        Raises:
            SporaxValueError: not ``"less_bn"``.
        """
        SporaxValueError.raise_unless_in("set_boost", "boost_type", boost_type, ("less_bn",))
        warnings.warn("For 'Cell.set_boost', 'less_bn' has no counterpart in XLA and changes nothing.", stacklevel=2)
        return self.add_flags_recursive(less_bn=True)

    def set_jit_config(self, jit_config: Any) -> None:
        """Give settings of MindSpore's own compiler: they have no counterpart here and change nothing, which is said."""
        warnings.warn(
            "For 'Cell.set_jit_config', the settings have no counterpart in XLA and change nothing.", stacklevel=2
        )

    def check_names(self) -> None:
        """See that no two Parameters have one name.

        Raises:
            SporaxValueError: two have.
        """
        owners: dict[str, str] = {}
        for path, parameter in self.parameters_and_names():
            if parameter.name in owners:
                raise SporaxValueError(
                    f"For '{type(self).__name__}', the parameters '{owners[parameter.name]}' and '{path}' have the same name "
                    f"'{parameter.name}'."
                )
            owners[parameter.name] = path

    def check_names_and_refresh_name(self) -> None:
        """Rename Parameters by their paths where two have one name, and check again."""
        names = [parameter.name for _, parameter in self.parameters_and_names()]
        # Names stay where they are unique: checkpoints refer to them.
        if len(set(names)) < len(names):
            for path, parameter in self.parameters_and_names():
                parameter.name = path
            self.check_names()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Keep a Tensor under a name, as part of this Cell but none of its Parameters.

        Args:
            name: the attribute.
            tensor: the values, or None.
            persistent: part of `state_dict`; checkpoints hold Parameters only.

        Raises:
            SporaxAttributeError: before ``super().__init__()``.
            SporaxTypeError: the name is not a string, or `tensor` neither a Tensor nor None.
            SporaxKeyError: the name is empty, has a dot, or is taken.
        """
        if "_buffers" not in self.__dict__:
            raise SporaxAttributeError("For 'register_buffer', call super().__init__() before.")
        check_type("register_buffer", "the name", name, "a string", str)
        if "." in name or not name:
            raise SporaxKeyError(f"For 'register_buffer', the name must not be empty or contain '.', but got '{name}'.")
        # A buffer may replace one of its own name only.
        if name not in self._buffers and hasattr(self, name):
            raise SporaxKeyError(f"For 'register_buffer', the attribute '{name}' already exists.")
        check_type("register_buffer", name, tensor, "a Tensor or None", Tensor | None)
        # A Parameter, so that a compiled step may change it, but one that no list of Parameters shows.
        buffer = None if tensor is None else Parameter(tensor, name=name, requires_grad=False)
        self._buffers[name] = buffer
        if not persistent:
            object.__setattr__(self, "_transient_buffers", self._transient_buffers | {name})
        object.__setattr__(self, name, buffer)
        frames.touch()

    def set_buffer(self, name: str, value: Tensor | None) -> None:
        """Give a buffer new values."""
        buffer = self._buffers[name]
        # The same Parameter with other values: compiled steps know it by identity.
        if buffer is not None and isinstance(value, Tensor):
            buffer._replace(value.array)
        else:
            # From or to None the kind changes, so it is registered again.
            object.__setattr__(self, name, None)
            del self._buffers[name]
            self.register_buffer(name, value)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as ``"block.mask"``.

        Raises:
            SporaxAttributeError: there is none.
        """
        for name, buffer in self.named_buffers():
            if name == target:
                return buffer
        raise SporaxAttributeError(f"For '{type(self).__name__}', '{target}' is not the path of a buffer.")

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with the paths that lead to them."""
        seen: set[int] = set()
        for path, cell in self.cells_and_names() if recurse else (("", self),):
            for name, buffer in cell._buffers.items():
                if buffer is not None and not (remove_duplicate and id(buffer) in seen):
                    seen.add(id(buffer))
                    yield ".".join(filter(None, (prefix, path, name))), buffer

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))
