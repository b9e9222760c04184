"""Templates of pages and pictures: files in which `$name` stands for what a renderer puts there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


@cache
def template(name: str) -> Template:
    """The template in the file `name` of this folder."""
    return Template((files(__name__) / name).read_text(encoding="utf-8"))
