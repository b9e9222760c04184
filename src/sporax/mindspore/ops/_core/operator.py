"""How an operator is defined: one function on arrays, from which all of its forms are made.

An operator is one plain function on `jax.Array`s, decorated with `operator`:

    @operator("Softmax", method="softmax", mint="nn.functional.softmax(dim=axis)")
    def softmax(input: check.Float, axis: int = -1) -> Array:
        \"\"\"Exponentials along `axis`, divided by their sum.\"\"\"
        return jax.nn.softmax(input, axis)

From this one definition come four forms:

* ``ops.softmax(x, axis=1)``: the function, an `Operator`;
* ``ops.Softmax(axis=1)(x)``: a `Primitive` class, whose constructor takes the attributes and whose call takes the rest;
* ``x.softmax(axis=1)``: a Tensor method;
* ``mint.nn.functional.softmax(x, dim=1)``: with the parameter names of that namespace.

The annotation of a parameter says what it is. `Array` and `Operand` (a tensor or a number) are values; ``tuple[Array, ...]``
is one value that holds several tensors; everything else is an attribute: a constant of the program. The annotation is also
the check (`_parameters`): whatever does not fit it is a SporaxTypeError, for an attribute as soon as a primitive is made;
``Literal["mean", "sum"]`` makes other strings a SporaxValueError, and `check.Float` and `check.Rank3` say which arrays fit.
What is left for the kernel is to see that shapes, dtypes and numbers fit together, with the helpers in `_check`.

Each combination of attributes becomes one inner `jax.jit` named after the operator. Eagerly that is the fast path of JAX's
own functions; inside a step it marks the operator's boundary in the jaxpr, where plans look for it. It also means that the
body, checks included, runs once per combination of shapes, dtypes and attributes, so checks cost nothing after the first
call.

A form that takes the same parameters in another order, or with other defaults, is a line: `other_form`.

What a plan has to know of the operator stands here too: ``dims=`` names the dimensions of its tensors.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import LazyMembers
from sporax.ir.operator_dims import UNSTATED, OperatorDims
from sporax.mindspore.common import _integer_gradients, gradient_hooks
from sporax.mindspore.common._integer_gradients import SLOPES
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core.dims import Stated, stated
from sporax.mindspore.ops._core.marking import between_marks
from sporax.mindspore.ops._core.parameters import (
    Array,
    Operand,
    Parameters,
    Restated,
    add_method,
    known_ints,
    renamed,
    static,
    with_parameters,
)
from sporax.mindspore.ops._core.primitive import Primitive
from sporax.mindspore.runtime import _streams
from sporax.runtime.state import ENDED, frames, is_constant, known, note

__all__ = ["FUNCTIONS", "MINT", "OPERATORS", "PRIMITIVES", "Array", "Operand", "Operator", "Primitive", "operator"]

OPERATORS: dict[str, Operator[Any]] = {}
"""All operators by the name of their primitive form (or of their function, where there is no primitive)."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""`sporax.mindspore.ops` functions by name."""

PRIMITIVES: dict[str, type[Any]] = {}
"""`sporax.mindspore.ops` classes by name."""

MINT: dict[str, Callable[..., Any]] = {}
"""`sporax.mindspore.mint` functions by dotted name."""


class _Hole:
    """Stands for an array in the key of a specialisation."""

    def __repr__(self) -> str:
        return "·"


_MAY_HOLD_TENSORS = (Tensor, tuple, list, range)
# A tensor (or number) of the program; several of them in a tuple.
_ONE = _Hole()
_MANY = _Hole()
_NUMBER_TYPES = (float, int, bool, complex)
Result = TypeVar("Result", covariant=True)
"""What callers of an operator get: Tensors where its kernel returns arrays."""
Settings = dict[str, Any]


