"""What the fields of signals, attacks and defences may be; what they may not is refused at once."""

from __future__ import annotations

from collections.abc import Sequence


def check_count(name: str, n: int) -> None:
    """Refuses a field that counts less than one thing.

    Raises:
        ValueError: where it is below 1.
    """
    if n < 1:
        msg = f"got {name}={n}, expected at least 1"
        raise ValueError(msg)


def check_share(name: str, share: float) -> None:
    """Refuses a field that is no share of a whole.

    Raises:
        ValueError: where it is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        msg = f"got {name}={share}, expected a share above 0 and at most 1"
        raise ValueError(msg)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuses a field that is none of the choices.

    Raises:
        ValueError: with the choices.
    """
    if value not in choices:
        msg = f"got {name}={value!r}, expected one of {', '.join(choices)}"
        raise ValueError(msg)
