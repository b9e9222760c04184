"""Attributes that users hang on Cells: flags, buffers, and settings of MindSpore's compiler.

Hooks of a Cell: functions that see (and may replace) what goes in, what comes out, and the gradients of both.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from sporax.base import ByIdentity
from sporax.base.errors import For, SporaxAttributeError, SporaxKeyError
from sporax.base.lazy_members import dataclass
from sporax.mindspore import context
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.common.gradient_hooks import watched
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
        raise For("Cell.to").type_error(
            "the arguments must be (device, dtype), (dtype) or (tensor), with a floating or complex dtype", args, kwargs
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
        self.cell_type = For("update_cell_type").typed("cell_type", cell_type, "a string", str)

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
            raise For("Cell.to").error(
                f"'device' must be '{context.get_context('device_target')}', where JAX computes", f"'{device}'"
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
        """Request an acceleration of MindSpore's: it has no counterpart here and changes nothing, which is said.

        Raises:
            SporaxValueError: not ``"less_bn"``.
        """
        For("set_boost").one_of("boost_type", boost_type, ("less_bn",))
        warnings.warn("For 'Cell.set_boost', 'less_bn' has no counterpart in XLA and changes nothing.", stacklevel=2)
        return self.add_flags_recursive(less_bn=True)

    def set_jit_config(self, jit_config: Any) -> None:
        """Give settings of MindSpore's own compiler: they have no counterpart here and change nothing, which is said."""
        warnings.warn(
            "For 'Cell.set_jit_config', the settings have no counterpart in XLA and change nothing.", stacklevel=2
        )

    def _get_attr_from_cell(self, network: Any) -> None:
        """Take over such settings of another Cell, which have no use here; public wrappers around networks call this."""

    def check_names(self) -> None:
        """See that no two Parameters have one name.

        Raises:
            SporaxValueError: two have.
        """
        owners: dict[str, str] = {}
        for path, parameter in self.parameters_and_names():
            if parameter.name in owners:
                raise For(type(self).__name__).error(
                    f"the parameters '{owners[parameter.name]}' and '{path}' have the same name '{parameter.name}'"
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
        For("register_buffer").typed("the name", name, "a string", str)
        if "." in name or not name:
            raise SporaxKeyError(f"For 'register_buffer', the name must not be empty or contain '.', but got '{name}'.")
        # A buffer may replace one of its own name only.
        if name not in self._buffers and hasattr(self, name):
            raise SporaxKeyError(f"For 'register_buffer', the attribute '{name}' already exists.")
        For("register_buffer").typed(name, tensor, "a Tensor or None", Tensor | None)
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


class SteppedAttribute:
    """An attribute to which compiled steps assign Tensors, as in ``self.last = x`` and ``self.state = (h, c)``.

    A Tensor of a step has no value after it. So what is assigned goes to a variable, as a value of a Parameter does, one for each
    shape and dtype, and whoever reads the attribute gets a Tensor with the values that the variable has then. In a tuple every
    Tensor has a variable. Lists and dicts, which steps may change later, are after a step what they were before.

    Args:
        value: what the attribute is while no Tensor has been assigned; `UNSET` for nothing.
    """

    UNSET = object()

    def __init__(self, value: object) -> None:
        self.value = value
        self._variables: dict[Hashable, Parameter] = {}
        self._decides = False  # whether a step has read it before it assigned it
        self._form: Any = self._form_of(value, self._variable_for) if holds_tensor(value) else None

    @property
    def form(self) -> Any:
        """`value` with variables for its Tensors; None while there is no Tensor. Compiled steps set it when they run."""
        return self._form

    @form.setter
    def form(self, form: Any) -> None:
        # Of two values in a row each decides, too.
        if self._decides and (form is None or _decided_by(form) != _decided_by(self._form)):
            frames.touch()
        self._form = form

    def fingerprint(self) -> Hashable:
        """What steps depend on that read the attribute: which variables or value it is."""
        if not self._decides:
            return ByIdentity(self)
        return ByIdentity(self.value) if self.form is None else _decided_by(self.form)

    def set(self, value: object) -> None:
        """Assign, inside of a step or outside."""
        for name in ("value", "form"):
            frames.note_assignment(self, name)
        if holds_tensor(value):
            self.form = self._form_of(value, self._assigned)
        else:
            self.value, self.form = value, None

    def get(self) -> object:
        """A Tensor with the present values, a tuple with such, `value`, or `UNSET`."""
        if frames.compiling() and not frames.has_assigned(self, "form"):
            self._decides = True
        return self.value if self.form is None else jax.tree.map(_read, self.form)

    def _form_of(self, value: Any, variable: Callable[[Hashable, jax.Array], Parameter]) -> Any:
        numbers = itertools.count()
        return jax.tree.map(
            lambda leaf: variable(next(numbers), leaf.array) if _is_tensor(leaf) else leaf, value, is_leaf=_is_tensor
        )

    def _assigned(self, place: Hashable, array: jax.Array) -> Parameter:
        variable = self._variable_for(place, array, 0)
        variable._replace(array if frames.compiling() else jnp.array(array, copy=True))
        return variable

    def _variable_for(self, place: Hashable, array: jax.Array, first: float | None = None) -> Parameter:
        """The variable for arrays of this shape and dtype at a place; a new one has their value, or `first`."""
        key = (place, array.shape, array.dtype)
        if key not in self._variables:
            with jax.ensure_compile_time_eval():
                value = Tensor(jnp.full(array.shape, array if first is None else first, array.dtype))
            self._variables[key] = Parameter(value, requires_grad=False)
        return self._variables[key]


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def holds_tensor(value: object) -> bool:
    """Whether a value is a Tensor, or a tuple with some, that variables can hold: no Parameters, which are variables."""
    if not isinstance(value, Tensor | tuple):
        return False
    tensors = list(filter(_is_tensor, jax.tree.leaves(value, is_leaf=_is_tensor)))
    # Outside of steps, arrays of eager gradients have no values either.
    has_values = frames.compiling() or not any(isinstance(tensor.array, jax.core.Tracer) for tensor in tensors)
    return bool(tensors) and has_values and not any(isinstance(tensor, Parameter) for tensor in tensors)


def _decided_by(form: Any) -> Hashable:
    leaves, tree = jax.tree.flatten(form, is_leaf=_is_tensor)
    # Arrays of numpy cannot be compared as a whole either.
    return tree, tuple(ByIdentity(leaf) if hasattr(leaf, "__array__") else leaf for leaf in leaves)


def _read(leaf: Any) -> Any:
    if not isinstance(leaf, Parameter):
        return leaf
    # Outside of steps a copy, since the next step gives the buffer away.
    array = leaf.array
    tensor = Tensor(array if frames.compiling() else jnp.array(array, copy=True))
    tensor._part_of = _ReadFrom(leaf, array)
    return tensor


class _ReadFrom(NamedTuple):
    """The variable that a Tensor was read from, and its values then: ``self.last[0] = 1`` writes to both."""

    variable: Parameter
    array: jax.Array
    index: Any = ...

    def parent(self) -> tuple[Parameter | None, bool]:
        """The variable, or None if something else has been assigned to it since; see `Tensor`'s own parts."""
        # Compiled code writes to what has no name, and was read just now; its first trace reads other arrays each time.
        is_present = frames.compiling() or self.variable.array is self.array
        return (self.variable if is_present else None), False


Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A registered hook and how it wants to be called."""

    hook: Hook
    with_kwargs: bool = False
    always: bool = False


class HookHandle:
    """What registering returns; `remove` takes the hook away."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, _Entry], entry: _Entry, prepend: bool = False) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        others = dict(hooks) if prepend else {}
        # The new hook first: dicts keep the order in which keys came.
        if prepend:
            hooks.clear()
        hooks[self._number] = entry
        hooks.update(others)
        frames.touch()

    def remove(self) -> None:
        """Take the hook away; doing it twice is fine."""
        self._hooks.pop(self._number, None)
        frames.touch()


class CellHooks:
    """Hooks of a Cell. Mixed into `Cell`.

    In GRAPH_MODE hooks run while the program is compiled and become part of it; they see traced Tensors.

    Attributes:
        _hooks: None until the first hook is registered, so Cells without hooks pay nothing.
    """

    _hooks: dict[str, dict[int, _Entry]] | None

    def _register(self, kind: str, entry: _Entry, prepend: bool = False) -> HookHandle:
        if not callable(entry.hook):
            raise For(f"register_{kind}_hook").type_error("the hook must be a function", type(entry.hook).__name__)
        if self._hooks is None:
            self._hooks = {}
        return HookHandle(self._hooks.setdefault(kind, {}), entry, prepend)

    def register_forward_pre_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """``hook_fn(cell, inputs)`` runs before construct; what it returns (unless None) replaces the inputs.

        Args:
            hook_fn: the hook; with `with_kwargs` it is called ``hook_fn(cell, args, kwargs)`` and returns both, or None.
            prepend: run it before the hooks that are there already.
            with_kwargs: whether the hook sees keyword arguments.
        """
        return self._register("forward_pre", _Entry(hook_fn, with_kwargs), prepend)

    def register_forward_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """``hook_fn(cell, inputs, output)`` runs after construct; what it returns (unless None) replaces the output.

        Args:
            hook_fn: the hook; with `with_kwargs` it is called ``hook_fn(cell, args, kwargs, output)``.
            prepend: run it before the hooks that are there already.
            with_kwargs: whether the hook sees keyword arguments.
            always_call: call it also when construct raises, with None for the output.
        """
        return self._register("forward", _Entry(hook_fn, with_kwargs, always_call), prepend)

    def register_backward_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_input, grad_output)`` runs in the backward pass; its result replaces `grad_input`.

        Both gradients are tuples of Tensors. Where no input of the Cell is differentiated, `grad_input` holds None.
        """
        return self._register("backward", _Entry(hook_fn))

    def register_backward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_output)`` runs in the backward pass before the Cell's; its result replaces `grad_output`."""
        return self._register("backward_pre", _Entry(hook_fn))


