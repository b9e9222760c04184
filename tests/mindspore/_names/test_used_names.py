from sporax.mindspore._names.check import Use, used_names


def paths(source: str) -> list[str]:
    return [use.path for use in used_names(source) if use.keyword is None]


def test_imports_and_attribute_chains():
    source = """
import mindspore as ms
import mindspore.nn, numpy as np
from mindspore.ops import operations as P
ms.context.set_context(mode=np.int32(0))
layer = mindspore.nn.Dense(3, 4)
P.Foo()
"""
    assert paths(source) == [
        "mindspore",
        "mindspore.nn",
        "mindspore.ops.operations",
        "mindspore.context.set_context",
        "mindspore.nn.Dense",
        "mindspore.ops.operations.Foo",
    ]


def test_keywords_of_calls():
    assert Use("mindspore.nn.Dense", 2, "has_bias") in used_names("from mindspore import nn\nnn.Dense(3, has_bias=1)")


def test_names_of_other_packages_and_relative_imports_are_not_ours():
    assert paths("import mindspore_gl, torch.nn as nn\nfrom .mindspore import x\nnn.Dense\nx.y") == []


def test_an_argument_hides_an_import():
    source = "from mindspore import ops\ndef f(ops):\n    return ops.gone\ndef g():\n    ops = 1\n    return ops.gone\nops.there"
    assert paths(source) == ["mindspore.ops", "mindspore.ops.there"]


def test_what_a_try_can_do_without():
    source = """
try:
    from mindspore import gone
    gone.part
except (ImportError, KeyError):
    from mindspore import there
try:
    import mindspore.needed
except KeyError:
    pass
"""
    assert paths(source) == ["mindspore.there", "mindspore.needed"]


def test_decorators_and_defaults_are_uses():
    assert paths("import mindspore as ms\n@ms.jit\ndef f(x=ms.float32): pass") == [
        "mindspore", "mindspore.jit", "mindspore.float32",
    ]  # fmt: skip
