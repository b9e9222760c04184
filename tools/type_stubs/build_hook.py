"""Write the type stubs when a wheel is built or an editable installation is made (a build hook of hatchling)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):
    """Stubs beside their modules, where Git ignores them; the wheel takes them along as `artifacts` of pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Import the package with its dependencies, in a process of its own."""
        paths = [str(Path(self.root, "src")), os.environ.get("PYTHONPATH", "")]  # pip's isolation needs what was there
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "JAX_PLATFORMS": "cpu"}
        script = Path(self.root, "tools", "type_stubs", "make_type_stubs.py")
        subprocess.run([sys.executable, script], env=environ, check=True)
