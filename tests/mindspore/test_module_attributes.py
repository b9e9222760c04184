"""Modules that MindSpore has as attributes after `import mindspore` alone are attributes here, too."""

import subprocess
import sys
from types import ModuleType

import pytest

import sporax.mindspore

# What `dir(mindspore)` of the wheel 2.10.0 (CPU) has that are modules.
MODULES = """
    _c_dataengine _c_expression _c_mindrecord _check_jit_forbidden_api _checkparam _extends _op_impl amp arg_dtype_cast arg_handler
    boost common communication context dataset default_config device_context device_manager dryrun dtype experimental graph hal log
    mindrecord mint multiprocessing nn numpy onnx ops parallel profiler rewrite runtime safeguard tools train utils version
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_wheel_is_an_attribute(name):
    assert isinstance(getattr(sporax.mindspore, name), ModuleType)


def test_one_import_is_enough():
    code = (
        f"import mindspore as ms\nfor name in {MODULES}: getattr(ms, name)\nprint(ms.amp.auto_mixed_precision.__name__)"
    )
    command = [sys.executable, "-c", f"from sporax.mindspore._names import alias; alias.install()\n{code}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.stdout.strip() == "auto_mixed_precision", ended.stderr


def test_modules_that_are_not_offered_say_so_at_their_names():
    with pytest.raises(
        AttributeError,
        match=r"For 'sporax.mindspore.rewrite', the name must be one that Sporax offers, but got 'SymbolTree'",
    ):
        _ = sporax.mindspore.rewrite.SymbolTree
    assert not hasattr(sporax.mindspore.onnx, "export")


def test_a_guarded_import_of_what_is_not_offered_fails():
    code = "try:\n    from sporax.mindspore import rewrite\nexcept ImportError:\n    print('without')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "without"


@pytest.mark.parametrize("path", ["common.lazy_inline", "common.mutable", "graph.no_inline"])
def test_a_path_that_ends_in_a_function_is_called_as_that_function(path):
    package, name = path.split(".")
    code = f"""
import sporax.mindspore.{path} as by_path
from sporax.mindspore.{path} import {name}
from sporax.mindspore.{package} import {name} as again
import sporax.mindspore as ms
for found in (by_path, {name}, again, ms.{name}):
    assert callable(found), found
assert {name} is ms.{name}
assert by_path is again
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
