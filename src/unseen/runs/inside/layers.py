"""How well a probe of each layer tells members from non-members (LUMIA), on the folds of the attack.

Made with the states at hand, which no run folder keeps: scoring again takes it over as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unseen.attacks import label
from unseen.attacks.activation_probe import ActivationProbe
from unseen.errors import TooFewRecordsError
from unseen.runs.results import LayerReport, LayerRow, Number
from unseen.signals.base import CONTROL, REFERENCE, TARGET

if TYPE_CHECKING:
    from unseen.attacks.base import Attack
    from unseen.runs.judge import Judge
    from unseen.signals.activations import Pooled
    from unseen.signals.base import Observations

_ROLES = (REFERENCE, CONTROL)


def by_layer(
    judge: Judge, attacks: Mapping[str, Sequence[Attack]], observations: Observations
) -> tuple[LayerReport, ...]:
    """A report for each choice of tokens that an `activation_probe` averages states over.

    Args:
        judge: of the run: records, folds, intervals.
        attacks: role -> attacks that were run on the model in it.
        observations: what was measured of all models.
    """
    probed = {
        role: [one.tokens for one in some if isinstance(one, ActivationProbe)]
        for role, some in attacks.items()
    }
    reports = [
        _report(
            judge, tokens, [role for role in _ROLES if tokens in probed.get(role, ())], observations
        )
        for tokens in dict.fromkeys(probed[TARGET])
    ]
    return tuple(one for one in reports if one is not None)


def _report(
    judge: Judge, tokens: Pooled, roles: Sequence[str], observations: Observations
) -> LayerReport | None:
    attack = ActivationProbe(tokens=tokens)
    (signal,) = attack.signals()
    states = next(iter(observations.values.get(signal, {}).values()), None)
    if states is None:
        return None
    rows: list[LayerRow] = []
    seen = {role: observations.seen_as_target(role) for role in roles}
    for layer in range(len(states.states)):
        one = ActivationProbe(layer=layer, tokens=tokens)
        found = _auc(judge, one, observations)
        if isinstance(found, str):
            return LayerReport(attack=label(attack), tokens=tokens, note=found)
        beside = {role: _auc(judge, one, what) for role, what in seen.items()}
        numbers = {role: n for role, n in beside.items() if isinstance(n, Number)}
        rows.append(LayerRow(layer=layer, auc=found, **numbers))
    return LayerReport(attack=label(attack), tokens=tokens, rows=tuple(rows))


def _auc(judge: Judge, attack: ActivationProbe, observations: Observations) -> Number | str:
    """The AUC of one layer's probe, or why there is none."""
    scores = judge.score(attack, observations)
    if not scores.ids:
        return Counter(scores.unscored.values()).most_common(1)[0][0]
    try:
        return judge.auc(scores, judge.choices.confidence, learnt=True)
    except TooFewRecordsError as error:
        return error.problem
