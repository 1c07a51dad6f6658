"""A result as Markdown: report.md of the run folder."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from unseen.errors import visible
from unseen.report import language as say
from unseen.report.sections import (
    Audience,
    Block,
    Bullets,
    Checks,
    Code,
    Example,
    Grid,
    Pairs,
    Text,
    header_facts,
    sections,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from unseen.runs.results import Check, RenderedPart, Results


def render(results: Results, about: Mapping[str, Any] | None = None) -> str:
    """The report as one Markdown text.

    Args:
        results: of the run.
        about: run.json; None where there is no run folder.
    """
    outcome = say.outcome(results)
    parts = [
        f"# {say.TITLES[results.run.scenario]}",
        _list(f"{name}: {value}" for name, value in header_facts(results)),
        f"## {outcome.label}",
        safe(outcome.sentence),
        *([_list(outcome.reasons)] if outcome.reasons else []),
    ]
    if results.epsilon is not None and not results.invalid:
        value, what = say.epsilon(results.epsilon)
        parts.append(safe(f"{value} ({what})."))
    for section in sections(results, about):
        parts += [f"## {section.title}", *_blocks(section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def safe(text: str) -> str:
    r"""Text that stays text: no markup, no HTML, no control characters, one line, one table cell.

    >>> safe("a|b <script>")
    'a\\|b &lt;script&gt;'
    """
    flat = visible(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(flat, quote=False))


def _blocks(blocks: Sequence[Block]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        if isinstance(block, Audience):
            found += [f"### {block.title}", *_blocks(block.blocks)]
        else:
            found.append(_block(block))
    return found


def _block(block: Block) -> str:
    """A block as text; empty for what Markdown has no place for."""
    if isinstance(block, Text):
        return f"**{safe(block.text)}**" if block.strong else safe(block.text)
    if isinstance(block, Bullets):
        return "\n".join(
            f"- {safe(item)}" if isinstance(item, str) else f"- **{safe(item[0])}** {safe(item[1])}"
            for item in block.items
        )
    if isinstance(block, Pairs):
        return _list(f"{name}: {value}" for name, value in block.pairs)
    if isinstance(block, Grid):
        return table(block.header, block.lines)
    if isinstance(block, Code):
        return _code(block)
    if isinstance(block, Checks):
        header = ("status", "check", "measured", "must hold", "what it means", "what to do")
        return table(header, map(_check, block.checks))
    if isinstance(block, Example):
        return safe("".join(map(_part, block.parts)))
    return ""


def _check(check: Check) -> tuple[str, ...]:
    return (
        say.STATUS[check.status],
        check.title,
        say.measured(check),
        check.limit,
        check.detail,
        check.fix or "",
    )


def _part(part: RenderedPart) -> str:
    if part.text is None:
        return f" ⟨content, {part.n_tokens} tokens{', scored' if part.scored else ''}⟩ "
    return part.text.replace("\n", "↵")


def _code(block: Code) -> str:
    """Typed text between fences that nothing in it can close."""
    text = visible(block.text, lines=True)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    fenced = f"{fence}\n{text}\n{fence}"
    return f"{safe(block.name)}:\n\n{fenced}" if block.name else fenced


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; what stands in its cells is made safe."""
    body = [[safe(cell) for cell in line] for line in (header, *lines)]
    body.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in body)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {safe(item)}" for item in items)
