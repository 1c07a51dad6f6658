import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import AccessError, UnscorableError
from unseen.runs.collect import Cost, Model, collect
from unseen.scoring.store import Store
from unseen.signals.base import REFERENCE, TARGET, Observations, Shown, key
from unseen.signals.prefixed import PrefixedStatistics
from unseen.signals.probed import MaskedProbes
from unseen.signals.text import CompressedSize, SameText, WordCounts
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.access import Access, stats_of_one
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.targets.limited import LimitedTarget
from unseen.types import Record, Request, Turn

TEXTS = ["The quick brown fox.", "Jumps Over", "the lazy dog", "東京は静かだった。"]
RECORDS = tuple(Record(f"r{i}", (Turn("text", text),)) for i, text in enumerate(TEXTS))
SHOTS = tuple(Record(f"s{i}", (Turn("text", f"Known shot {i}."),)) for i in range(3))


def model(target: FakeTarget | LimitedTarget | None = None, **choices: Any) -> Model:
    target = target or FakeTarget()
    return Model(
        target, RecordEncoder(target.tokenizer, Layout(**choices), limit=target.max_length)
    )


def measured(
    signals: list[Any],
    models: dict[str, Model] | None = None,
    records: Sequence[Record] = RECORDS,
    **options: Any,
) -> tuple[Observations, Cost]:
    with Store() as store:
        models = models or {TARGET: model()}
        return collect(signals, records, models, store=store, **options)


def test_values_are_what_the_target_says() -> None:
    target = FakeTarget(TEXTS[:1])
    seen, _ = measured([TokenStatistics()], {TARGET: model(target)})
    assert seen.ids == ("r0", "r1", "r2", "r3")
    for record in RECORDS:
        ids = tuple(record.text.encode())
        alone = stats_of_one(FakeTarget(TEXTS[:1]), Request((256,), ids))
        np.testing.assert_array_equal(seen.get(TokenStatistics(), record.id).logprob, alone.logprob)


def test_tokens_that_do_not_count_are_left_out() -> None:
    turns = (
        Turn("user", "who?"),
        Turn("assistant", "one"),
        Turn("user", "and?"),
        Turn("assistant", "two"),
    )
    record = Record("c", turns)
    found = {}
    for loss_on in ("assistant", "all"):
        models = {TARGET: model(loss_on=loss_on)}
        seen, _ = measured([TokenStatistics()], models, [record])
        found[loss_on] = seen.get(TokenStatistics(), "c").logprob
    assert len(found["assistant"]) == len("onetwo")
    assert len(found["all"]) > len("who?oneand?two")
    assert set(found["assistant"]) <= set(found["all"])


def test_equal_requests_of_several_signals_are_asked_once() -> None:
    target = FakeTarget()
    signals = [
        TokenStatistics(),
        TokenStatistics(),
        TokenStatistics(case="lower"),
        MaskedProbes(probes=2),
        PrefixedStatistics(shots=1),
        PrefixedStatistics(shots=3),
    ]
    seen, cost = measured(signals, {TARGET: model(target)}, shown=Shown(known_nonmembers=SHOTS))
    # As it is, two prefixes, two probes; lower case only where it changes something.
    assert target.n_executed == 4 * (1 + 2 + 2) + 2
    assert cost.requests == cost.scored == {TARGET: target.n_executed}
    assert len(seen.values) == 5
    probed = seen.get(MaskedProbes(probes=2), "r0")
    assert probed.plain == pytest.approx(seen.get(TokenStatistics(), "r0").logprob.sum())


def test_equal_records_are_asked_once_and_each_has_its_value() -> None:
    target = FakeTarget()
    twins = [Record("a", RECORDS[0].turns), Record("b", RECORDS[0].turns)]
    seen, _ = measured([TokenStatistics()], {TARGET: model(target)}, twins)
    assert target.n_executed == 1
    one, other = (seen.get(TokenStatistics(), id_).logprob for id_ in "ab")
    np.testing.assert_array_equal(one, other)


def test_what_is_stored_is_not_asked_again() -> None:
    target = FakeTarget()
    with Store() as store:
        models = {TARGET: model(target)}
        first, _ = collect([TokenStatistics()], RECORDS[:2], models, store=store)
        both, cost = collect([TokenStatistics()], RECORDS, models, store=store)
        assert store.count() == (4, 1)
    assert target.n_executed == 4
    assert (cost.requests[TARGET], cost.scored[TARGET]) == (4, 2)
    np.testing.assert_array_equal(
        first.get(TokenStatistics(), "r0").logprob, both.get(TokenStatistics(), "r0").logprob
    )


def test_the_batch_size_changes_nothing() -> None:
    signals = [TokenStatistics(), PrefixedStatistics(shots=2)]
    one, _ = measured(signals, shown=Shown(known_nonmembers=SHOTS), batch_tokens=1)
    many, _ = measured(signals, shown=Shown(known_nonmembers=SHOTS))
    for signal, id_ in itertools.product(signals, one.ids):
        np.testing.assert_array_equal(one.get(signal, id_).logprob, many.get(signal, id_).logprob)


def test_each_role_is_asked_for_its_own_signals() -> None:
    target, reference = FakeTarget(TEXTS), FakeTarget(tokenizer=FakeTokenizer(bos=False))
    models = {TARGET: model(target), REFERENCE: model(reference)}
    of_reference = TokenStatistics(of=REFERENCE)
    seen, cost = measured([TokenStatistics(), of_reference], models)
    assert (target.n_executed, reference.n_executed) == (4, 4)
    assert cost.scored == {TARGET: 4, REFERENCE: 4}
    assert len(seen.get(TokenStatistics(), "r1").logprob) == len("Jumps Over")
    assert len(seen.get(of_reference, "r1").logprob) == len("Jumps Over") - 1
    alone = seen.seen_as_target(REFERENCE)
    assert alone.get(TokenStatistics(), "r1") is seen.get(of_reference, "r1")