def run_hooked(cell: CellHooks, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``construct(*args, **kwargs)`` with the Cell's hooks around it."""
    hooks = cell._hooks or {}
    # A copy: a hook may remove itself.
    for entry in list(hooks.get("forward_pre", {}).values()):
        args, kwargs = _before(entry, cell, args, kwargs)
    # Identities cost something in every step, so they are there only for such hooks.
    watch = _Backward(cell, hooks) if hooks.get("backward") or hooks.get("backward_pre") else None
    try:
        output = construct(*(watch.enter(args) if watch else args), **kwargs)
    except Exception:
        _after_failure(cell, hooks, args, kwargs)
        raise
    for entry in list(hooks.get("forward", {}).values()):
        replaced = _call_forward(entry, cell, args, kwargs, output)
        if replaced is not None:
            output = replaced
    # Gradients are those of the Cell with its forward hooks, as in MindSpore.
    return watch.leave(output) if watch else output


def _before(entry: _Entry, cell: CellHooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    replaced = entry.hook(cell, args, kwargs) if entry.with_kwargs else entry.hook(cell, args)
    if replaced is None:
        return args, kwargs
    if not entry.with_kwargs:
        # One value replaces all inputs, as in MindSpore.
        return (replaced if isinstance(replaced, tuple) else (replaced,)), kwargs
    if not (isinstance(replaced, tuple) and len(replaced) == 2 and isinstance(replaced[1], dict)):
        raise For("register_forward_pre_hook").type_error(
            f"a hook with 'with_kwargs' must return None or (args, kwargs), but got {type(replaced).__name__}"
        )
    replacement = replaced[0]
    return (replacement if isinstance(replacement, tuple) else (replacement,)), replaced[1]


def _call_forward(entry: _Entry, cell: CellHooks, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    return entry.hook(cell, args, kwargs, output) if entry.with_kwargs else entry.hook(cell, args, output)


def _after_failure(cell: CellHooks, hooks: dict[str, dict[int, _Entry]], args: tuple[Any, ...], kwargs: Any) -> None:
    """Call the hooks that want to be called always; what goes wrong in them must not hide the first error."""
    for entry in list(hooks.get("forward", {}).values()):
        if entry.always:
            try:
                _call_forward(entry, cell, args, kwargs, None)
            except Exception as error:
                warnings.warn(f"For 'register_forward_hook', a hook failed after construct had: {error}", stacklevel=2)


class _Backward:
    """Identity operators at a Cell's inputs and outputs whose gradients call the hooks.

    The backward pass meets the outputs first; their gradient is kept for the hooks that want both.
    """

    def __init__(self, cell: CellHooks, hooks: dict[str, dict[int, _Entry]]) -> None:
        self.cell = cell
        self.hooks = hooks
        self.grad_output: tuple[Tensor, ...] = ()
        self.inputs_have_gradients = False
        self.count = 0

    def _note_inputs(self) -> None:
        self.inputs_have_gradients = True

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs, watched."""
        # Counted now: without gradients of inputs, hooks get as many Nones.
        self.count = len(jax.tree.leaves(args))

        def at_inputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for entry in self.hooks.get("backward", {}).values():
                replaced = entry.hook(self.cell, gradients, self.grad_output)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            return gradients

        return watched(args, at_inputs, self._note_inputs)

    def leave(self, output: Any) -> Any:
        """The outputs, watched."""

        def at_outputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for entry in self.hooks.get("backward_pre", {}).values():
                replaced = entry.hook(self.cell, gradients)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            # Kept for the hooks at the inputs, which see both gradients.
            self.grad_output = gradients
            # Without differentiated inputs the backward pass ends here, so the hooks run now.
            if not self.inputs_have_gradients:
                for entry in self.hooks.get("backward", {}).values():
                    entry.hook(self.cell, (None,) * self.count, gradients)
            return gradients

        return watched(output, at_outputs)
