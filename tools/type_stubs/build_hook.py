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
        source, script = Path(self.root, "src"), Path(self.root, "tools", "type_stubs", "make_type_stubs.py")
        # Not by PYTHONPATH: pip's isolation takes out what an earlier editable installation has put there.
        program = f"import runpy, sys; sys.path.insert(0, {str(source)!r}); runpy.run_path({str(script)!r}, run_name='__main__')"
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=True)
