"""Modules inside MindSpore's packages, such as `mindspore.nn.wrap.cell_wrapper`, from which scripts import public names.

MindSpore's own files are divided in other ways than ours, and over its releases in several. Scripts know these paths, so each of
them is a module here as well: one without contents of its own that hands out the names of the package whose part it is. A
finder at the end of `sys.meta_path` makes them, so a path that is a file of ours never gets here.

`sporax stubs`: lets editors and type checkers find `mindspore`, which is a package only while `sporax run` runs a script.

Problem: an editor that reads ``import mindspore as ms`` looks for files of that name, and there are none. Method: a folder of
stub files, one for each module of Sporax that MindSpore has and one for each path of `module_paths`, that hand out the names of
ours. Pyright and Pylance look into ``typings`` by themselves; mypy does with ``MYPYPATH=typings``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore._names.missing import SUBMODULES, missing_name

_PACKAGE = "sporax.mindspore"

_PATHS_OF = {
    "sporax.mindspore.hal": "hal.device hal.event hal.memory hal.stream",
    "sporax.mindspore.runtime": "runtime.device runtime.event runtime.stream",
    "sporax.mindspore.common.api": "graph graph.api common.jit_config",
    "sporax.mindspore.common.dtype": "_c_expression.typing",
    "sporax.mindspore.common.parameter": "nn.utils nn.utils.init",
    "sporax.mindspore._c_expression": "_extends _extends.parse ops._primitive_cache ops._utils train._utils",
    "sporax.mindspore.amp": "train.amp train.loss_scale_manager",
    "sporax.mindspore": """
        common.recompute common.mutable common.lazy_inline graph.lazy_inline graph.no_inline graph.mutable
        parallel.checkpoint_transform parallel.transform_safetensors
    """,
    "sporax.mindspore.context": "parallel.algo_parameter_config",
    "sporax.mindspore.parallel": "parallel.parameter_broadcast parallel.shard",
    "sporax.mindspore.parallel._utils": """
        parallel._auto_parallel_context parallel._cost_model_context parallel._ps_context parallel._tensor
    """,
    "sporax.mindspore.parallel.function": "parallel.function.reshard_func",
    "sporax.mindspore.communication.management": "communication._comm_helper",
    "sporax.mindspore.parallel.nn": "parallel.nn.parallel_cell_wrapper parallel.nn.parallel_grad_reducer",
    "sporax.mindspore.ops": """
        ops.primitive ops.functional_overload
        ops.function ops.function.array_func ops.function.clip_func ops.function.comm_func ops.function.debug_func
        ops.function.image_func ops.function.linalg_func ops.function.math_func
        ops.function.nn_func ops.function.other_func ops.function.parameter_func ops.function.random_func
        ops.function.sparse_func ops.function.sparse_unary_func ops.function.spectral_func ops.function.vmap_func
        ops.composite.base ops.composite.clip_ops ops.composite.math_ops ops.composite.random_ops
        ops.operations.manually_defined ops.operations.manually_defined.ops_def ops.op_info_register
    """,
    "sporax.mindspore.ops.control.custom": """
        ops._grad ops._grad.grad_base ops._grad_experimental ops._grad_experimental.grad_base ops.signature
    """,
    "sporax.mindspore.ops.auto_generate": "ops.auto_generate.gen_ops_def ops.auto_generate.gen_ops_prim",
    "sporax.mindspore.ops.communication": "mint.distributed mint.distributed.distributed",
    "sporax.mindspore.ops.operations": """
        ops.deprecated ops.operations.array_ops ops.operations.comm_ops ops.operations.control_ops ops.operations.custom_ops
        ops.operations.debug_ops
        ops.operations.image_ops ops.operations.inner_ops ops.operations._inner_ops ops.operations._grad_ops
        ops.operations._quant_ops ops.operations.linalg_ops
        ops.operations.math_ops ops.operations.nn_ops ops.operations.other_ops
        ops.operations.random_ops ops.operations.sparse_ops ops.operations.spectral_ops
    """,
    "sporax.mindspore.nn": """
        nn.layer nn.layer.activation nn.layer.basic nn.layer.channel_shuffle nn.layer.combined nn.layer.container nn.layer.conv
        nn.layer.dense nn.layer.embedding nn.layer.image nn.layer.math nn.layer.normalization nn.layer.padding nn.layer.pooling
        nn.layer.rnn_cells nn.layer.rnns nn.layer.thor_layer nn.layer.timedistributed nn.layer.transformer
        nn.loss.loss nn.grad nn.grad.cell_grad nn.wrap.grad_reducer
        nn.optim.ada_grad nn.optim.lamb nn.optim.lazyadam nn.optim.proximal_ada_grad nn.optim.sgd
    """,
    "sporax.mindspore.boost": """
        boost.base boost.boost boost.boost_cell_wrapper boost.grad_accumulation boost.grad_freeze
        boost.less_batch_normalization
    """,
    "sporax.mindspore.nn.mathematics": "nn.sparse nn.sparse.sparse",
    "sporax.mindspore.nn.learning_rate_schedule": "nn.dynamic_lr",
    "sporax.mindspore.nn.step_parts": "nn.wrap.cell_wrapper nn.wrap.loss_scale",
    "sporax.mindspore.profiler": "profiler.common profiler.profiling profiler.profiler",
    "sporax.mindspore.parallel._transformer": """
        nn.transformer nn.transformer.layers nn.transformer.loss nn.transformer.moe nn.transformer.op_parallel_config
        nn.transformer.transformer parallel._transformer.layers parallel._transformer.loss parallel._transformer.moe
        parallel._transformer.op_parallel_config parallel._transformer.transformer
    """,
    "sporax.mindspore.nn.optim": """
        nn.optim.optimizer nn.optim.adadelta nn.optim.adafactor nn.optim.adamax nn.optim.asgd nn.optim.ftrl nn.optim.lars
        nn.optim.rmsprop nn.optim.rprop
    """,
    "sporax.mindspore.mint.nn": """
        mint.nn.layer mint.nn.layer.activation mint.nn.layer.basic mint.nn.layer.conv mint.nn.layer.normalization
        mint.nn.layer.padding
        mint.nn.layer.pooling
    """,
    "sporax.mindspore.mint.optim": "mint.optim.adam mint.optim.adamw mint.optim.fused_adamw mint.optim.sgd",
    "sporax.mindspore.experimental.optim": """
        nn.optim_ex experimental.optim.optimizer experimental.optim.adadelta experimental.optim.adagrad experimental.optim.adam
        experimental.optim.adamax experimental.optim.adamw experimental.optim.asgd experimental.optim.nadam
        experimental.optim.radam experimental.optim.rmsprop experimental.optim.rprop experimental.optim.sgd
    """,
    "sporax.mindspore.dataset": """
        dataset.engine dataset.engine.datasets dataset.engine.datasets_standard_format dataset.engine.datasets_text
        dataset.engine.datasets_user_defined dataset.engine.datasets_audio dataset.engine.datasets_vision dataset.engine.samplers
        dataset.core dataset.engine.cache_client dataset.engine.serializer_deserializer
    """,
    "sporax.mindspore.dataset._iterators": "dataset.engine.iterators",
    "sporax.mindspore.dataset.config": "dataset.core.config",
    "sporax.mindspore.dataset.debug": "dataset.debug.debug_hook dataset.debug.pre_defined_hook",
    "sporax.mindspore.dataset._callbacks": "dataset.callback dataset.callback.ds_callback",
    "sporax.mindspore.mindrecord": """
        mindrecord.filewriter mindrecord.filereader mindrecord.mindpage mindrecord.config mindrecord.common
        mindrecord.common.exceptions
    """,
    "sporax.mindspore.dataset.transforms": """
        dataset.transforms.transforms dataset.transforms.c_transforms dataset.transforms.py_transforms
    """,
    "sporax.mindspore.dataset.vision.py_transforms": "dataset.vision.py_transforms_util",
    "sporax.mindspore.dataset.vision": "dataset.vision.transforms dataset.vision.utils dataset.vision.c_transforms",
    "sporax.mindspore.dataset.audio": "dataset.audio.transforms dataset.audio.utils",
    "sporax.mindspore.dataset.text": "dataset.text.transforms dataset.text.utils",
    "sporax.mindspore.train": """
        nn.metrics
        train.callback._backup_and_restore train.callback._checkpoint train.callback._early_stop train.callback._history
        train.callback._lambda_callback train.callback._loss_monitor train.callback._lr_scheduler_callback
        train.callback._on_request_exit train.callback._reduce_lr_on_plateau train.callback._time_monitor
    """,
    "sporax.mindspore.train.train_thor": "train.train_thor.convert_utils train.train_thor.model_thor",
    "sporax.mindspore.train.summary": "train.summary.enums train.summary.summary_record train.summary._summary_adapter",
    "sporax.mindspore.train.metrics": """
        nn.metrics.accuracy nn.metrics.loss nn.metrics.metric nn.metrics.precision nn.metrics.recall nn.metrics.topk
        train.metrics.accuracy  train.metrics.bleu_score train.metrics.confusion_matrix
        train.metrics.cosine_similarity train.metrics.dice train.metrics.error train.metrics.fbeta
        train.metrics.hausdorff_distance train.metrics.loss train.metrics.mean_surface_distance train.metrics.metric
        train.metrics.occlusion_sensitivity train.metrics.perplexity train.metrics.precision train.metrics.recall
        train.metrics.roc train.metrics.root_mean_square_surface_distance train.metrics.topk
    """,
}
HOMES = {f"{_PACKAGE}.{path}": home for home, paths in _PATHS_OF.items() for path in paths.split()}
"""Full name of a path -> full name of the package that has its names."""


class _ModuleOfOneFunction(ModuleType):
    """A module of the name of its function, for which MindSpore's packages have the function: it is called as that."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class PathFinder(MetaPathFinder, Loader):
    """Finds and loads the modules of `HOMES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of such a module; None for all others."""
        return ModuleSpec(fullname, self, is_package=True) if fullname in HOMES else None

    def exec_module(self, module: ModuleType) -> None:
        """Let the module hand out the names of its home."""
        home = importlib.import_module(HOMES[module.__name__])

        def __getattr__(name: str) -> Any:  # noqa: N807 (it is one)
            if name.startswith("__") or not _has(home, name):
                return missing_name(module.__name__, name)
            return getattr(home, name)

        own = module.__name__.rpartition(".")[2]
        if callable(function := getattr(home, own, None)):  # read now: the import puts the module in its place
            module.__class__ = _ModuleOfOneFunction
            setattr(module, own, function)
        module.__doc__ = f"Names of `{home.__name__}`, under a path of MindSpore's."
        vars(module).update(
            __getattr__=__getattr__, __dir__=lambda: dir(home), __all__=list(getattr(home, "__all__", ()))
        )


