"""What the documents say is true of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

import unseen
from unseen.cli.main import app, run
from unseen.runs.plan import choose_attacks
from unseen.signals.base import Observations
from unseen.types import TokenStats

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_attack_of_the_guide_works(tmp_path, monkeypatch) -> None:
    code = "\n".join(
        [
            "from dataclasses import dataclass",
            "from typing import ClassVar",
            "from unseen.attacks.base import Known, score_each",
            "from unseen.signals.base import Observations, Signal",
            "from unseen.signals.token_stats import TokenStatistics",
            "from unseen.targets.access import Access",
            "from unseen.types import Scores",
            blocks(CONTRIBUTING, "python")[0],
        ]
    )
    space: dict = {}
    exec(compile(code, "guide", "exec"), space)
    attack = space["Surprise"]()
    stats = {"a": TokenStats(np.array([-3.0, -1.0])), "b": TokenStats(np.array([-2.0]))}
    scores = attack.score(Observations(("a", "b"), {attack.signals()[0]: stats}))
    assert scores.values.tolist() == [-1.0, -2.0]


def commands() -> list[str]:
    lines = [line for block in blocks(README, "bash") for line in block.splitlines()]
    return [line.partition("  #")[0] for line in lines if line.startswith("unseen ")]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_readme_is_understood(command: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if "--help" in words:
        assert run(words) == 0
    else:
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)$", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_names_of_the_python_example_exist() -> None:
    for name in re.findall(r"unseen\.(\w+)", blocks(README, "python")[0]):
        assert hasattr(unseen, name)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README + CONTRIBUTING))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_is_a_configuration_of_attacks_that_exist(recipe: Path) -> None:
    chosen = unseen.FinetuneAudit(**yaml.safe_load(recipe.read_text()))
    assert choose_attacks(chosen.attacks)
