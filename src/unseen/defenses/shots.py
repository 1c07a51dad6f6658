"""Shots: other demonstrations beside the one that has to be protected."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from unseen.defenses.base import Defense
from unseen.prompts.trials import Game
from unseen.signals.checks import check_count


@dataclass(frozen=True)
class Shots(Defense):
    """A prompt of another number of demonstrations (section 5.3).

    Attributes:
        n: how many.
    """

    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"

    n: int = 6

    def __post_init__(self) -> None:
        check_count("n", self.n)

    def game(self, game: Game) -> Game:
        """The same trials, with more or fewer demonstrations.

        Raises:
            ConfigError: where the place of the record in question is no longer there.
        """
        return dataclasses.replace(game, shots=self.n)
