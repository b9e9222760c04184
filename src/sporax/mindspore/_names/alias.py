"""`import mindspore` means `import sporax.mindspore`, in this process and in the Python processes it starts.

`install` puts a finder first on `sys.meta_path` that answers every `mindspore.…` import with the very module object of
the same name under `sporax.mindspore`: `sys.modules["mindspore.nn"] is sys.modules["sporax.mindspore.nn"]`, so a class has one
identity whichever name a script uses. `mindspore` itself hands out the names of `sporax.mindspore` and differs in one: its
`__version__` is the
version of MindSpore that scripts should see, because they choose by it between names of several releases. A module that
Sporax does not have becomes a placeholder (`sporax.mindspore._names.missing`).

Processes that a script starts (`python other.py`, `multiprocessing`) inherit the alias through `PYTHONPATH`, which gets a
directory holding a package `mindspore` that does nothing but call this module.

What to write instead, under exceptions of Python that a script meets because a name of MindSpore is no function.

Problem: documents about MindSpore write ``Cell.pipeline_stage(0)`` for what is a property; Python then says "'NoneType' object is
not callable", and a property that has no value cannot say more. Method: the line of the script that failed shows which name it
was; the hint becomes a note of the exception, which Python prints below it. For a keyword argument that is misspelled the message
has the function's name, and its signature the names that there are.

Importing many modules without looking for garbage.

Problem: the facade and JAX are a thousand modules with 150,000 objects that live as long as the process. Python's collector looks
at them again and again while they are made, in each full collection afterwards, and once more when the process ends: a third of
the CPU time of a process that does little. Method: the collector rests during the import, and what is there afterwards is frozen:
collections pass it over. Objects whose last reference goes away are freed as before. Reference: `gc.freeze` of Python's library.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import linecache
import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from sporax.base import gc_paused
from sporax.base.errors import SporaxRuntimeError, SporaxValueError, did_you_mean
from sporax.mindspore._names.missing import is_plain_import_of, missing_module, missing_names, placeholder_module
from sporax.mindspore._names.module_paths import write_stubs as write_stubs

_FEWEST_MODULES = 200
"""That an import must have loaded; one that finds most of them there has made few objects."""
_MOST_MODULES = 600
"""Above which a program has more objects than that, JAX among them; to count objects takes longer than to count modules."""
_MOST_OBJECTS = 50_000
"""That a program may have made before. An interpreter with NumPy has 20,000; those of a program that has more are not frozen with
the modules, as cycles among them could not be freed."""


def import_module(name: str) -> ModuleType:
    """`importlib.import_module`; the collector rests, and passes over what is there where many modules were loaded."""
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    modules = len(sys.modules)
    few = modules < _MOST_MODULES and len(gc.get_objects()) < _MOST_OBJECTS
    with gc_paused():
        module = importlib.import_module(name)
        if few and len(sys.modules) - modules >= _FEWEST_MODULES:
            gc.freeze()
    return module


_PACKAGE = "sporax.mindspore"
_UNKNOWN_KEYWORD = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_CALLED_PROPERTY = re.compile(r"(\w+)\.(pipeline_stage|pipeline_segment)\s*\(\s*([^()]*?)\s*\)")


def add_hint(error: BaseException, frames: TracebackType | None) -> None:
    """Add a note to an exception that left a script, where its line shows what was meant.

    Args:
        error: the exception.
        frames: its frames, from the script's first one on.
    """
    world = sys.modules.get("sporax.runtime.world")  # loaded where a script has used anything
    ranks, processes = (1, 1) if world is None else (world.num_ranks_here(), world.num_feeders())
    if isinstance(error, SporaxValueError) and "shape" in str(error) and ranks > 1:
        error.add_note(
            f"This process acts for {ranks} ranks: outside of a training step a network takes the batch of all "
            "of them, and shapes that are written for one rank's batch do not fit. Take sizes from the input (`x.shape[0]`), or "
            f"start a process for each rank: `sporax run --worker_num {ranks * processes}`."
        )
    if not isinstance(error, TypeError):
        return
    unknown = _UNKNOWN_KEYWORD.search(str(error))
    if unknown is not None:
        hint = did_you_mean(unknown[2], _parameters_of(unknown[1]))
        if hint and "Did you mean" not in str(error):
            error.add_note(f"For '{unknown[1].removesuffix('.__init__')}', there is no argument '{unknown[2]}'.{hint}")
    if not str(error).endswith("object is not callable") or frames is None:
        return
    while frames.tb_next is not None:
        frames = frames.tb_next
    line = linecache.getline(frames.tb_frame.f_code.co_filename, frames.tb_lineno)
    found = _CALLED_PROPERTY.search(line)
    if found is not None:
        cell, name, value = found.groups()
        error.add_note(f"For 'Cell', '{name}' is a property and no method: write `{cell}.{name} = {value or 'stage'}`.")


def _parameters_of(name: str) -> list[str]:
    """The parameters of a function of Sporax, by its qualified name; none where there is no such function."""
    head, *rest = name.split(".")
    for module_name, module in list(sys.modules.items()):
        found = vars(module).get(head) if module_name.startswith(_PACKAGE) else None
        for part in rest:
            found = getattr(found, part, None)
        if callable(found) and getattr(found, "__qualname__", "") == name and module_name == found.__module__:
            return list(inspect.signature(found).parameters)
    return []


ALIAS = "mindspore"
TARGET = "sporax.mindspore"
COMPATIBLE_VERSION = "2.10.0"
"""The release of MindSpore whose names and values Sporax is compared with."""
VERSION_VARIABLE = "SPORAX_MINDSPORE_VERSION"
"""Environment variable with another version for `mindspore.__version__`, for programs that need an older one."""
_VERSION = re.compile(r"\d+(\.\d+)+\w*")
_HOMES_OF_TENSORS = frozenset(f"mindspore.common{name}" for name in ("", ".tensor", ".parameter", ".sparse_tensor"))
SHADOW_DIRECTORY = str(Path(__file__).parent / "shadow")


class MindSporeModule(ModuleType):
    """The module `mindspore`: `sporax.mindspore` with the version of MindSpore's."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return mindspore_version(os.environ)
        # Looked up at each access, since names of `sporax.mindspore` are loaded when they are first used.
        return getattr(sys.modules[TARGET], name)

    def __dir__(self) -> list[str]:
        return dir(sys.modules[TARGET])