class _OwnSignature:
    """The signature of each operator; the class itself has that of its constructor."""

    def __get__(self, instance: Operator[Any] | None, owner: type[Any]) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")
        # In the instance, where it is found first.
        signature = vars(instance)["__signature__"] = instance.parameters.signature
        return signature


class Operator(Generic[Result]):
    """Functional form of an operator. Called with Tensors, numbers and attributes; returns Tensors.

    The type keeps the result only. A caller's Tensor is the kernel's array, and Python has no type for a list of parameters in
    which one class stands for another: parameters are in the stubs (`tools/make_type_stubs.py`).

    Attributes:
        name: name of the primitive form; opens error messages and names the operator in compiled programs.
        kernel: the function on arrays.
        composed: whether the kernel calls other operators.
        dims: of its tensors, for plans.
        older: what makes the named arguments of this release of those of MindSpore 1, given the positional ones.
    """

    composed = False
    older: Callable[..., Settings] | None = None
    dims: OperatorDims = UNSTATED

    def __init__(self, name: str, kernel: Callable[..., Any]) -> None:
        self._name = name
        self.kernel = kernel
        self.__name__ = kernel.__name__
        self.__doc__ = kernel.__doc__
        self.__module__ = kernel.__module__
        # Read once per operator, at the first use: reading a signature takes longer than a small operator.
        self.parameters = Parameters(name, kernel)
        # One compiled function for each combination of attributes and kinds of arguments.
        self._compiled: dict[Any, Callable[..., Any]] = {}

    if TYPE_CHECKING:
        __signature__: inspect.Signature
    else:
        __signature__ = _OwnSignature()

    @functools.cached_property
    def operands(self) -> frozenset[int | str]:
        """Positions and names at which a bare number is a value of the program."""
        return self.parameters.operands

    def __repr__(self) -> str:
        return f"<operator {self.name}{self.__signature__}>"

    @property
    def name(self) -> str:
        """The name in messages and compiled programs; kernels that are inside of another operator take that one's."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = self.parameters.operator = name

    @property
    def usage(self) -> str:
        """How it is called, without annotations."""
        bare = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in self.__signature__.parameters.values()
        ]
        return (
            f"{self.__name__}{self.__signature__.replace(parameters=bare, return_annotation=inspect.Signature.empty)}"
        )

    def place_of(self, name: str) -> int:
        """Position of a parameter, or that behind the last one for a name that is none."""
        names = list(self.__signature__.parameters)
        return names.index(name) if name in names else len(names)

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        """Run the operator.

        Raises:
            SporaxTypeError, SporaxValueError: the arguments do not fit; the message says which and why.
        """
        return self.run(args, self.older(args, kwargs) if kwargs and self.older else kwargs)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: tuple[Any, ...] = (),
        primitive: Primitive | None = None,
    ) -> Any:
        """Run the operator.

        Args:
            args, kwargs: positional and named arguments.
            constants: parts of the key.
            primitive: the class form, whose marks a plan reads.
        """
        if self._numbers:
            args, kwargs = self.with_known_ints(args, kwargs)
        # Eager calls outside of any frame, the most frequent case, skip all that follows.
        if frames.current_frame() is None:
            result = self.run_unmarked(args, kwargs, constants)
            return _finished(result) if _streams.is_on() else result
        if frames.planning():
            result = between_marks(self, args, kwargs, constants, primitive)
        else:
            result = self.run_unmarked(args, kwargs, constants)
        if not gradient_hooks.is_on():
            result = _without_gradient(result)
        # MindSpore folds constants while it compiles; a later question for the value computes it then.
        if frames.compiling() and _are_constant((args, kwargs)):
            self._note_constants(result, args, kwargs, constants)
        return result

    @functools.cached_property
    def _numbers(self) -> tuple[tuple[int, str], ...]:
        return self.parameters.numbers

    def with_known_ints(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with shapes and sizes that are given as Tensors read, as far as their values are known."""
        for place, name in self._numbers:
            if place < len(args):
                if type(args[place]) in _MAY_HOLD_TENSORS:
                    args = (*args[:place], known_ints(args[place]), *args[place + 1 :])
            elif name in kwargs:
                kwargs = {**kwargs, name: known_ints(kwargs[name])}
        return args, kwargs

    def _note_constants(
        self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], attributes: tuple[Any, ...]
    ) -> None:
        """Say how to compute results that depend on constants only; nothing is computed before it is read."""

        # In a closure: most constants are never read.
        def computed() -> Any:
            return self.run_unmarked(_known_form(args), _known_form(kwargs), attributes)

        if isinstance(result, Tensor):
            note(result.array, lambda: computed().array)
            return
        for number, part in enumerate(result):
            # `partial`, as a closure would see the last number only.
            note(part.array, functools.partial(lambda place: computed()[place].array, number))

    def run_between_marks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...], marks: Mapping[str, Any]
    ) -> Any:
        """As `run_unmarked`, in a step that is planned; operators whose `marks` change what is computed override this."""
        return self.run_unmarked(args, kwargs, constants)

    def run_unmarked(self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...]) -> Any:
        """As `run`, without saying anything to a plan."""
        arrays: list[Any] = []
        key: list[Any] = []
        for position, arg in enumerate(args):
            kind = type(arg)
            # The fast path of eager calls: exact types, no `isinstance`.
            if kind is Tensor:
                arrays.append(arg.raw)
                key.append(_ONE)
            elif kind in _STATIC_TYPES and not (kind in _NUMBER_TYPES and position in self.operands):
                key.append((kind, arg))
            else:
                key.append(self._sort(position, arg, arrays))
        if kwargs:
            for name, arg in kwargs.items():
                key.append((name, self._sort(name, arg, arrays)))
        try:
            # The key is all that the compiled program depends on besides shapes and dtypes.
            full_key = (*key, *constants)
            compiled = self._compiled.get(full_key) or self._specialise(len(args), full_key)
            result = _integer_gradients.run(compiled, arrays) if SLOPES.of else compiled(*arrays)
        except SporaxError as error:
            # The traceback through JAX says nothing to users; the message has all.
            raise error.with_traceback(None) from None
        except (*_MISFITS, NotImplementedError, jax.errors.UnexpectedTracerError) as error:
            # Reasons are found only now, so that calls that succeed pay nothing.
            raise self._explain(error, args, {**kwargs, **{name: part[1] for name, part in constants}}) from None
        kind = type(result)
        return tuple(map(wrap, result)) if kind is tuple or kind is list else wrap(result)

    def _sort(self, where: int | str, arg: Any, arrays: list[Any]) -> Any:
        """Put `arg` among the arrays, or return it as part of the key."""
        if isinstance(arg, np.generic):
            arg = arg.item()  # numpy's scalars are numbers: they bend to the tensor, as Python's do
        if isinstance(arg, Tensor):
            arrays.append(arg.array)
            return _ONE
        # A number at an operand's place is a value: a new number must not compile again.
        if isinstance(arg, jax.Array) or (isinstance(arg, _NUMBER_TYPES) and where in self.operands):
            arrays.append(arg)
            return _ONE
        if isinstance(arg, tuple | list):
            if any(isinstance(item, Tensor) for item in arg):
                # A tuple is one value of the kernel, as for Concat.
                arrays.append(tuple(item.array if isinstance(item, Tensor) else item for item in arg))
                return _MANY
            # A list of numbers where a tensor is expected becomes one.
            if where in self.operands and arg:
                arrays.append(Tensor(arg).raw)
                return _ONE
        return static(arg)

    def _specialise(self, num_args: int, key: tuple[Any, ...]) -> Callable[..., Any]:
        """Compile the kernel for one pattern of values and attributes."""
        kernel, parameters = self.kernel, self.parameters
        names = [name for name, _ in key[num_args:]]
        # Attributes come from the constructor and from the call, so a name may be there twice.
        if len(set(names)) < len(names):
            raise TypeError(f"got an argument twice: {', '.join(names)}")

        def call(*arrays: Any) -> Any:
            remaining = iter(arrays)

            def fill(part: Any) -> Any:
                return next(remaining) if part is _ONE or part is _MANY else part[1]

            args = tuple(fill(part) for part in key[:num_args])
            kwargs = {name: fill(part) for name, part in key[num_args:]}
            # While tracing, so once per compiled program.
            parameters.check_call(args, kwargs)
            return kernel(*args, **kwargs)

        call.__name__ = call.__qualname__ = self.name
        # Kept even if the first call fails: the next one fails in tracing again.
        compiled = self._compiled[key] = jax.jit(call)
        return compiled

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SporaxError:
        """What JAX, numpy or Python refused, in the words of the operator's caller."""
        if isinstance(error, jax.errors.UnexpectedTracerError):
            return SporaxTypeError(f"For '{self.name}', {ENDED}.")
        # From the most likely mistake to the least: wrong names, wrong types, then what the kernel refused.
        try:
            self.__signature__.bind(*args, **kwargs)
        except TypeError as mismatch:
            return SporaxTypeError(f"For '{self.name}', {mismatch}; the signature is {self.usage}.")
        try:
            # The compiled call has checked already, but it may have failed before that.
            self.parameters.check_call(
                tuple(map(_unwrapped, args)), {name: _unwrapped(arg) for name, arg in kwargs.items()}
            )
        except SporaxError as mismatch:
            return mismatch
        described = [_describe(arg) for arg in args] + [f"{name}={_describe(arg)}" for name, arg in kwargs.items()]
        # IndexErrors of JAX are about axes and positions, which are ValueErrors in MindSpore.
        kind = SporaxValueError if isinstance(error, ValueError | IndexError) else SporaxTypeError
        # JAX's first line has the reason, further ones explain tracers.
        reason = str(error).split("\n")[0].rstrip(".")
        return kind(f"For '{self.name}', the arguments ({', '.join(described)}) do not fit: {reason}.")


