"""Plans that are read back from JSON, and several of them in one table and on one page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import For, SporaxValueError
from sporax.base.text_tables import page_width, table_lines
from sporax.report.render.comparison import comparison_page
from sporax.report.summary import Summary
from sporax.report.view.comparison import ComparedPlan, compared, comparison_section, row_of
from sporax.report.view.plan_view import VERSION, Headline


def read_plans(path: Path) -> tuple[Summary, ...]:
    """The plan, or the plans of a comparison, that a file holds.

    Raises:
        SporaxValueError: it cannot be read, or is not what ``sporax plan --out plan.json`` writes of a step of one stage.
    """
    try:
        content = path.read_bytes()
        plans = decode(content, list[Summary]) if content.lstrip().startswith(b"[") else [decode(content, Summary)]
    except OSError as error:
        raise SporaxValueError(f"For 'plan', '{path}' must be a file that can be read, but {error.strerror}.") from None
    except MalformedError as problem:
        raise SporaxValueError(f"For 'plan', '{path}' must hold a plan of 'sporax plan', but {problem}.") from None
    versions = {plan.version for plan in plans}
    if versions != {VERSION}:
        raise For("plan").error(f"'{path}' must have plans of version {VERSION}, but got {sorted(versions)}")
    return tuple(plans)


class _StageDocument(msgspec.Struct):
    sent_bytes: float


class _PipelineDocument(msgspec.Struct):
    """What is compared of a pipeline, as ``PipelineSummary.to_json`` writes it."""

    num_micro: int
    num_devices: int
    headline: Headline
    stages: list[_StageDocument]


def read_pipeline(path: Path) -> ComparedPlan | None:
    """The row of a pipeline whose summary a file of `sporax plan --json` holds; None where it holds a plan of one stage."""
    content = path.read_bytes()
    if b'"num_micro"' not in content:
        return None
    found = decode(content, _PipelineDocument)
    return row_of(found.headline, found.num_devices, int(max(stage.sent_bytes for stage in found.stages)))


class _RefusedDocument(msgspec.Struct):
    """Why there is no plan, as `sporax plan --json` writes it."""

    refused: str
    needed_bytes: int | None


def read_refused(path: Path, flags: Sequence[str]) -> ComparedPlan | None:
    """The row of a plan that was refused, by the flags that requested it; None where the file holds a plan."""
    content = path.read_bytes()
    if not content.startswith(b'{"refused"'):
        return None
    found, requested = decode(content, _RefusedDocument), dict(zip(flags[::2], flags[1::2], strict=True))
    hardware, count = requested.get("--hardware", ""), int(requested.get("--devices", 0))
    return ComparedPlan(
        hardware, count, None, "s", None, None, found.needed_bytes or 0, None, 0, None, refused=found.refused
    )


def comparison_text(plans: Sequence[Summary | ComparedPlan]) -> str:
    """The table of several plans, as wide as the page, and why plans that are missing were refused."""
    rows = [plan if isinstance(plan, ComparedPlan) else compared(plan) for plan in plans]
    reasons = dict.fromkeys(f"{row.title}: {row.refused}" for row in rows if row.refused and not row.peak_bytes)
    lines = [line for reason in reasons for line in textwrap.wrap(reason, page_width())]
    return "\n".join([*table_lines(comparison_section(rows), page_width()), *lines])


def write_plans(plans: Sequence[Summary | ComparedPlan], path: Path) -> None:
    """Write plans as a page (``.html``), or as JSON that `read_plans` reads, which has no rows of refused ones.

    Raises:
        OSError: it cannot be written.
    """
    made = [plan for plan in plans if isinstance(plan, Summary)]
    if path.suffix == ".html":
        rows = [plan if isinstance(plan, ComparedPlan) else compared(plan) for plan in plans]
        text = made[0].to_html() if len(plans) == 1 else comparison_page(made, rows)
    else:
        text = made[0].to_json() if len(made) == 1 else msgspec.json.encode(made).decode()
    path.write_text(f"{text}\n", encoding="utf-8")
