"""`mindspore._extends` and `mindspore.ops.signature`: what older scripts import beside the public names."""

import importlib

import pytest

from sporax.mindspore.ops import PrimitiveWithInfer


def test_switches_of_mindspore_s_compiler_warn():
    compile_config = importlib.import_module("sporax.mindspore._extends.parse").compile_config
    with pytest.warns(UserWarning, match="'RECURSIVE_EVAL' has no effect"):
        compile_config.RECURSIVE_EVAL = 1
    assert compile_config.RECURSIVE_EVAL == 1


def test_declared_operators_may_have_a_signature():
    module = importlib.import_module("sporax.mindspore.ops.signature")

    class Own(PrimitiveWithInfer):
        __mindspore_signature__ = (
            module.make_sig("out", module.sig_rw.RW_WRITE, dtype=module.sig_dtype.T),
            module.make_sig("x", dtype=module.sig_dtype.T1),
        )

    out, x = Own.__mindspore_signature__
    assert (out.name, out.rw, out.dtype) == ("out", module.sig_rw.RW_WRITE, module.sig_dtype.T)
    assert (x.rw, x.kind) == (module.sig_rw.RW_READ, module.sig_kind.KIND_POSITIONAL_KEYWORD) and x.dtype != out.dtype
