"""`import mindspore` means `import sporax`, in this process and in the Python processes it starts.

`install` puts a finder first on `sys.meta_path` that answers every `mindspore…` import with the very module object of
the same name under `sporax`: `sys.modules["mindspore.nn"] is sys.modules["sporax.nn"]`, so a class has one identity
whichever name a script uses. Processes that a script starts (`python other.py`, `multiprocessing`) inherit the alias
through `PYTHONPATH`, which gets a directory holding a package `mindspore` that does nothing but call this module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.missing import missing_module, missing_names

ALIAS = "mindspore"
TARGET = "sporax"
SHADOW_DIRECTORY = str(Path(__file__).parent / "shadow")


class AliasFinder(MetaPathFinder):
    """Finds `mindspore.x.y` as `sporax.x.y`.

    Must come before Python's own path finder, which would load the same file a second time under the other name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an aliased module; None for modules of other packages.

        Raises:
            SporaxModuleNotFoundError: a module of MindSpore's that Sporax does not have.
        """
        if fullname != ALIAS and not fullname.startswith(f"{ALIAS}."):
            return None
        if find_spec(_target_name(fullname)) is None:
            raise missing_module(fullname)
        return ModuleSpec(fullname, AliasLoader())


class AliasLoader(Loader):
    """Loads an aliased module by importing the module it stands for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of the same name under `sporax`, imported if it was not yet."""
        module = importlib.import_module(_target_name(spec.name))
        spec.loader_state = module.__spec__
        vars(module).setdefault("__getattr__", missing_names(module.__name__))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which the import system has just overwritten; nothing is executed."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make `mindspore` and its submodules resolve to `sporax` in this process. Calling it again changes nothing.

    Raises:
        SporaxRuntimeError: the real MindSpore has been imported in this process before.
    """
    loaded = sys.modules.get(ALIAS)
    if loaded is not None and loaded is not sys.modules.get(TARGET):
        raise SporaxRuntimeError(
            f"For 'sporax', '{ALIAS}' must not be imported before the alias is installed, but it is loaded from "
            f"{getattr(loaded, '__file__', None) or 'an unknown place'}. Start the script with `sporax run`, or call "
            "sporax.launch.alias.install() before the first import of mindspore."
        )
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())


def install_for_children(environ: MutableMapping[str, str]) -> None:
    """Let Python processes started with `environ` resolve `mindspore` to `sporax` as well.

    `sys.path` gets the same entry, at the place where a child finds it, because `multiprocessing` hands the parent's
    `sys.path` to its children.
    """
    inherited = environ.get("PYTHONPATH")
    entries = inherited.split(os.pathsep) if inherited else []
    if SHADOW_DIRECTORY not in entries:
        environ["PYTHONPATH"] = os.pathsep.join([SHADOW_DIRECTORY, *entries])
    if SHADOW_DIRECTORY not in sys.path:
        sys.path.insert(0 if sys.flags.safe_path else 1, SHADOW_DIRECTORY)


def _target_name(alias_name: str) -> str:
    """`mindspore.nn` -> `sporax.nn`."""
    return TARGET + alias_name.removeprefix(ALIAS)