def test_whether_models_read_the_same_text_is_measured_wherever_two_are_asked() -> None:
    both = [TokenStatistics(), TokenStatistics(of=REFERENCE)]
    seen, _ = measured(both, {TARGET: model(), REFERENCE: model(FakeTarget(max_length=13))})
    assert seen.get(SameText(), "r1").n_bytes == len("Jumps Over")
    assert seen.missing[SameText()] == dict.fromkeys(
        ("r0", "r3"), "the two models read different parts of this record"
    )
    assert set(seen.values[TokenStatistics(of=REFERENCE)]) == set(seen.ids), "a control needs them"
    assert SameText() not in measured(both[:1])[0].values


def test_a_role_that_no_signal_asks_costs_nothing() -> None:
    reference = FakeTarget()
    models = {TARGET: model(), REFERENCE: model(reference)}
    _, cost = measured([TokenStatistics()], models)
    assert reference.n_executed == 0
    assert (cost.requests[REFERENCE], cost.tokens[REFERENCE]) == (0, 0)


def test_reasons_are_kept_for_what_has_no_value() -> None:
    signals = [TokenStatistics(case="lower"), PrefixedStatistics(), CompressedSize()]
    long = Record("long", (Turn("text", "No room " * 4),))
    mute = Record("mute", (Turn("user", "Say nothing"),))
    records = (*RECORDS, long, mute)
    models = {TARGET: model(FakeTarget(max_length=40))}
    seen, _ = measured(signals, models, records, shown=Shown(known_nonmembers=SHOTS[:1]))
    lower, prefixed, size = (seen.missing[signal] for signal in signals)
    unchanged = "lower case does not change this text"
    assert lower == dict.fromkeys(["r2", "r3", "mute"], unchanged)
    room = "does not fit into the context after the records before it"
    assert prefixed["long"] == room
    assert size == {"mute": "no assistant turn to score"}
    for signal in signals:
        assert set(seen.values[signal]) | set(seen.missing[signal]) == {r.id for r in records}
        assert not set(seen.values[signal]) & set(seen.missing[signal])
    with pytest.raises(UnscorableError, match=room):
        seen.get(PrefixedStatistics(), "long")


def test_a_prefix_without_known_records_is_a_reason() -> None:
    seen, cost = measured([PrefixedStatistics()])
    assert set(seen.missing[PrefixedStatistics()].values()) == {
        "no known nonmembers are set aside for the prefix"
    }
    assert cost.requests == {TARGET: 0}


def test_a_value_that_cannot_be_observed_is_a_reason() -> None:
    class Picky(TokenStatistics):
        def observe(self, answers: Any) -> Any:
            reason = "not this one"
            raise UnscorableError(reason)

    seen, _ = measured([Picky()])
    assert seen.values[Picky()] == {}
    assert set(seen.missing[Picky()].values()) == {"not this one"}


def test_texts_are_read_without_asking() -> None:
    target = FakeTarget()
    seen, cost = measured([CompressedSize(), WordCounts()], {TARGET: model(target)})
    assert target.n_executed == 0
    assert seen.get(CompressedSize(), "r3").n_bytes == len(TEXTS[3].encode())
    assert seen.get(WordCounts(), "r2").counts.tolist() == [1, 1, 1]
    assert cost.requests == {TARGET: 0}


def test_text_needs_no_rung() -> None:
    seen, _ = measured([WordCounts()], {TARGET: model(FakeTarget(access=Access.TEXT))})
    assert set(seen.values[WordCounts()]) == {"r0", "r1", "r2", "r3"}


@pytest.mark.parametrize(
    ("signals", "problem"),
    [
        ([TokenStatistics()], "TokenStatistics needs logprob access; fake gives label"),
        ([CompressedSize(), MaskedProbes()], "MaskedProbes needs logprob access; fake gives label"),
        ([TokenStatistics(of=REFERENCE)], "TokenStatistics needs a reference model, and there is"),
        ([CompressedSize(of=REFERENCE)], "CompressedSize needs a reference model"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is(
    signals: list[Any], problem: str
) -> None:
    inner = FakeTarget()
    models = {TARGET: model(LimitedTarget(inner, Access.LABEL))}
    with pytest.raises(AccessError, match=problem):
        measured([WordCounts(), *signals], models)
    assert inner.n_executed == 0


def test_progress_is_told_by_role() -> None:
    told = []
    models = {TARGET: model(), REFERENCE: model()}
    measured(
        [TokenStatistics(), TokenStatistics(of=REFERENCE)],
        models,
        progress=lambda *now: told.append(now),
    )
    names = [name for name, _ in itertools.groupby(name for name, _, _ in told)]
    assert names == [
        "preparing target",
        "scoring target",
        "preparing reference",
        "scoring reference",
    ]
    for name in names:
        steps = [(done, total) for what, done, total in told if what == name]
        assert steps == sorted(steps)
        assert steps[-1] == (4, 4)


def test_no_records_and_no_signals() -> None:
    seen, cost = measured([TokenStatistics()], records=())
    assert (seen.ids, seen.values) == ((), {TokenStatistics(): {}})
    assert cost.requests == {TARGET: 0}
    assert measured([])[0].values == {}


def test_signals_have_one_key_each() -> None:
    signals = [
        TokenStatistics(),
        TokenStatistics(case="lower"),
        TokenStatistics(of=REFERENCE),
        PrefixedStatistics(),
        PrefixedStatistics(shots=3),
    ]
    assert len({key(signal) for signal in signals}) == len(signals)
    assert key(PrefixedStatistics()) == key(PrefixedStatistics(shots=7))