class Composition(Operator[Result]):
    """An operator whose kernel is a Python function of Tensors, made of other operators.

    For what is not one compiled program: results whose shape depends on values, random draws, writes to Parameters.
    """

    composed = True

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: tuple[Any, ...] = (),
        primitive: Primitive | None = None,
    ) -> Any:
        """Call the kernel; operators in it leave marks of their own."""
        if primitive is not None and frames.planning():
            return between_marks(self, args, kwargs, constants, primitive)
        args, kwargs = self.with_known_ints(args, kwargs)
        # Constants carry their kinds in front, see `static`.
        settings = {**kwargs, **{name: part[1] for name, part in constants}}
        try:
            # Python's own TypeError would name the kernel.
            self.__signature__.bind(*args, **settings)
        except TypeError as mismatch:
            raise self._explain(mismatch, args, settings) from None
        try:
            return self.kernel(*args, **settings)
        except _MISFITS as error:
            # JAX's errors about tracers belong to whoever compiles, and what a function of the user raises to the user.
            if isinstance(error, SporaxError | jax.errors.JAXTypeError | jax.errors.JAXIndexError) or _is_of_the_user(
                error
            ):
                raise
            raise self._explain(error, args, settings) from None


def _is_of_the_user(error: BaseException) -> bool:
    """Whether code other than ours and that of the libraries below was running."""
    frame = error.__traceback__
    while frame is not None:
        if str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES:
            return True
        frame = frame.tb_next
    return False