def _has(home: ModuleType, name: str) -> bool:
    """As `hasattr`; in a function of its own, so that `home` is not asked on behalf of an import statement."""
    return hasattr(home, name)


def install() -> None:
    """Make the paths importable in this process."""
    sys.meta_path.append(PathFinder())
    SUBMODULES.update(HOMES)


_ALIAS = "mindspore"
_LISTS_NAMES = re.compile(r"^__all__\b", re.MULTILINE)
_MARK = "# Written by `sporax stubs`: names of MindSpore are those of Sporax."


def write_stubs(folder: Path) -> int:
    """Write the stubs into a folder; returns how many there are.

    Raises:
        SporaxValueError: there are other files of that name.
    """
    first = folder / _ALIAS / "__init__.pyi"
    if (folder.exists() and not folder.is_dir()) or (
        (folder / _ALIAS).exists() and not (first.is_file() and first.read_text(encoding="utf-8").startswith(_MARK))
    ):
        raise SporaxValueError(
            f"For 'sporax stubs', DIR must be a folder without a '{_ALIAS}' of another origin, but got '{folder}'."
        )
    homes = dict(stubs())
    for name, home in homes.items():
        inside = any(other.startswith(f"{name}.") for other in homes)
        path = folder / name.replace(".", "/")
        file = path / "__init__.pyi" if inside else path.with_suffix(".pyi")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{_MARK}\n{_names_of(home) if home else ''}\n", encoding="utf-8")
    return len(homes)


