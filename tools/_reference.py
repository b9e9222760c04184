"""The reference of the site: Markdown made of the docstrings of public names, and of the examples that `_examples.py` runs.

Docstrings are in Google's form: a summary, paragraphs, sections such as ``Args:``, and blocks of code, which are indented.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator

from _examples import BEGINNING, PAGES, examples

MODULES = {
    "sporax": "Plans for JAX programs, and the state of JAX programs in sharded files.",
    "sporax.mindspore": "Tensors, Parameters, contexts, gradients and compiled functions; `Model` and checkpoints are here, too.",
    "sporax.mindspore.Tensor": "Methods and properties of Tensors; Parameters have them, too.",
    "sporax.mindspore.nn": "Layers, losses, optimizers and training steps.",
    "sporax.mindspore.ops": "Operators and functions. [Operators](../operators.md) says of which rules of sharding are known.",
    "sporax.mindspore.mint": "Functions with the arguments of PyTorch's.",
    "sporax.mindspore.train": "`Model`, callbacks, metrics and checkpoints.",
    "sporax.mindspore.parallel": "Strategies, layouts, automatic parallelism, plans, and conversion of checkpoints.",
    "sporax.mindspore.communication": "Ranks and groups.",
    "sporax.mindspore.amp": "Mixed precision and loss scales.",
}
"""Modules whose public names have entries, and what they hold; Tensor has so many methods that it is a page."""
WIDTH = 88
"""Characters of a line that fit into a page of the site."""
_SECTION = re.compile(
    r"^(Args|Arguments|Attributes|Returns|Yields|Raises|Example|Examples|Inputs|Outputs|Note|Notes):$"
)
_OF_ITEMS = {"Args", "Arguments", "Attributes", "Raises", "Inputs", "Outputs"}
_ITEM = re.compile(r"^([\w.*`\" \[\],|]+?)(?: \(([^)]*)\))?: (.*)$", re.DOTALL)


def reference_pages() -> dict[str, str]:
    """The text of each page, by its name."""
    return {module.removeprefix("sporax.mindspore."): page(module, text) for module, text in MODULES.items()}


def page(module: str, text: str) -> str:
    """One module: an entry for each public name with a docstring, by name."""
    sources = members(module)
    shell = examples(module)
    beginning = f"Examples begin with:\n\n```python\n{BEGINNING}```\n" if module in PAGES else ""
    entries = [entry(name, value, shell.get(name, ""), f"{module}.{name}") for name, value in sources.items()]
    heading = (
        f"# {module}\n\n{text} Made of the docstrings; each entry says what it takes and which errors it raises.\n"
    )
    return "\n".join([heading, *filter(None, [beginning, *entries])])


def members(module: str) -> dict[str, object]:
    """The public names of a module, or of a class that is a page, which have a docstring of their own, by name."""
    package, _, name = module.rpartition(".")
    if name == "Tensor":
        return dict(sorted(methods(getattr(importlib.import_module(package), name)), key=lambda item: item[0].lower()))
    home = importlib.import_module(module)
    names = sorted(getattr(home, "__all__", None) or dir(home), key=str.lower)
    values = {name: getattr(home, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in values.items() if _is_callable(value)}


def _is_callable(value: object) -> bool:
    """Classes, functions, and operators, which are objects with docstrings of their own."""
    return inspect.isclass(value) or inspect.isroutine(value) or (callable(value) and "__doc__" in vars(value))


def entry(name: str, value: object, example: str = "", place: str = "") -> str:
    """Heading, signature, docstring and example of one name."""
    docstring = inspect.getdoc(value) or ""
    parts = [f"## {name}\n", f"```python\n{signature(name, value)}\n```\n", *markdown(docstring)]
    if example and not has_example(docstring):
        parts.append(f"**Example**\n\n```python\n{example}\n```\n")
    if place in MODULES:
        parts.append(f"[Its methods]({name}.md) have their own page.\n")
    elif inspect.isclass(value):
        for method, function in methods(value):
            # No heading: entries of the contents cost time on every page.
            parts.append(f"```python\n{signature(f'{name}.{method}', function)}\n```\n")
            parts += markdown(inspect.getdoc(function) or "")
    return "\n".join(parts)


def has_example(docstring: str) -> bool:
    """Whether a docstring shows a call of its own."""
    return ">>>" in docstring or re.search(r"(?m)^\s*Examples?:$", docstring) is not None


def methods(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that a class defines itself, with a docstring; `construct` is called by its class."""
    for name in [*vars(kind)]:
        getattr(kind, name, None)  # methods of operators are made when they are first used
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or name == "construct" or not function.__doc__ or function.__doc__ == "See the class.":
            continue
        if inspect.isfunction(function) or isinstance(function, property):
            yield name, function


def signature(name: str, value: object) -> str:
    """As it would be written in Python."""
    try:
        text = str(inspect.signature(value)) if callable(value) else ""
    except (TypeError, ValueError):
        text = "(…)"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", re.sub(r" at 0x[0-9a-f]+", "", text))
    text = text.replace(": Any", "").removesuffix(" -> None").removesuffix(" -> Any")
    return "\n".join(textwrap.wrap(f"{name}{text}", WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def markdown(docstring: str) -> Iterator[str]:
    """The docstring as paragraphs, lists and blocks of code."""
    section = ""
    for block in re.split(r"\n\s*\n", docstring.strip()):
        if not block.strip():
            continue
        first, _, rest = block.partition("\n")
        if found := _SECTION.match(first.strip()):
            section = found[1]
            yield f"**{section}**\n"
            yield from _section(textwrap.dedent(rest), section)
        elif block.startswith("    "):
            inside = textwrap.dedent(block)
            yield f"{inside}\n" if section and not inside.startswith(">>>") else f"```python\n{inside}\n```\n"
        else:
            section = ""
            yield f"{_prose(block)}\n"


def _section(text: str, section: str) -> Iterator[str]:
    if text.startswith(">>>") or section.startswith("Example"):
        yield f"```python\n{text}\n```\n"
        return
    for item in re.split(r"\n(?=\S)", text):
        flat = " ".join(item.split())
        found = _ITEM.match(flat) if section in _OF_ITEMS else None
        yield f"* **{found[1]}**{f' ({found[2]})' if found[2] else ''}: {_prose(found[3])}" if found else _prose(flat)
    yield ""


def _prose(text: str) -> str:
    """Double backticks are single ones in Markdown; a line that begins with a marker of Markdown is none here."""
    return re.sub(r"(?m)^(\s*)([#>+])", r"\1\\\2", text.replace("``", "`"))
