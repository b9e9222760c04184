"""All settings of a parallel run, as one frozen value.

The facade keeps the present `ParallelConfig` in its global context (`sporax.mindspore.context`). A step takes the present value
when it is compiled, and everything below the facade reads only that value. Fields are called like the keys of
`set_auto_parallel_context`, so one list of names serves the user, the planner and the documentation.

What the environment says about reuse: of communication (``MS_COMM_COMPILER_OPT``), and of whole blocks (our own switch).

Fusion ids: which gradients share a buffer, by position or by size.

Id 0 is not fused; equal ids above 0 share one buffer.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, fields

from sporax.base.lazy_members import dataclass
from sporax.ir.layout import Layout
from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.ir.variables import read


class ParallelMode:
    """Names of the ways a step can be spread over devices. Same as MindSpore.

    Example:
        >>> ParallelMode.SEMI_AUTO_PARALLEL
        'semi_auto_parallel'
    """

    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = [STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL]


PIPELINE_SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
OPTIMIZER_LEVELS = ("level1", "level2", "level3")
COMMUNI_PARALLEL_MODES = ("all_group_parallel", "same_server_group_parallel", "no_group_parallel")
MAX_RANKS = 4096
"""Most devices of a job, as in MindSpore."""
DEFAULT_FUSION_MEGABYTES = 64
"""Size of a buffer in megabytes with ``mode="auto"``, as in MindSpore."""

DatasetStrategy = str | tuple[tuple[int, ...], ...] | tuple[Layout, ...]
"""How input data arrives: ``"data_parallel"``, ``"full_batch"``, or shardings of each input."""


@dataclass(frozen=True, slots=True)
class FusionRule:
    """How collectives of one kind are put together into larger ones.

    Attributes:
        mode: ``"auto"``: buffers of 64 MB; ``"size"``: buffers of `config` MB; ``"index"``: split after these positions.
        config: None, megabytes, or positions in ascending order, after `mode`.
        configured: whether the user requested it; nothing is fused before that.
    """

    mode: str = "auto"
    config: int | tuple[int, ...] | None = None
    configured: bool = False

    @property
    def threshold_megabytes(self) -> int | None:
        """Size at which a buffer is full; 0 for no fusion, None where positions decide."""
        if self.mode == "auto":
            return DEFAULT_FUSION_MEGABYTES
        return self.config if isinstance(self.config, int) else None


@dataclass(frozen=True, slots=True)
class CommFusion:
    """Fusion of the collectives that a plan inserts.

    Attributes:
        openstate: the master switch.
        allreduce, allgather, reducescatter: one rule per kind of collective.
    """

    openstate: bool = True
    allreduce: FusionRule = FusionRule()
    allgather: FusionRule = FusionRule()
    reducescatter: FusionRule = FusionRule()

    def fusion_rule_for(self, kind: str) -> FusionRule | None:
        """The rule for collectives of a kind (``"allreduce"``, …), or None when these are not fused."""
        rule: FusionRule = getattr(self, kind)
        return rule if self.openstate and rule.configured else None


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """The settings of a parallel run. Field names are the keys of `set_auto_parallel_context`, but for `has_reduce_scatter`.

    `docs/parallel_context.md` says what each means and which part of the system reads it.

    Example:
        >>> config = ParallelConfig(device_num=8, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL, pipeline_stages=2)
        >>> config.num_stage_devices
        4
    """

    # The job. No user sets the last one: it says whether programs on its devices may scatter sums by one collective.
    device_num: int = 1
    global_rank: int = 0
    has_reduce_scatter: bool = True
    parallel_mode: str = ParallelMode.STAND_ALONE
    # Gradients and loss.
    gradients_mean: bool = False
    gradient_fp32_sync: bool = True
    loss_repeated_mean: bool = True
    parameter_broadcast: bool = False
    force_fp32_communication: bool = False
    # Data.
    dataset_strategy: DatasetStrategy = "data_parallel"
    # Shardings and search.
    search_mode: str = "recursive_programming"
    enable_alltoall: bool = False
    # Optimizer parallel; the threshold is in KB of a whole parameter.
    enable_parallel_optimizer: bool = False
    gradient_accumulation_shard: bool = False
    parallel_optimizer_threshold: int = 64
    optimizer_weight_shard_size: int = -1
    optimizer_level: str = "level1"
    optimizer_weight_shard_aggregated_save: bool = False
    # Pipeline.
    pipeline_stages: int = 1
    pipeline_segments: int = 1
    pipeline_interleave: bool = False
    pipeline_scheduler: str = "1f1b"
    pipeline_result_broadcast: bool = False
    auto_pipeline: bool = False
    pipeline_schedule: PipelineSchedule | None = None
    # Memory.
    recompute: str = ""
    # Communication.
    comm_fusion: CommFusion = field(default_factory=CommFusion)
    all_reduce_fusion_config: tuple[int, ...] = ()
    all_reduce_fusion_sizes: tuple[int, ...] = ()
    communi_parallel_mode: str = "all_group_parallel"
    # Files.
    strategy_ckpt_load_file: str = ""
    strategy_ckpt_save_file: str = ""
    strategy_ckpt_only_trainable_params: bool = True
    group_ckpt_save_file: str = ""
    op_strategy_load_file: str = ""
    op_strategy_save_file: str = ""
    # Parameters and debugging.
    init_param_in_compile: bool = True
    auto_parallel_new_interface: bool = False
    dump_local_norm: bool = False
    dump_local_norm_path: str = ""
    dump_device_local_norm: bool = False

    @property
    def full_batch(self) -> bool:
        """Whether every rank feeds the whole batch."""
        return self.dataset_strategy == "full_batch"

    @property
    def sharding_propagation(self) -> bool:
        """Whether the search propagates the shardings that the user gave."""
        return self.search_mode == "sharding_propagation"

    @property
    def in_global_view(self) -> bool:
        """Whether a plan shards the step (semi-auto and auto parallel), rather than the user's own code."""
        return self.parallel_mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)

    @property
    def num_stage_devices(self) -> int:
        """Devices of one pipeline stage."""
        return self.device_num // self.pipeline_stages

    def by_key(self) -> Mapping[str, Hashable]:
        """All settings by name."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}


VARIABLE = "MS_COMM_COMPILER_OPT"
SETTING = "SPORAX_REPEATED_BLOCKS"
"""Whether repeated blocks of a step become one body in a loop."""

DEFAULT_LIMIT = 1000
"""What ``-1`` stands for, as in MindSpore."""

_FEWEST = 2
"""Calls that make a subgraph worth its name."""


def reuse_limit(environ: Mapping[str, str]) -> int:
    """How many communication operators of a program may become calls of a subgraph; 0 for none.

    Raises:
        SporaxValueError: the text is no number.
    """
    number = read(environ, VARIABLE)
    if number is None:
        return 0
    if number == -1:
        return DEFAULT_LIMIT
    return number if number >= _FEWEST else 0


def warn_of_limit(environ: Mapping[str, str]) -> None:
    """Warn of a number of communication operators by which nothing is reused. MindSpore warns as well, but of 1.

    Raises:
        SporaxValueError: as `reuse_limit`.
    """
    number = read(environ, VARIABLE)
    if number is None or number == -1 or number >= _FEWEST:
        return
    reason = "is neither -1 nor positive" if number != 1 else "is too few, since a subgraph has 2 calls or more"
    warnings.warn(f"For '{VARIABLE}', {number} {reason}: nothing is reused.", stacklevel=2)


def wants_loops(environ: Mapping[str, str]) -> bool:
    """Whether the environment requests repeated blocks as loops."""
    return bool(read(environ, SETTING) == "1")


BYTES_PER_MEGABYTE = 1 << 20
"""MindSpore's megabytes."""
_FIRST_SPLIT_ID = 1 << 10
"""First number of buffers that are split by positions."""