def _finished(result: Any) -> Any:
    jax.block_until_ready([part.array for part in (result if isinstance(result, tuple) else (result,))])
    return result


def _without_gradient(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_without_gradient, result))
    return wrap(jax.lax.stop_gradient(result.array))


def _are_constant(value: Any) -> bool:
    """Whether everything in the arguments of a call is known while a step is being compiled; Parameters are not."""
    kind = type(value)
    if kind is tuple or kind is list:
        return all(map(_are_constant, value))
    if kind is dict:
        return all(map(_are_constant, value.values()))
    if isinstance(value, Tensor):
        # Parameters are subclasses of Tensor, and change.
        return kind is Tensor and is_constant(value.array)
    return is_constant(value)


def _known_form(value: Any) -> Any:
    """The arguments of a call with values in the place of tracers."""
    if isinstance(value, tuple | list):
        # Lists stay lists: kernels may distinguish them from tuples.
        return type(value)(map(_known_form, value))
    if isinstance(value, dict):
        return {name: _known_form(entry) for name, entry in value.items()}
    if isinstance(value, Tensor):
        return wrap(jnp.asarray(known(value.array)))
    return known(value) if isinstance(value, jax.core.Tracer) else value


_MISFITS = (TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What Python, numpy and JAX raise for arguments that a kernel cannot take."""
_LIBRARIES = sys.stdlib_module_names | {"sporax", "jax", "jaxlib", "numpy"}
_STATIC_TYPES = frozenset((int, float, bool, complex, str, type(None)))


def _unwrapped(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_unwrapped, value))
    return value.array if isinstance(value, Tensor) else value


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        # What draws gets a key, whose dtype is none of MindSpore's.
        is_key = jnp.issubdtype(value.array.dtype, jax.dtypes.prng_key)
        return "random key" if is_key else f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple | list) and any(isinstance(item, Tensor) for item in value):
        return f"({', '.join(map(_describe, value))})"
    return repr(value)


class _Registrar(Protocol):
    """Arrays that a kernel returns are Tensors for the operator's callers."""

    @overload
    def __call__(self, kernel: Callable[..., Array]) -> Operator[Tensor]: ...
    @overload
    def __call__(self, kernel: Callable[..., tuple[Array, Array]]) -> Operator[tuple[Tensor, Tensor]]: ...
    @overload
    def __call__(
        self, kernel: Callable[..., tuple[Array, Array, Array]]
    ) -> Operator[tuple[Tensor, Tensor, Tensor]]: ...
    @overload
    def __call__(self, kernel: Callable[..., tuple[Array, ...]]) -> Operator[tuple[Tensor, ...]]: ...
    @overload
    def __call__(self, kernel: Callable[..., Result]) -> Operator[Result]: ...


_FORM = re.compile(r"^(?P<name>[\w.]+)(?:\((?P<params>.*)\))?$")
_COMMA = re.compile(r",(?![^()]*\))")  # outside parentheses


def operator(
    primitive: str | None = None,
    *,
    function: str | None = None,
    method: str | None = None,
    mint: str | None = None,
    composed: bool = False,
    dims: Stated = None,
    form: type[Operator[Any]] = Operator,
    classes: dict[str, type[Any]] | None = None,
) -> _Registrar:
    """Make an operator of a kernel and register its forms.

    Args:
        primitive: name of the class form, with the attributes its constructor takes in order: ``"MatMul(transpose_a,
            transpose_b)"``. Without parentheses all attributes belong to the constructor; ``"Name()"``: none does.
        function: name in `sporax.mindspore.ops`; the kernel's by default, "" for none.
        method: names of Tensor methods, separated by commas; parameters that have another name there as for `mint`.
        mint: dotted names in `sporax.mindspore.mint`, separated by semicolons, with parameters that have another name there:
            ``"nn.functional.softmax(dim=axis)"``.
        composed: the kernel works on Tensors and calls other operators; see `Composition`.
        dims: of its tensors, see `_core.dims`: ``"n c h! w!"``, or a function of the call; element by element by default.
        form: class of the functional form.
        classes: register of the class form; `PRIMITIVES` by default.
    """

    def register(kernel: Callable[..., Any]) -> Operator[Any]:
        class_name, constructor = _parse(primitive or "")
        result = (Composition if composed else form)(class_name or kernel.__name__, kernel)
        result.dims = stated(result.name, dims)
        OPERATORS[result.name] = result
        name = kernel.__name__ if function is None else function
        if name:
            FUNCTIONS[name] = result
        if class_name:
            (PRIMITIVES if classes is None else classes)[class_name] = class_form(class_name, constructor, result)
        for path in filter(None, _COMMA.split(method or "")):
            own, renames = _parse(path.strip())
            add_method(Tensor, own, result, _pairs(renames))
        for path in filter(None, (mint or "").split(";")):
            dotted, renames = _parse(path.strip())
            MINT[dotted] = renamed(result, _pairs(renames))
        return result

    return register


def other_form(
    target: Operator[Any],
    primitive: str | None = None,
    parameters: str = "",
    *,
    function: str = "",
    method: str | None = None,
    mint: str | None = None,
    dims: Stated = None,
    classes: dict[str, type[Any]] | None = None,
    **defaults: Any,
) -> Operator[Any]:
    """Make another operator of the kernel of one, for a form that takes its parameters otherwise.

    Args:
        target: the operator.
        primitive, function, method, mint, dims, classes: of the new one, as for `operator`; no function by default.
        parameters: as for `Restated`, ``"prediction=input target reduction"``; those of the operator by default.
        defaults: of its parameters, where they differ.
    """
    of_namespace = (
        f"_mint_{_parse(mint.split(';')[0])[0].rpartition('.')[2]}" if mint else f"_{_parse(method or '')[0]}_method"
    )
    name = _parse(primitive or "")[0] or function or of_namespace
    make = operator(
        primitive, function=function, method=method, mint=mint, composed=target.composed, dims=dims, classes=classes
    )
    return make(Restated(target, name, parameters, defaults))


def _parse(form: str) -> tuple[str, tuple[str, ...] | None]:
    if not form:
        return "", None
    match = _FORM.match(form)
    assert match is not None, form
    params = match["params"]
    return match["name"], None if params is None else tuple(part.strip() for part in params.split(",") if part.strip())


def _pairs(renames: tuple[str, ...] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in renames or ())


def class_form(name: str, constructor: tuple[str, ...] | None, target: Operator[Any]) -> type[Primitive]:
    """The class of an operator, whose constructor takes these attributes (None: all)."""

    def made() -> dict[str, Any]:
        parameters = target.__signature__.parameters
        attributes = target.parameters.attributes if constructor is None else constructor
        values = [parameter for parameter in parameters.values() if parameter.name not in attributes]
        return {
            "attribute_names": attributes,
            "defaults": {
                attribute: parameters[attribute].default
                for attribute in attributes
                if parameters[attribute].default is not REQUIRED
            },
            # For `inspect` and `help`: all classes share one `__init__`, whose own signature says nothing.
            "__init__": with_parameters(Primitive.__init__, [parameters[attribute] for attribute in attributes]),
            "__call__": with_parameters(Primitive.__call__, values),
        }

    later = {part: LazyMembers(made) for part in ("attribute_names", "defaults", "__init__", "__call__")}
    # Class attributes in place of a constructor for each primitive: all differ in these only.
    body = {"operator": target, **later, "__doc__": target.__doc__, "__module__": "sporax.mindspore.ops"}
    return type(name, (Primitive,), body)


REQUIRED = inspect.Parameter.empty
"""The default of a parameter that has to be given."""


def export(*functions: Callable[..., Any], mint: str = "", method: bool = False) -> None:
    """Register functions composed of operators under their own names in `ops` (and Tensor, and `mint`)."""
    for function in functions:
        name = function.__name__
        FUNCTIONS[name] = function
        if method:
            add_method(Tensor, name, function, {})
        # A dotted name that ends with the function's is the whole name, otherwise a prefix.
        if mint:
            MINT[mint if mint.split(".")[-1] == name else f"{mint}{name}"] = function
