"""Marks on a Cell that say where and how it runs. Plans and runners read them; each is checked when it is set."""

from __future__ import annotations

from typing import Any, Self

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import context
from sporax.mindspore.common.recompute import checked_settings
from sporax.mindspore.nn._tree import AnyCell, CellTree
from sporax.mindspore.ops._core.primitive import strategy_form
from sporax.mindspore.ops._core.sharded_call import check_options, checked_outputs, checked_plan
from sporax.runtime import ranks as between_ranks
from sporax.runtime.state import frames


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
        # None leaves an input to the planner.
        strategy_form(name, "in_strategy", tuple(entry for entry in _tuple(name, in_strategy) if entry is not None))
        if out_strategy is not None:
            checked_outputs(name, out_strategy)
        if parameter_plan is not None and not isinstance(parameter_plan, dict):
            raise SporaxTypeError.must(f"{name}.shard", "parameter_plan", "be a dict", type(parameter_plan).__name__)
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
        between_ranks.placed_calls.check_place(type(self).__name__, role, rank_id, context.snapshot().parallel_mode)
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


def _tuple(name: str, value: Any) -> tuple[Any, ...]:
    check_type(f"{name}.shard", "in_strategy", value, "a tuple", tuple)
    return value


def _natural(cell: str, what: str, value: Any) -> int:
    check_type(cell, what, value, "an int", int, takes_bool=False)
    if value < 0:
        raise SporaxValueError(f"For '{cell}', '{what}' must be >= 0, but got {value}.")
    return value