def mindspore_version(environ: Mapping[str, str]) -> str:
    """What `mindspore.__version__` says: `VERSION_VARIABLE`, else `COMPATIBLE_VERSION`.

    Raises:
        SporaxValueError: the variable does not hold a version.
    """
    version = environ.get(VERSION_VARIABLE, COMPATIBLE_VERSION)
    if not _VERSION.fullmatch(version):
        raise SporaxValueError(f"For '{VERSION_VARIABLE}', it must be a version such as '2.3.1', but got '{version}'.")
    return version


class AliasFinder(MetaPathFinder):
    """Finds `mindspore.x.y` as `sporax.mindspore.x.y`.

    Must come before Python's own path finder, which would load the same file a second time under the other name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an aliased module; None for modules of other packages.

        Raises:
            SporaxModuleNotFoundError: a module of MindSpore's that Sporax does not have, unless a plain import statement
                imports it, which gets a placeholder.
        """
        if fullname == ALIAS:
            return ModuleSpec(fullname, AliasLoader(), is_package=True)
        if not fullname.startswith(f"{ALIAS}."):
            return None
        if _is_offered(_target_name(fullname)):
            # `import` statements in a `try` must fail, so only plain ones get a placeholder.
            return ModuleSpec(fullname, AliasLoader())
        if is_plain_import_of(fullname):
            return ModuleSpec(fullname, PlaceholderLoader(), is_package=True)
        raise missing_module(fullname)


class AliasLoader(Loader):
    """Loads an aliased module by importing the module it stands for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of the same name under `sporax.mindspore`, imported if it was not yet."""
        if spec.name == ALIAS:
            importlib.import_module(TARGET)
            return MindSporeModule(ALIAS)
        if spec.name in _HOMES_OF_TENSORS:
            import_module(f"{TARGET}.ops")  # gives Tensors their operators and methods
        module = import_module(_target_name(spec.name))
        # Importing through a spec overwrites the module's own, which is needed for reloading.
        spec.loader_state = module.__spec__
        # Names of MindSpore that are missing explain themselves also under the alias.
        vars(module).setdefault("__getattr__", missing_names(module.__name__))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which the import system has just overwritten; nothing is executed."""
        assert module.__spec__ is not None
        if module.__name__ != ALIAS:
            module.__spec__ = module.__spec__.loader_state


class PlaceholderLoader(Loader):
    """Loads a module that Sporax does not have."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module that hands out placeholders."""
        return placeholder_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed."""


def install() -> None:
    """Make `mindspore` and its submodules resolve to `sporax.mindspore` in this process. Calling it again changes nothing.

    Raises:
        SporaxRuntimeError: the real MindSpore has been imported in this process before.
    """
    loaded = sys.modules.get(ALIAS)
    # Two MindSpores in one process would mix their Tensors.
    if loaded is not None and not isinstance(loaded, MindSporeModule):
        raise SporaxRuntimeError(
            f"For 'sporax', '{ALIAS}' must not be imported before the alias is installed, but it is loaded from "
            f"{getattr(loaded, '__file__', None) or 'an unknown place'}. Start the script with `sporax run`, or call "
            "sporax.mindspore._names.alias.install() before the first import of mindspore."
        )
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        # First, so that an installed MindSpore is never found.
        sys.meta_path.insert(0, AliasFinder())


def install_for_children(environ: MutableMapping[str, str]) -> None:
    """Let Python processes started with `environ` resolve `mindspore` to `sporax.mindspore` as well.

    `sys.path` gets the same entry, at the place where a child finds it, because `multiprocessing` hands the parent's
    `sys.path` to its children.
    """
    inherited = environ.get("PYTHONPATH")
    entries = inherited.split(os.pathsep) if inherited else []
    if SHADOW_DIRECTORY not in entries:
        environ["PYTHONPATH"] = os.pathsep.join([SHADOW_DIRECTORY, *entries])
    if SHADOW_DIRECTORY not in sys.path:
        # In safe-path mode no script directory stands at position 0.
        sys.path.insert(0 if sys.flags.safe_path else 1, SHADOW_DIRECTORY)


def _target_name(alias_name: str) -> str:
    """`mindspore.nn` -> `sporax.mindspore.nn`."""
    return TARGET + alias_name.removeprefix(ALIAS)


def _is_offered(module: str) -> bool:
    """Whether the module of ours exists; no part of a placeholder's package does."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
