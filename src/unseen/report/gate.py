"""What a gate says, for a terminal, a build summary and a test report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from unseen.errors import visible
from unseen.report.markdown import safe

if TYPE_CHECKING:
    from unseen.runs.gate import GateCheck, GateResult

_WORDS = {"pass": "PASSED", "fail": "FAILED", "inconclusive": "INCONCLUSIVE"}


def lines(result: GateResult) -> list[str]:
    """A line for each limit, one for all of them, and notes."""
    width = max(len(_asked(check)) for check in result.checks)
    each = [
        f"{check.outcome:<12}  {_asked(check):<{width}}  {visible(check.reason)}"
        for check in result.checks
    ]
    return [
        *each,
        *(f"note          {visible(note)}" for note in result.notes),
        f"GATE {_WORDS[result.outcome]}  {_level(result)}",
    ]


def markdown(result: GateResult) -> str:
    """A section for the summary of a build."""
    rows = [
        f"| {check.outcome} | {safe(_asked(check))} | {safe(check.reason)} |"
        for check in result.checks
    ]
    return "\n".join(
        [
            f"### Leakage gate: {_WORDS[result.outcome]}",
            "",
            f"Run {safe(result.run)}, {_level(result)}.",
            "",
            "| outcome | limit | found |",
            "| --- | --- | --- |",
            *rows,
            *(["", *(f"- {safe(note)}" for note in result.notes)] if result.notes else []),
            "",
        ]
    )


def junit(result: GateResult) -> str:
    """JUnit XML: a case for each limit; what is not decided is an error, so that no build is green by it."""
    outcomes = [check.outcome for check in result.checks]
    suite = ET.Element(
        "testsuite",
        name="unseen gate",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("fail")),
        errors=str(outcomes.count("inconclusive")),
    )
    for check in result.checks:
        case = ET.SubElement(
            suite, "testcase", classname=visible(f"unseen.gate.{result.run}"), name=_asked(check)
        )
        if check.outcome == "pass":
            ET.SubElement(case, "system-out").text = visible(check.reason)
        else:
            kind = "failure" if check.outcome == "fail" else "error"
            found = ET.SubElement(case, kind, type=check.outcome, message=visible(check.reason))
            found.text = visible(f"{_level(result)}; {check.reason}")
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _asked(check: GateCheck) -> str:
    return visible(f"{check.metric} <= {check.limit:g}")


def _level(result: GateResult) -> str:
    corrected = f", failing corrected for {result.tests} tests" if result.tests > 1 else ""
    return f"intervals of {100 * result.confidence:g}%{corrected}"
