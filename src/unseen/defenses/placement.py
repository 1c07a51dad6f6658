"""Placement: where the demonstrations that have to be protected stand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, cast

from unseen.defenses.base import Defense
from unseen.prompts.trials import POSITIONS, Game, Position


@dataclass(frozen=True)
class Placement(Defense):
    """The record in question stands at another place among the demonstrations (section 5.4).

    Attributes:
        position: "first", "middle", "last", "random", or its number from 1.
    """

    paper: ClassVar[str] = "Wen et al. 2024, arXiv:2409.01380"
    last: ClassVar[bool] = True

    position: str = "middle"

    def __post_init__(self) -> None:
        if self.position not in POSITIONS and not (
            self.position.isdecimal() and int(self.position)
        ):
            msg = (
                f"got position={self.position}, expected {', '.join(POSITIONS)}, or a number from 1"
            )
            raise ValueError(msg)

    def game(self, game: Game) -> Game:
        """The same trials, with another place.

        Raises:
            ConfigError: where there are fewer demonstrations than the place's number.
        """
        number = int(self.position) if self.position.isdecimal() else None
        return dataclasses.replace(game, position=number or cast("Position", self.position))