def _names_of(home: str) -> str:
    """The lines that hand out the names of a module."""
    star = f"from {home} import *"
    # Of a module that does not list its names, `*` takes those alone that it defines itself.
    if _LISTS_NAMES.search(Path(str(_spec(home).origin)).read_text(encoding="utf-8")):
        return star
    names = [name for name in dir(importlib.import_module(home)) if not name.startswith("_")]
    # Names that it only finds when they are asked for are those of its package.
    package = home.rpartition(".")[0]
    return "\n".join([f"from {package} import *", star, *(f"from {home} import {name} as {name}" for name in names)])


def _spec(home: str) -> ModuleSpec:
    spec = find_spec(home)
    assert spec is not None, home  # `stubs` lists what is there
    return spec


def stubs() -> Iterator[tuple[str, str]]:
    """Modules of `mindspore`, and the module of Sporax whose names each hands out; "" for a package that has none."""
    found = {_ALIAS: _PACKAGE}
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        # What begins with an underscore is ours; MindSpore's paths of that kind are in `HOMES`.
        if parts and not any(part.startswith("_") for part in parts):
            found[".".join((_ALIAS, *parts))] = ".".join((_PACKAGE, *parts))
    for path, home in HOMES.items():
        found.setdefault(_ALIAS + path.removeprefix(_PACKAGE), home)
    for name in list(found):
        parents = name.split(".")
        for count in range(1, len(parents)):
            found.setdefault(".".join(parents[:count]), "")
    yield from sorted(found.items())
