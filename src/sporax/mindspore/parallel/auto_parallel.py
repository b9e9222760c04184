"""`AutoParallel`: a network with parallel settings of its own, instead of those of the whole process.

While the wrapped network is traced, its settings are the present ones; afterwards the global ones are back. On one device
every mode runs the network as it is.

Where the shardings of operators are saved to, or loaded from: `set_op_strategy_config`. What data sets read of the
step that they feed: how its inputs are sharded, where one process feeds all slices.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol
from weakref import ref

from sporax.base.errors import For, SporaxKeyError, SporaxValueError, did_you_mean, named
from sporax.ir import Layout as LayoutValue
from sporax.ir.config import OPTIMIZER_LEVELS, PIPELINE_SCHEDULERS, ParallelConfig, ParallelMode, full_name
from sporax.mindspore import context
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel import auto_parallel
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames


def set_op_strategy_config(mode: str = "SAVE", path: str = "") -> None:
    """Save the shardings of operators to a JSON file when a step is planned, or take them from one.

    Args:
        mode: ``"SAVE"`` or ``"LOAD"``.
        path: absolute path that ends in ``.json``.

    Raises:
        SporaxKeyError: another mode, or a path that is not absolute or does not end in ``.json``.
        SporaxTypeError: `path` is not a string.
    """
    check_operator_file("set_op_strategy_config", "path", path)
    For("set_op_strategy_config").one_of("mode", mode, ("SAVE", "LOAD"), kind=SporaxKeyError)
    if mode == "SAVE":
        context.set_auto_parallel_context(op_strategy_save_file=path)
    else:
        context.set_auto_parallel_context(op_strategy_load_file=path)


def check_operator_file(function: str, name: str, path: Any) -> str:
    """An absolute path of a JSON file.

    Raises:
        SporaxKeyError: not absolute, or another ending.
        SporaxTypeError: not a string.
    """
    For(function).typed(name, path, "a string", str)
    if not os.path.isabs(path) or not path.endswith(".json"):
        raise For(function).fault(
            SporaxKeyError, f"{named(name)} must be an absolute path ending in '.json'", f"'{path}'"
        )
    return path


# AutoParallel's name of a mode: the settings it stands for.
_MODES = {
    "semi_auto": {"parallel_mode": ParallelMode.SEMI_AUTO_PARALLEL},
    "sharding_propagation": {"parallel_mode": ParallelMode.AUTO_PARALLEL, "search_mode": "sharding_propagation"},
    "recursive_programming": {"parallel_mode": ParallelMode.AUTO_PARALLEL, "search_mode": "recursive_programming"},
}


class AutoParallel(Cell):
    """A network (or a function) that runs in parallel by settings of its own, always compiled. Same as MindSpore.

    Args:
        network: the Cell or function to run.
        parallel_mode: ``"semi_auto"``, ``"sharding_propagation"`` or ``"recursive_programming"``.

    Raises:
        SporaxValueError: another mode.
        SporaxTypeError: `network` cannot be called.
        SporaxRuntimeError: at the first run, when the settings request something that is not offered yet.

    Example:
        >>> net = AutoParallel(net, parallel_mode="semi_auto")
        >>> net.dataset_strategy("full_batch")
        >>> output = net(x)
    """

    always_compiled = True

    def __init__(self, network: Callable[..., Any], parallel_mode: str = "semi_auto") -> None:
        super().__init__(auto_prefix=False)
        if isinstance(parallel_mode, str):
            parallel_mode = full_name(parallel_mode)
        if parallel_mode not in _MODES:
            raise SporaxValueError(
                f"For 'AutoParallel', 'parallel_mode' must be one of {list(_MODES)}, but got {parallel_mode!r}."
                f"{did_you_mean(parallel_mode, _MODES)}"
            )
        if not callable(network):
            raise For("AutoParallel").type_error("'network' must be a Cell or a function", type(network).__name__)
        self.network = network
        self._settings = ParallelConfig(
            enable_alltoall=True,
            # MindSpore's new interface has this on; in the context it is off by default.
            auto_parallel_new_interface=True,
            **_MODES[parallel_mode],  # type: ignore[arg-type]  # values of one table with several types
        )

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """The network's outputs."""
        config = self.parallel_config
        context.check_supported(config, context.world_size())
        with context.using(config):
            # The program that is being traced learns here that it must be planned.
            frames.request_plan(context.plan_settings())
            return self.network(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network compiled, in either mode."""
        # Inside of another program the network becomes a part of it.
        if frames.current_frame() is not None:
            return self._run(*args, **kwargs)
        with context.using(self.parallel_config):
            return self.program(*args, **kwargs)

    @property
    def parallel_config(self) -> ParallelConfig:
        """The settings that the network runs under; on one device the mode is stand_alone."""
        num_devices = context.num_devices()
        settings: dict[str, Any] = {"device_num": num_devices, "global_rank": context.snapshot().global_rank}
        if num_devices == 1:
            context.note_not_joined("'AutoParallel'")
            # One device needs no plan, and programs for it stay quick to compile.
            settings.update(parallel_mode=ParallelMode.STAND_ALONE, pipeline_stages=1)
        return context.changed(self._settings, **settings)

    def fingerprint(self) -> Mapping[str, Hashable]:
        """What a compiled program takes as fixed: that of a Cell, and the settings."""
        # A change of the settings must make a new program.
        return {**super().fingerprint(), **self._settings.by_key()}

    def dataset_strategy(self, config: Any) -> None:
        """Say how input data arrives: ``"data_parallel"``, ``"full_batch"``, or the shardings of each input.

        Raises:
            SporaxValueError: None, or an unknown string.
            SporaxTypeError: neither string nor tuple, or entries that are not all tuples of ints or all Layouts.
        """
        For("AutoParallel.dataset_strategy").refuse(config is None, "'config' must be a string or a tuple", "None")
        self._set(dataset_strategy=config)
        # Data sets query the last wrapped network how its inputs arrive.
        auto_parallel.remember(self)

    def hsdp(self, shard_size: int = -1, threshold: int = 64, optimizer_level: str = "level1") -> None:
        """Shard weights and optimizer state over the ranks that repeat them.

        Args:
            shard_size: ranks that share one weight; -1 for all that repeat it.
            threshold: weights of less than this many KB stay whole.
            optimizer_level: ``"level1"`` weights and state, ``"level2"`` gradients too, ``"level3"`` weights are gathered
                again for the backward pass.

        Raises:
            SporaxValueError: a value that is not allowed, whatever its type.
        """
        if not _is_int(shard_size) or (shard_size < 1 and shard_size != -1):
            raise For("AutoParallel.hsdp").error("'shard_size' must be -1 or a positive int", repr(shard_size))
        if not _is_int(threshold) or threshold < 0:
            raise SporaxValueError(f"For 'AutoParallel.hsdp', 'threshold' must be an int >= 0, but got {threshold!r}.")
        For("AutoParallel.hsdp").one_of("optimizer_level", optimizer_level, OPTIMIZER_LEVELS)
        self._set(
            enable_parallel_optimizer=True,
            parallel_optimizer_config={
                # Level 2 differs from level 1 only by sharded gradient accumulation.
                "gradient_accumulation_shard": optimizer_level == "level2",
                "parallel_optimizer_threshold": threshold,
                "optimizer_weight_shard_size": shard_size,
                "optimizer_level": optimizer_level,
            },
        )

    def pipeline(
        self, stages: int = 1, output_broadcast: bool = False, interleave: bool = False, scheduler: str = "1f1b"
    ) -> None:
        """Run the network as a pipeline.

        Args:
            stages: number of stages; the devices are sharded into that many blocks.
            output_broadcast: give the last stage's output to all stages.
            interleave: let a device hold several segments.
            scheduler: order of the micro batches: ``"1f1b"``, ``"gpipe"``, ….

        Raises:
            SporaxTypeError: a value of the wrong type, or a scheduler that needs `interleave`.
            SporaxValueError: less than one stage, or an unknown scheduler.
        """
        For("AutoParallel.pipeline").typed("scheduler", scheduler, "a string", str)
        For("AutoParallel.pipeline").one_of("scheduler", scheduler, PIPELINE_SCHEDULERS)
        self._set(
            pipeline_stages=stages,
            pipeline_result_broadcast=output_broadcast,
            pipeline_config={"pipeline_interleave": interleave, "pipeline_scheduler": scheduler},
        )

    def get_pipeline_stages(self) -> int:
        """Number of pipeline stages."""
        return self._settings.pipeline_stages

    def comm_fusion(self, config: dict[str, Any] | None) -> None:
        """Say how collectives are put together; None changes nothing. ``docs/parallel_context.md`` has the rules.

        Raises:
            SporaxTypeError, SporaxKeyError, SporaxValueError: as `set_auto_parallel_context`.
        """
        if config is not None:
            self._set(comm_fusion=config)

    def enable_fp32_communication(self) -> None:
        """Reduce forward values in float32."""
        self._set(force_fp32_communication=True)

    def enable_gradients_mean(self) -> None:
        """Divide summed gradients by the number of replicas."""
        self._set(gradients_mean=True)

    def disable_gradient_fp32_sync(self) -> None:
        """Reduce gradients in their own dtype."""
        self._set(gradient_fp32_sync=False)

    def disable_loss_repeated_mean(self) -> None:
        """Do not divide the gradient of a loss that several ranks compute by their number."""
        self._set(loss_repeated_mean=False)

    def load_param_strategy_file(self, file_path: str) -> None:
        """Take the shardings of Parameters from a strategy file.

        Raises:
            SporaxTypeError: not a string.
        """
        self._set(strategy_ckpt_load_file=file_path)

    def save_param_strategy_file(self, file_path: str) -> None:
        """Save the shardings of Parameters to a strategy file.

        Raises:
            SporaxTypeError: not a string.
        """
        self._set(strategy_ckpt_save_file=file_path)

    def disable_strategy_file_only_for_trainable_params(self) -> None:
        """Let strategy files hold all Parameters, not only the trainable ones."""
        self._set(strategy_ckpt_config={"only_trainable_params": False})

    def load_operator_strategy_file(self, file_path: str) -> None:
        """Take the shardings of operators from a JSON file.

        Raises:
            SporaxTypeError: not a string.
            SporaxKeyError: not absolute, or not ending in ``.json``.
        """
        check_operator_file("AutoParallel.load_operator_strategy_file", "file_path", file_path)
        self._set(op_strategy_load_file=file_path)

    def save_operator_strategy_file(self, file_path: str) -> None:
        """Save the shardings of operators to a JSON file.

        Raises:
            SporaxTypeError: not a string.
            SporaxKeyError: not absolute, or not ending in ``.json``.
        """
        check_operator_file("AutoParallel.save_operator_strategy_file", "file_path", file_path)
        self._set(op_strategy_save_file=file_path)

    def set_group_ckpt_save_file(self, file_path: str) -> None:
        """Save which ranks hold the same weights to a file.

        Raises:
            SporaxTypeError: not a string.
        """
        self._set(group_ckpt_save_file=file_path)

    def no_init_parameters_in_compile(self) -> None:
        """Leave lazily initialised Parameters without values when the step is compiled."""
        self._set(init_param_in_compile=False)

    def print_local_norm(self) -> None:
        """Print, for every rank, the norm of every gradient before it is combined with those of other ranks."""
        self._set(dump_local_norm=True)

    def dump_local_norm(self, file_path: str) -> None:
        """Save, for every rank and step, the norm of every gradient before it is combined with those of other ranks.

        Args:
            file_path: a folder; files are called ``rank_0/local_norm__fc.weight_float32_0.npy``, the last number counts steps.

        Raises:
            SporaxTypeError: not a string.
        """
        self._set(dump_local_norm_path=file_path, dump_local_norm=True)

    def enable_device_local_norm(self) -> None:
        """Report the norm over all gradients of a rank too, where the others are reported: ``device_local_norm``."""
        self._set(dump_device_local_norm=True)

    def transformer_opt(self, file_path: str | None) -> None:
        """Accepted with a warning: the file switches rewrites of MindSpore's compiler for Ascend.

        Raises:
            SporaxTypeError: neither a string nor None.
        """
        if file_path is not None and not isinstance(file_path, str):
            raise For("AutoParallel.transformer_opt").type_error(
                "'file_path' must be a string or None", type(file_path).__name__
            )
        if file_path:
            warnings.warn(
                "For 'transformer_opt', the file switches rewrites for Ascend and changes nothing here.", stacklevel=2
            )

    def _set(self, **settings: Any) -> None:
        self._settings = context.changed(self._settings, **settings)
        frames.touch()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _Wrapped(Protocol):
    """A network with settings of its own."""

    @property
    def parallel_config(self) -> Any:
        """Its settings."""


def remember(wrapped: _Wrapped) -> None:
    """Take `wrapped` for the network that is fed: the last one with a layout of its inputs."""
    # A weak reference: the data sets must not keep a network alive.
    SESSION.fed_network = ref(wrapped)


def slices_of_global_input(number: int) -> tuple[int, ...] | None:
    """Into how many slices each dimension of a step's input is sharded that this process feeds for all devices.

    The settings are those of the global context, or of the last `AutoParallel` with a `dataset_strategy`.

    Args:
        number: of the input.

    Returns:
        None where there is one device, where several processes feed a part each, and where `dataset_strategy` shards nothing
        for this input.
    """
    # Several processes feed a part each, so no data set has to divide the input.
    if context.world_size() > 1 or context.num_devices() == 1:
        return None
    # Settings of the process count first; in other modes those of the last wrapped network.
    config = context.snapshot()
    if not config.in_global_view:
        wrapped = None if SESSION.fed_network is None else SESSION.fed_network()
        if wrapped is None:
            return None
        config = wrapped.parallel_config
    strategy = config.dataset_strategy
    if isinstance(strategy, str) or number >= len(strategy):
        return None
    entry = strategy[number]
    return entry.split if isinstance(entry, LayoutValue) else tuple(entry)
