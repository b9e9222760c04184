"""Marks on a Cell that say where and how it runs. Plans and runners read them; each is checked when it is set.

The tree of Cells: walking it, naming what is in it, collecting Parameters.

Names follow MindSpore: a Parameter is called by the path of attributes that leads to it from the Cell where collecting
starts; the path is fixed when a Cell becomes part of another (`auto_prefix`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

from sporax.base.errors import For, SporaxKeyError, SporaxRuntimeError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.recompute import checked_settings
from sporax.mindspore.ops import _core
from sporax.mindspore.ops._core.primitive import strategy_form
from sporax.mindspore.ops._core.sharded_call import check_options, checked_outputs, checked_plan
from sporax.runtime.state import frames

AnyCell = TypeVar("AnyCell", bound="CellTree[Any]")
"""`Cell` itself, which this module comes before."""


class CellTree(Generic[AnyCell]):
    """Children and Parameters of a Cell. Mixed into `Cell`."""

    _cells: dict[str, AnyCell | None]
    _params: dict[str, Parameter | None]
    _param_prefix: str

    def cells(self) -> Iterable[AnyCell]:
        """The direct children."""
        return self.name_cells().values()

    def name_cells(self) -> dict[str, AnyCell]:
        """The direct children by attribute name; a child with two names appears once."""
        seen: set[int] = set()
        cells: dict[str, AnyCell] = {}
        for name, child in self._cells.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                cells[name] = child
        return cells

    def cells_and_names(
        self, cells: set[AnyCell] | None = None, name_prefix: str = ""
    ) -> Iterator[tuple[str, AnyCell]]:
        """This Cell and all below it with their paths; this one's is `name_prefix`. Each Cell once.

        Args:
            cells: Cells to leave out, with all that is below them.
            name_prefix: put in front of every path.
        """
        return self._walk(name_prefix, set(map(id, cells or ())))

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, AnyCell]]:
        # A Cell that is reached by two paths is given once, under the first.
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self  # type: ignore[misc]  # self is a Cell
        for name, child in self._cells.items():
            if child is not None:
                yield from child._walk(f"{prefix}.{name}" if prefix else name, seen)

    def insert_child_to_cell(self, child_name: str, child_cell: AnyCell | None) -> None:
        """Add a child, or None as the place of one, under a name, without renaming its Parameters.

        Raises:
            SporaxTypeError: the name is not a string or the child not a Cell.
            SporaxKeyError: the name is empty, contains a dot, or is taken by something that is not a Cell.
        """
        For("insert_child_to_cell").typed("child_name", child_name, "a string", str)
        if not child_name or "." in child_name or (hasattr(self, child_name) and child_name not in self._cells):
            raise SporaxKeyError(
                f"For 'insert_child_to_cell', the name '{child_name}' is empty, contains '.', or is taken by another attribute."
            )
        For("insert_child_to_cell").typed("child_cell", child_cell, "a Cell or None", CellTree | None)
        # Past `__setattr__`, which would rename the child's Parameters.
        self._cells[child_name] = child_cell
        object.__setattr__(self, child_name, child_cell)
        frames.touch()

    def insert_param_to_cell(
        self, param_name: str, param: Parameter | None, check_name_contain_dot: bool = True
    ) -> None:
        """Add a Parameter, or None as the place of one, under a name, which an unnamed Parameter takes as its own.

        Raises:
            SporaxKeyError: the name is empty, contains a dot, or is taken by something that is not a Parameter.
            SporaxTypeError: `param` is not a Parameter.
        """
        if not param_name or (check_name_contain_dot and "." in param_name):
            raise SporaxKeyError(
                f"For 'insert_param_to_cell', the name must not be empty or contain '.', got '{param_name}'."
            )
        if param_name not in self._params and param_name in self.__dict__:
            raise SporaxKeyError(f"For 'insert_param_to_cell', the name '{param_name}' is taken by another attribute.")
        For("insert_param_to_cell").typed("param", param, "a Parameter or None", Parameter | None)
        # A Parameter that the user has named keeps its name.
        if param is not None and not param._named:
            param.name = self._param_prefix + param_name
        self._params[param_name] = param
        object.__setattr__(self, param_name, param)
        frames.touch()

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Parameters with the attribute paths that lead to them, own ones first; each Parameter once.

        Args:
            name_prefix: put in front of every path.
            expand: include those of the Cells below.
        """
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix=name_prefix) if expand else ((name_prefix, self),):
            for name, parameter in cell._params.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{path}.{name}" if path else name, parameter

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """Parameters, own ones first; each once."""
        return (parameter for _, parameter in self.parameters_and_names(expand=expand))

    def parameters_dict(self, recurse: bool = True) -> dict[str, Parameter]:
        """Parameters by their own names."""
        return {parameter.name: parameter for parameter in self.get_parameters(expand=recurse)}

    def parameters_broadcast_dict(self, recurse: bool = True) -> dict[str, Parameter]:
        """Parameters that all ranks start from in common (not ``layerwise_parallel``) by their own names."""
        return {p.name: p for p in self.get_parameters(expand=recurse) if not p.layerwise_parallel}

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters with ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(expand=recurse) if parameter.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters without ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(expand=recurse) if not parameter.requires_grad]

    def get_func_graph_proto(self) -> Any:
        """Refused: there is no MindSpore graph behind a Cell here."""
        raise For("Cell").type_error("there is no function graph; see Cell.compile and sporax.mindspore.recompilations")

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Name all Parameters by their attribute paths, with `prefix` in front.

        This is what happens to the Parameters of a Cell that becomes part of another, so names of their own last only in
        the outermost Cell, as in MindSpore.

        Raises:
            SporaxTypeError: `prefix` is not a string.
        """
        For("update_parameters_name").typed("prefix", prefix, "a string", str)
        for path, parameter in self.parameters_and_names(expand=recurse):
            parameter.name = prefix + path

    def update_cell_prefix(self) -> None:
        """Set the path of every Cell below, which later unnamed Parameters take as prefix."""
        for path, cell in self.cells_and_names():
            cell._param_prefix = f"{path}." if path else ""

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Make the values of all lazy Parameters now."""
        return {parameter: parameter.init_data() for parameter in self.get_parameters()}