def ids_by_position(count: int, last_of_each: Sequence[int]) -> list[int]:
    """Ids for arrays that are split after the given positions, these included; numbers beyond the end do nothing."""
    ids, current = [], _FIRST_SPLIT_ID
    for position in range(count):
        ids.append(current)
        current += position in last_of_each
    return ids


def ids_by_size(sizes: Sequence[int], threshold_bytes: int) -> list[int]:
    """Ids for arrays of these sizes in bytes: the one with which a buffer reaches the threshold opens the next buffer.

    A threshold of 0 fuses nothing.
    """
    if threshold_bytes <= 0:
        return [0] * len(sizes)
    ids, current, total = [], 1, 0
    for size in sizes:
        total += size
        # The array that fills the buffer opens the next one, and so is not in the full one.
        if total >= threshold_bytes:
            current, total = current + 1, 0
        ids.append(current)
    return ids


def ids_by_sizes(sizes: Sequence[int], limits: Sequence[int]) -> list[int]:
    """Ids for arrays of these sizes in bytes: the first buffer is closed when it holds `limits[0]` bytes, the second when it
    holds `limits[1]`, and so on; the last one, for which no limit is left, takes the rest.

    Example:
        >>> ids_by_sizes([4, 4, 4, 4, 4], [4, 8])
        [1, 2, 2, 3, 3]
    """
    ids: list[int] = []
    current, total = 0, 0
    for size in sizes:
        ids.append(current + 1)
        total += size
        # After the last limit, one buffer takes the rest.
        if current < len(limits) and total >= limits[current]:
            current, total = current + 1, 0
    return ids
