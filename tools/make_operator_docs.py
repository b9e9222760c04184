"""Write `docs/operators.md`: every operator with its forms, made from the registries.

python tools/make_operator_docs.py            # write it
python tools/make_operator_docs.py --check    # fail when it is out of date
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any

from _generated import GOLDEN, ROOT, run, table

import sporax.mindspore.mint
import sporax.mindspore.ops  # noqa: F401  (casts the operators)
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.operator import FUNCTIONS, MINT, PRIMITIVES, Operator

RECORDS = (GOLDEN / "facts.json", ROOT / "tests" / "mindspore" / "ops" / "recorded.json")
#: A name behind `ops.` or `mint.`, or that of a method.
NAME = re.compile(r"\b(?:ops|mint)\.(\w+)|(?<=[\w)\]])\.(\w+)\(")
#: Results that are positions, counts, truth values, whole numbers, constants or random draws: nothing to differentiate.
NO_GRADIENT = re.compile(
    r"^(arg(max|min|sort|where)|bincount|bitwise|count|equal|eq|ne|ge|gt|le|lt|greater|less|logical|not_?equal|is|gcd|lcm|"
    r"nonzero|searchsorted|bucketize|unique|intopk|floor|ceil|round|rint|sign|sgn|trunc$|heaviside|histc?|histogram|"
    r"invert$|leftshift|rightshift|population|all$|any$|reduceall|reduceany|rand|normal|uniform|standard|laplace|poisson|"
    r"gamma$|bernoulli|multinomial|shuffle|truncatednormal|choicewithmask|zeros|ones|full|fill|eye|arange|range$|"
    r"linspace|logspace|trilindices|triuindices|onehot|shape$|rank$|size$|dtype$|numel|approximateequal|allclose|"
    r"checkvalid|nms|sequencemask|stopgradient|nextafter|eigvals|eig$|igammac?$|betainc|zeta|empty|print|tensordump|"
    r"iscomplex|mint|adam|apply|sgd$|sparseapply|larsupdate|lowerbound|upperbound|listdiff|confusionmatrix|unravelindex|"
    r"invertpermutation|ctcgreedydecoder|assert|checknumerics|(log)?uniformcandidate|scalar|tensorshape|dynshape|tupletoarray|"
    r"cauchy|lognormal|parameterizedtruncated|nondeterministic|dataformat|eps$|(bartlett|blackman|hamming|hann|kaiser)window|"
    r"r?fftfreq|constexpr|typeof)"
)


@dataclass
class Row:
    """Everything that goes by one name."""

    classes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    mint: set[str] = field(default_factory=set)
    target: Any = None

    @property
    def name(self) -> str:
        """The class form's name, or the function's, the method's, that in `mint`."""
        return min(self.classes or self.functions or self.methods or self.mint)

    @property
    def forms(self) -> str:
        """All forms, as code."""
        parts = [f"ops.{name}" for name in sorted(self.classes) + sorted(self.functions)]
        parts += [f"Tensor.{name}" for name in sorted(self.methods)] + [f"mint.{name}" for name in sorted(self.mint)]
        return ", ".join(f"`{part}`" for part in parts)


def key_of(name: str) -> str:
    """What the forms of one operator have in common: the last part of the name, without case and underscores."""
    return name.rpartition(".")[2].replace("_", "").lower()


def rows() -> list[Row]:
    """One row for each operator, by name."""
    found: dict[str, Row] = {}
    by_operator: dict[int, str] = {}

    def row(name: str, operator: Any) -> Row:
        key = by_operator.setdefault(id(operator), key_of(name)) if isinstance(operator, Operator) else key_of(name)
        entry = found.setdefault(key, Row())
        entry.target = entry.target or operator
        return entry

    for name, function in FUNCTIONS.items():
        if name.startswith("_"):  # not public
            continue
        row(name, function).functions.add(name)
    for name, primitive in PRIMITIVES.items():
        row(name, getattr(primitive, "operator", primitive)).classes.add(name)
    for name, function in MINT.items():
        row(name, function).mint.add(name)
    for name in json.loads((GOLDEN / "names.json").read_text())["names"]["Tensor"]:
        if key_of(name) in found and inspect.isfunction(getattr(Tensor, name, None)):
            found[key_of(name)].methods.add(name)
    return sorted(found.values(), key=lambda each: each.name.lower())


def compared() -> set[str]:
    """Keys of the names that occur in cases whose outcome was recorded with the MindSpore wheel."""
    names: set[str] = set()
    for path in RECORDS:
        for cases in json.loads(path.read_text())["facts"].values():
            for case, outcome in cases.items():
                if outcome != {"unsupported": True}:
                    names.update(filter(None, itertools.chain(*NAME.findall(case))))
    return {key_of(name) for name in names}


def dtypes(target: Any) -> str:
    """What the kernel requires of its inputs, where it does."""
    try:
        source = inspect.getsource(getattr(target, "kernel", target))
    except (OSError, TypeError):
        return ""
    if "check.floating(" in source or "_matrices(" in source or ": check.Float" in source:
        return "floating"
    if ": check.Number" in source:
        return "numbers"
    called = "check.integral(" in source and "input" in source.split("check.integral(")[1][:30]
    return "integer" if called or re.search(r"input\w*: check\.Int", source) else ""


def states_dims(name: str) -> bool:
    """Whether the operator of a class or function names the dimensions of its tensors."""
    forms = (getattr(PRIMITIVES.get(name), "operator", None), FUNCTIONS.get(name))
    return any(isinstance(form, Operator) and form.dims.names is not None for form in forms)


def page() -> str:
    """The text of the page."""
    wheel = compared()
    operators = rows()
    body, counts = [], {"gradient": 0, "wheel": 0}
    for each in operators:
        keys = {key_of(name) for name in each.classes | each.functions | each.methods | each.mint}
        gradient, seen = not any(map(NO_GRADIENT.match, keys)), bool(keys & wheel)
        counts["gradient"] += gradient
        counts["wheel"] += seen
        own = any(states_dims(name) for name in each.classes | each.functions)
        signs = ("✓" if gradient else "", "own" if own else "", "✓" if seen else "")
        body.append((each.forms, dtypes(each.target), *signs))
    header = ("Operator, in all its forms", "Dtypes", "Gradient", "Parallel rule", "Compared with MindSpore")
    return f"""# Operators

This page is generated by `tools/make_operator_docs.py` from the registries of `sporax.mindspore.ops`; do not edit it.

{len(operators)} operators: {len(PRIMITIVES)} classes and {len(FUNCTIONS)} functions in `sporax.mindspore.ops`, {len(MINT)}
functions in `sporax.mindspore.mint`. {counts["gradient"]} have a gradient; {counts["wheel"]} are compared with values recorded
with the MindSpore 2.10 wheel (`tests/mindspore/golden`, `tests/mindspore/ops/recorded.json`), the others with numpy and scipy.

*Dtypes* says what an operator insists on, nothing that it takes what its definition makes sense for. *Parallel rule*: "own" for
operators whose dimensions a strategy names by their meaning (`i k` and `k j` of MatMul); for the others dimensions that
are broadcast together have equal shardings. Whatever MindSpore has and this page does not is refused with an error that says so.

{table(header, body)}
"""


if __name__ == "__main__":
    raise SystemExit(run(__doc__.splitlines()[0], ROOT / "docs" / "operators.md", page))
