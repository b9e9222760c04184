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

_PATHS = """
hal= hal: device event memory stream
runtime= runtime: device event stream
common.api= common.jit_config graph: . api
common.dtype= _c_expression.typing
common.parameter= nn.utils: . init
_c_expression= common._stub_tensor train._utils _extends: . parse ops: _primitive_cache _utils
amp= train: amp loss_scale_manager
.= common: recompute mutable lazy_inline graph: lazy_inline no_inline mutable parallel: checkpoint_transform
    transform_safetensors
context= parallel.algo_parameter_config
parallel= parallel: parameter_broadcast shard
parallel._utils= parallel: _auto_parallel_context _cost_model_context _ps_context
parallel.function= parallel.function.reshard_func
communication.management= communication._comm_helper
parallel.nn= parallel.nn: parallel_cell_wrapper parallel_grad_reducer
ops= ops: primitive functional_overload op_info_register ops.function: . array_func clip_func comm_func debug_func fft_func
    image_func linalg_func math_func nn_func other_func parameter_func random_func sparse_func sparse_unary_func
    spectral_func vmap_func ops.composite: base clip_ops math_ops random_ops ops.operations.manually_defined: . ops_def
ops.control.custom= ops: signature ops._grad: . grad_base ops._grad_experimental: . grad_base
ops.auto_generate= ops.auto_generate: gen_ops_def gen_ops_prim
ops.communication= mint.distributed: . distributed
ops.operations= ops.deprecated ops.operations: array_ops comm_ops control_ops custom_ops debug_ops image_ops inner_ops
    _inner_ops _infer_ops _grad_ops _quant_ops linalg_ops math_ops nn_ops other_ops random_ops sparse_ops spectral_ops
nn= nn.loss.loss nn.wrap.grad_reducer nn.layer: . activation basic channel_shuffle combined container conv dense embedding
    image math normalization padding pooling rnn_cells rnns thor_layer timedistributed transformer nn.grad: . cell_grad
    nn.optim: ada_grad lamb lazyadam proximal_ada_grad sgd
nn.probability.bijector= nn.probability.bijector: bijector exp gumbel_cdf invert power_transform scalar_affine softplus
nn.probability.distribution= nn.probability.distribution: bernoulli beta categorical cauchy distribution exponential gamma
    geometric gumbel half_normal laplace log_normal logistic normal poisson student_t transformed_distribution uniform
numpy= numpy: array_creations array_ops dtypes fft logic_ops math_ops
boost= boost: base boost boost_cell_wrapper grad_accumulation grad_freeze less_batch_normalization
nn.mathematics= nn.sparse: . sparse
nn.learning_rate_schedule= nn.dynamic_lr
nn.step_parts= nn.wrap: cell_wrapper loss_scale
profiler= profiler: common profiling profiler
parallel._transformer= nn.transformer: . layers loss moe op_parallel_config transformer parallel._transformer: layers loss
    moe op_parallel_config transformer
nn.optim= nn.optim: optimizer adadelta adafactor adamax asgd ftrl lars rmsprop rprop
mint.nn= mint.nn.layer: . activation basic conv normalization padding pooling
mint.optim= mint.optim: adam adamw fused_adamw sgd
experimental.optim= nn.optim_ex experimental.optim: optimizer adadelta adagrad adam adamax adamw asgd nadam radam rmsprop
    rprop sgd
dataset= dataset: core dataset.engine: . datasets datasets_standard_format datasets_text datasets_user_defined
    datasets_audio datasets_vision samplers cache_client serializer_deserializer
dataset._iterators= dataset.engine.iterators
dataset.config= dataset.core.config
dataset.debug= dataset.debug: debug_hook pre_defined_hook
dataset._callbacks= dataset.callback: . ds_callback
mindrecord= mindrecord: filewriter filereader mindpage config mindrecord.common: . exceptions
dataset.transforms= dataset.transforms: transforms c_transforms py_transforms
dataset.vision.py_transforms= dataset.vision.py_transforms_util
dataset.vision= dataset.vision: transforms utils c_transforms
dataset.audio= dataset.audio: transforms utils
dataset.text= dataset.text: transforms utils
train= nn.metrics train.callback: _backup_and_restore _checkpoint _early_stop _history _lambda_callback _loss_monitor
    _lr_scheduler_callback _on_request_exit _reduce_lr_on_plateau _time_monitor
train.train_thor= train.train_thor: convert_utils model_thor
train.summary= train.summary: enums summary_record _summary_adapter
train.metrics= nn.metrics: accuracy loss metric precision recall topk train.metrics: accuracy bleu_score confusion_matrix
    cosine_similarity dice error fbeta hausdorff_distance loss mean_surface_distance metric occlusion_sensitivity perplexity
    precision recall roc root_mean_square_surface_distance topk
"""
"""``home= path path package: name name``: modules whose names are those of `home`, alone and then in packages; ``.`` is the
package itself. All are in `_PACKAGE`."""


def _homes(table: str) -> Iterator[tuple[str, str]]:
    """Paths with their homes."""
    home = package = ""
    for word in table.split():
        if word.endswith("="):
            home, package = word[:-1], ""
        elif word.endswith(":"):
            package = word[:-1]
        else:
            yield f"{package}.{word}".strip("."), home


HOMES = {f"{_PACKAGE}.{path}": f"{_PACKAGE}.{home}".rstrip(".") for path, home in _homes(_PATHS)}
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
    """As `hasattr`; in a function of its own, so that `home` is not read on behalf of an import statement."""
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
    # Names that it only finds when they are read are those of its package.
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
