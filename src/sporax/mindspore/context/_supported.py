"""What a step may request today.

Settings are stored as soon as they are set. Whether the system can do what they request is said here, when a step is
compiled: a setting that would change the result and is not there yet is an error, never a silent run without it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable
from dataclasses import replace
from functools import cache

import jax

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir import config as config_values
from sporax.lowering.passes import SAVED_IN_FILES
from sporax.mindspore._names.missing import late
from sporax.mindspore.context._global import device_limit, get_context, graph_mode, memory_offload
from sporax.mindspore.context._groups import offload_snapshot, ps_snapshot, search_snapshot
from sporax.mindspore.context._nested import check_inputs
from sporax.mindspore.context._parallel import (
    PARALLEL_GUARD,
    gives_device_num,
    parallel_mode,
    ranks_of_process,
    snapshot,
    world_size,
)
from sporax.runtime import world
from sporax.runtime.process import dry_run
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage import DiskSettings, block_files

# Entries of `dataset_strategy` fit the inputs of a step; files that the settings name give strategies, and are written when it is
# planned.
SESSION.input_checks.append(check_inputs)
SESSION.strategy_sources.append(late("sporax.mindspore.context._strategy_files.files:loaded"))
SESSION.step_listeners.append(late("sporax.mindspore.context._strategy_files.files:save"))


def check_supported(config: config_values.ParallelConfig, num_devices: int) -> None:
    """Check that a step can be compiled under `config`.

    Args:
        config: the settings of the run.
        num_devices: how many ranks the job really has.

    Raises:
        SporaxRuntimeError: the settings contradict each other or the job, or request something that is not offered yet.
    """
    # Each stage gets the same number of devices.
    if config.device_num % config.pipeline_stages:
        raise For("set_auto_parallel_context").state_error(
            f"'device_num' must be divisible by 'pipeline_stages', but got {config.device_num} and {config.pipeline_stages}"
        )
    # Stages are made by the plan, which only these modes have.
    if config.pipeline_stages > 1 and not config.in_global_view:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', pipeline_stages={config.pipeline_stages} must come with 'parallel_mode' "
            f"'semi_auto_parallel' or 'auto_parallel', but got '{config.parallel_mode}'."
        )
    if config.in_global_view and config.gradients_mean and config.device_num > 1:
        _say_once(
            f"For 'gradients_mean', gradients in the parallel mode '{config.parallel_mode}' are divided by the number of devices "
            "that add them up, as in MindSpore; a loss that is a mean over the whole batch, as scripts of data parallelism have, "
            "is thus divided twice: leave the setting out there."
        )
    # In the modes by rank, each rank runs a program of its own, so their numbers must agree.
    by_rank = not config.in_global_view and config.parallel_mode != config_values.ParallelMode.STAND_ALONE
    if by_rank and config.device_num != num_devices:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'device_num' is {config.device_num}, but the job has {num_devices} "
            "rank(s). Start the script with a launcher and call communication.init(), or leave 'device_num' out."
        )


def check_with_servers() -> None:
    """Check that a step with Parameters on servers can be compiled under the present settings.

    Raises:
        SporaxRuntimeError: pipeline stages, or a step over several devices of this process.
    """
    config = snapshot()
    # A stage is a program of its own, and a worker makes one exchange a step.
    if config.pipeline_stages > 1:
        raise SporaxRuntimeError(
            f"For 'set_param_ps', 'pipeline_stages' must be 1, but got {config.pipeline_stages}: Parameters on servers are "
            "exchanged by the whole step of a worker. Keep the Parameters of a pipeline on the devices."
        )
    # The exchange is part of the program of every device, so each one would push the gradient.
    if config.in_global_view and config.device_num > 1 and jax.local_device_count() > 1:
        raise SporaxRuntimeError(
            f"For 'set_param_ps', a worker must have one device in the parallel mode '{config.parallel_mode}', but this process "
            f"has {jax.local_device_count()}. Start one worker per device, or leave Parameters on the devices."
        )


def plan_settings() -> config_values.PlanSettings | None:
    """The settings under which a step is sharded by a plan; None when it is not."""
    config = snapshot()
    # On one device there is nothing to divide.
    if not config.in_global_view or config.device_num == 1:
        return None
    # Environment variables may change a plan, too.
    return _settings_of(config).under(os.environ)


def _settings_of(config: config_values.ParallelConfig) -> config_values.PlanSettings:
    return config_values.PlanSettings(config, *search_snapshot(), max_device_bytes=device_limit())


def plan_settings_of_training() -> config_values.PlanSettings | None:
    """The settings under which a training step is planned that the script does not shard itself; None where it only runs.

    `sporax plan` shows the plan of any script over the devices there are: of a data-parallel one its own, in which operators
    divide the batch as they do without strategies; of others that of automatic parallelism.

    Raises:
        SporaxRuntimeError: there is one device.
    """
    # A script that shards itself is planned under its own settings.
    if not SESSION.plans_all or plan_settings() is not None:
        return None
    # `--devices` simulates more devices than there are.
    devices = max(snapshot().device_num, jax.device_count())
    if devices == 1:
        raise For("sporax plan").state_error(
            "a training step is planned over more than one device, but there is 1. `--devices 8` simulates eight"
        )
    mode = (
        config_values.ParallelMode.SEMI_AUTO_PARALLEL if SESSION.by_rank() else config_values.ParallelMode.AUTO_PARALLEL
    )
    parallel = replace(snapshot(), parallel_mode=mode, device_num=devices)
    return _settings_of(parallel).under(os.environ)


def plans_only() -> bool:
    """Whether this process makes plans of all training steps and neither trains nor writes."""
    return SESSION.plans_all


def check_step() -> None:
    """Check that a step can be compiled under the present settings, all groups of them.

    Raises:
        SporaxRuntimeError: as `check_supported`.
    """
    config = snapshot()
    here = config.device_num if plans_only() else world.num_ranks_here()
    if config.parallel_mode == config_values.ParallelMode.STAND_ALONE:
        _note_single_device()
    elif not config.in_global_view:
        _note_idle_devices(config)
    elif config.device_num == 1 and not gives_device_num():
        note_not_joined(f"'parallel_mode' {config.parallel_mode}")
    check_supported(config, world_size() * min(here, jax.local_device_count()))


def _note_idle_devices(config: config_values.ParallelConfig) -> None:
    """Say that steps by rank leave devices of this process idle, where they do."""
    own = jax.local_device_count()
    if jax.process_count() > 1 or own == 1 or dry_run.active():
        return
    if not gives_device_num():
        note_not_joined(f"'parallel_mode' {config.parallel_mode}")
    elif config.device_num == 1:
        warnings.warn(
            f"For 'set_auto_parallel_context', 'device_num' is 1, so one of the {own} devices of this process does all the "
            "work. Leave it out, or set it to get_group_size().",
            stacklevel=2,
        )


def shards_compiled_steps() -> bool:
    """Whether operators are sharded in compiled steps only, and what runs now is none: a sharding mode in PYNATIVE_MODE."""
    config = snapshot()
    return config.in_global_view and config.device_num > 1 and not graph_mode()


def refuse_eager(where: str) -> None:
    """Refuse to run a network operator by operator where its operators would have to be sharded.

    In automatic parallelism that is allowed: what `shard` wraps is sharded there, the rest runs whole.

    Raises:
        SporaxRuntimeError: semi-automatic parallelism on several devices in PYNATIVE_MODE.
    """
    if parallel_mode() == config_values.ParallelMode.SEMI_AUTO_PARALLEL and shards_compiled_steps():
        raise SporaxRuntimeError(
            f"For '{where}', the mode must be GRAPH_MODE in the parallel mode 'semi_auto_parallel', but it is PYNATIVE_MODE, in "
            "which operators run one by one and cannot be sharded. Call set_context(mode=GRAPH_MODE), compile the step with jit, "
            "or wrap the network in AutoParallel."
        )


def note_not_joined(what: str) -> bool:
    """Say once that one of several devices works, before `init`; returns whether that is so."""
    alone = world.world() is None and jax.local_device_count() > 1
    if alone:
        _say_once(
            f"For {what}, the ranks have not been joined, so one of the {jax.local_device_count()} devices of this process does "
            "all the work. Call communication.init() first."
        )
    return alone


def _note_single_device() -> None:
    """Say once that one of several devices works, to a script that has counted them and set no parallel mode."""
    if (SESSION.reported_size or 1) > 1 and ranks_of_process() > 1:
        _say_once(
            f"For 'get_group_size', there are {SESSION.reported_size} ranks, but one of the {ranks_of_process()} devices of this "
            "process does all the work in the parallel mode 'stand_alone'. Set another mode to use all of them."
        )


def note_size_of_all_ranks(num_ranks: int) -> None:
    """Say once that a data set counts the rows of all ranks, to a script that has set no parallel mode yet."""
    if parallel_mode() == config_values.ParallelMode.STAND_ALONE:
        _say_once(
            f"For 'get_dataset_size', the rows of all {num_ranks} ranks are counted, since one device reads them in the parallel "
            "mode 'stand_alone'. Set the parallel mode before: in 'data_parallel' the size is that of one rank."
        )


@cache
def _say_once(text: str) -> None:
    if SESSION.job[1] == 0:  # all ranks would say the same
        dry_run.say(text)


class _StepGuard:
    """What a compiled step remembers of the settings next to the parallel ones that would refuse it."""

    def fingerprint(self) -> dict[str, Hashable]:
        """The switches by name; how to search, where plans are searched for."""
        config = snapshot()
        # How to search matters only where plans are searched for.
        searches = config.parallel_mode == config_values.ParallelMode.AUTO_PARALLEL
        # Ranks and plans have devices of their own.
        chosen = config.device_num == 1
        return {
            # Each entry changes what a step is compiled to.
            "enable_ps": ps_snapshot().enable_ps,
            "memory_offload": offload_tags(),
            "repeated blocks": config_values.wants_loops(os.environ),
            "communication reuse": os.environ.get(config_values.VARIABLE),
            "search": search_snapshot() if searches else None,
            "max_device_memory": device_limit(),
            "recompute within": _recompute_limit() if config.recompute == "auto" else None,
            "device": (get_context("device_target"), get_context("device_id")) if chosen else None,
        }

    def describe(self) -> str:
        """What messages call it."""
        return "the context"


_STEP_GUARD = _StepGuard()


def enter_step() -> None:
    """Check the present settings for a step that is being traced, and let it depend on them.

    It is the first thing a compiled step does while it is traced, so calls of a compiled step cost nothing more.

    Raises:
        SporaxRuntimeError: as `check_step`.
    """
    # From now on a change of these settings makes the step stale.
    check_step()
    config_values.warn_of_limit(os.environ)
    frames.depend_on(PARALLEL_GUARD)
    frames.depend_on(_STEP_GUARD)
    if config_values.wants_loops(os.environ):
        frames.note_tag("blocks")
    if snapshot().recompute == "auto":
        # Tags become part of the step's key, since a limit changes what is recomputed.
        frames.note_tag("recompute auto")
        frames.note_tag(f"recompute within {_recompute_limit()}")
    for tag in offload_tags():
        frames.note_tag(tag)


def _recompute_limit() -> int:
    """Bytes of one device that the user allows for; 0 for all there are."""
    cost = search_snapshot()[1]
    # The default of the cost model is no statement about this machine.
    capacity = int(cost.device_memory_capacity) if "device_memory_capacity" in cost.changed else 0
    limits = [limit for limit in (device_limit(), capacity) if limit]
    return min(limits, default=0)


def offload_tags() -> tuple[str, ...]:
    """The settings of memory offload, as tags of steps (`runtime.storage.host_memory`, `lowering.passes.pass_tags`)."""
    if not memory_offload():
        return ()
    config = offload_snapshot()
    above: int | None
    if config.auto_offload:
        # Without a limit the switch's own default decides.
        limit = device_limit() or get_context("max_device_memory") * 2**30
        above = int(limit * config.hbm_ratio)
    else:
        # 0: everything goes to the host; None: nothing does.
        above = 0 if config.offload_param else None
    tags: list[str] = []
    if "disk" in (config.offload_param, config.offload_checkpoint):
        tags.append(block_files.files_tag(_disk_settings(config)))
    if above is not None and config.offload_param == "disk":
        tags.append(block_files.above_tag(above))
    elif above is not None:
        size = config.offload_cpu_size.removesuffix("GB")
        # -1 stands for no limit.
        within = int(float(size) * 2**30 * config.cpu_ratio) if size else -1
        tags += ["host", f"offload above {above} within {within}"]
    by_target = {"": (), "cpu": ("offload kept",), "disk": (SAVED_IN_FILES,)}[config.offload_checkpoint]
    return (*tags, *by_target)


def _disk_settings(config: config_values.OffloadConfig) -> DiskSettings:
    return DiskSettings(
        folder=config.offload_path,
        limit_bytes=_num_bytes(config.offload_disk_size),
        block_bytes=_num_bytes(config.aio_block_size),
        queue_depth=config.aio_queue_depth,
        asynchronous=config.enable_aio,
    )


def _num_bytes(size: str) -> int:
    """Bytes of a size in GB; 0 where none was given."""
    return int(float(size.removesuffix("GB")) * 2**30) if size else 0