class PlacementMarks(CellTree[AnyCell]):
    """Parallel marks of a Cell. Mixed into `Cell`."""

    _marks: dict[str, Any]

    @property
    def marks(self) -> dict[str, Any]:
        """All marks of this Cell by name."""
        return dict(self._marks)

    def _mark(self, name: str, value: Any) -> None:
        # Marks become part of a program's key, so programs with others are stale.
        self._marks[name] = value
        frames.touch()

    @property
    def pipeline_stage(self) -> int | None:
        """Pipeline stage this Cell belongs to; None: its parent's."""
        return self._marks.get("pipeline_stage")

    @pipeline_stage.setter
    def pipeline_stage(self, value: int) -> None:
        self._mark("pipeline_stage", _natural(type(self).__name__, "pipeline_stage", value))

    @property
    def pipeline_segment(self) -> int | None:
        """Virtual segment for interleaved schedules; None: its parent's."""
        return self._marks.get("pipeline_segment")

    @pipeline_segment.setter
    def pipeline_segment(self, value: int) -> None:
        self._mark("pipeline_segment", _natural(type(self).__name__, "pipeline_segment", value))

    def shard(
        self,
        in_strategy: Any,
        out_strategy: Any = None,
        parameter_plan: dict[str, Any] | None = None,
        device: str = "Ascend",
        level: int = 0,
    ) -> Self:
        """Say how the inputs of this Cell are sharded; the operators inside follow. Returns the Cell, ready to be called.

        Args:
            in_strategy: one entry per input: tuple of ints, Layout, or None to leave it to the planner.
            out_strategy: likewise for the outputs, or None.
            parameter_plan: shardings of Parameters by name, ``{"fc.weight": (8, 1)}``. Unknown names are ignored with a warning.
            device: ``"Ascend"``, ``"GPU"`` or ``"CPU"``.
            level: 0, 1 or 2; of MindSpore's search, so others than 0 are accepted with a warning.

        Raises:
            SporaxTypeError: an argument of the wrong kind.
            SporaxValueError: `parameter_plan` has a sharding that does not fit its Parameter.
        """
        name = type(self).__name__
        entries = For(f"{name}.shard").typed("in_strategy", in_strategy, "a tuple", tuple)
        # None leaves an input to the planner.
        strategy_form(name, "in_strategy", tuple(entry for entry in entries if entry is not None))
        if out_strategy is not None:
            checked_outputs(name, out_strategy)
        For(f"{name}.shard").typed("parameter_plan", parameter_plan, "a dict", dict | None)
        check_options(f"{name}.shard", device, level)
        plan = checked_plan(f"{name}.shard", self, parameter_plan or {})
        self._mark("shard", (in_strategy, out_strategy, plan, device, level))
        return self

    def recompute(
        self,
        *,
        use_reentrant: bool = True,
        output_recompute: bool = False,
        early_stop: bool = True,
        context_fn: Any = None,
        **kwargs: bool,
    ) -> None:
        """Compute the inside of this Cell again in the backward pass instead of keeping it. Values do not change.

        Args:
            use_reentrant, early_stop, context_fn: settings of MindSpore's eager engine, with no counterpart here.
            output_recompute: recompute the Cell's output as well.
            kwargs: ``mp_comm_recompute``, ``parallel_optimizer_comm_recompute``, ``recompute_slice_activation``.

        Raises:
            SporaxValueError: unknown setting.
            SporaxTypeError: a setting that is not a bool.
        """
        settings = checked_settings("Cell.recompute", {"output_recompute": output_recompute, **kwargs})
        # `setdefault`: the settings of the first call stay.
        self._marks.setdefault("recompute", settings)
        frames.touch()

    def set_comm_fusion(self, fusion_type: int, recurse: bool = True) -> Self:
        """Set ``comm_fusion`` of the trainable Parameters.

        Raises:
            SporaxTypeError, SporaxValueError: `fusion_type` is not an int >= 0.
            SporaxRuntimeError: in PYNATIVE_MODE with semi-automatic or automatic parallelism, which shard compiled steps.
        """
        # Fusion ids matter only where a plan decides about collectives.
        if context.shards_compiled_steps():
            raise SporaxRuntimeError(
                f"For '{type(self).__name__}.set_comm_fusion', the mode must be GRAPH_MODE in the parallel mode "
                f"'{context.snapshot().parallel_mode}', but it is PYNATIVE_MODE."
            )
        for parameter in self.trainable_params(recurse):
            parameter.comm_fusion = fusion_type
        return self

    def set_data_parallel(self) -> Self:
        """Keep the operators of this Cell batch-parallel in automatic search."""
        # Every Cell below, since the mark is looked up where an operator runs.
        for _, cell in self.cells_and_names():
            cell._mark("strategy_gen_mode", "data_parallel")  # type: ignore[attr-defined]  # all Cells have these marks
        return self

    def place(self, role: str, rank_id: int) -> None:
        """Let one worker of the job compute this Cell and its derivative; the others receive the results.

        As `Primitive.place`, for everything inside. All workers hold the Parameters.

        Raises:
            SporaxTypeError, SporaxValueError, SporaxRuntimeError: as `Primitive.place`.
        """
        _core.placed_calls.check_place(type(self).__name__, role, rank_id, context.snapshot().parallel_mode)
        self._mark("place", rank_id)

    def set_param_ps(self, recurse: bool = True, init_in_server: bool = False) -> None:
        """Let parameter servers keep and update the trainable Parameters. Call it before the first training step.

        Args:
            recurse: of inner Cells, too.
            init_in_server: the servers make the first values; for embedding tables only.

        Raises:
            SporaxRuntimeError, SporaxTypeError: as `Parameter.set_param_ps`.
        """
        for parameter in self.trainable_params(recurse):
            parameter.set_param_ps(init_in_server)

    def offload(self, backward_prefetch: str | int = "Auto") -> None:
        """Keep what this Cell computes for the backward pass in host memory until it is read. Values do not change.

        Works in compiled steps of every kind: of one device, that a plan shards, of pipeline stages and of ranks.

        Args:
            backward_prefetch: how many calls earlier values are brought back; ``"Auto"`` is one.

        Raises:
            SporaxTypeError, SporaxValueError: neither ``"Auto"`` nor an int >= 0.
        """
        if isinstance(backward_prefetch, str):
            if backward_prefetch != "Auto":
                raise SporaxValueError(
                    f"For 'Cell.offload', 'backward_prefetch' must be 'Auto' or an int >= 0, but got '{backward_prefetch}'."
                )
            # One call ahead hides the transfer behind the computation.
            ahead = 1
        else:
            ahead = _natural("Cell.offload", "backward_prefetch", backward_prefetch)
        self._mark("offload", ahead)


def _natural(cell: str, what: str, value: Any) -> int:
    For(cell).typed(what, value, "an int", int, takes_bool=False)
    For(cell).refuse(value < 0, f"'{what}' must be >= 0", value)
    return value
