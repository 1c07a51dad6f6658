from typing import Any

import pytest

from unseen.data.templates import Layout, RecordEncoder
from unseen.errors import UnscorableError
from unseen.signals.base import Ask, Materials
from unseen.signals.probed import MaskedProbes
from unseen.targets.fake import FakeTokenizer
from unseen.types import Record, Turn

LONG = "The quick brown fox jumps over the lazy dog."
TOO_SHORT = "too short to mask a part of it"


def chat(*said: str) -> Record:
    turns = [(Turn("user", "Go on?"), Turn("assistant", text)) for text in said]
    return Record("c", tuple(turn for pair in turns for turn in pair))


def ask(record: Record, signal: MaskedProbes | None = None, **choices: Any) -> Ask:
    tokenizer = FakeTokenizer()
    materials = Materials(RecordEncoder(tokenizer, Layout(**choices), limit=4096))
    return (signal or MaskedProbes()).ask(record, materials)


def said(record: Record) -> list[str]:
    return [turn.content for turn in record.turns if turn.role == "assistant"]


def test_every_turn_that_can_be_masked_is() -> None:
    probes = MaskedProbes().made_from(chat(LONG, "OK", "!", "7", LONG.lower()))
    assert len(probes) == 5
    for probe in probes:
        first, *short, last = said(probe)
        assert short in (["wordK", "!", "7"], ["Oword", "!", "7"])
        assert first.split().count("word") == last.split().count("word") == 4
        assert [turn.content for turn in probe.turns if turn.role == "user"] == ["Go on?"] * 5


def test_a_turn_that_is_too_short_does_not_unscore_the_others() -> None:
    with_short = ask(chat("Y", LONG), loss_on="assistant")
    assert len(with_short.requests) == 6
    assert len(ask(chat("Y", LONG)).requests) == 6, "the short turn does not even count"
    alone = MaskedProbes().made_from(chat(LONG))
    together = MaskedProbes().made_from(chat("Y", LONG))
    assert [said(probe)[-1] for probe in together] == [said(probe)[-1] for probe in alone]


@pytest.mark.parametrize("record", [chat("Y"), chat("Y", "!"), Record("d", (Turn("text", "a"),))])
def test_where_nothing_can_be_masked_there_is_no_probe(record: Record) -> None:
    with pytest.raises(UnscorableError, match=TOO_SHORT):
        MaskedProbes().made_from(record)
    with pytest.raises(UnscorableError, match=TOO_SHORT):
        ask(record, loss_on="assistant")


def test_a_probe_that_holds_all_that_is_scored_is_none() -> None:
    with pytest.raises(UnscorableError, match=TOO_SHORT):
        ask(chat(LONG, "Y"), loss_on="completion")
    assert len(ask(chat(LONG, "Y"), loss_on="assistant").requests) == 6


def test_a_mask_that_changes_nothing_is_none() -> None:
    with pytest.raises(UnscorableError, match=TOO_SHORT):
        MaskedProbes().made_from(chat("word word word"))
    probes = MaskedProbes(probes=9).made_from(chat("word fox"))
    assert [said(probe) for probe in probes] == [["word word"]]
    asked = ask(chat(LONG, "word fox"))
    assert 1 < len(asked.requests) < 6, "some masks leave the turn that counts as it is"
    for request in asked.requests[1:]:
        assert b"Go on?word fox" not in bytes(id_ for id_ in request.context if id_ < 256)


def test_a_record_has_the_same_probes_in_any_company() -> None:
    records = [chat("Y", LONG), chat(LONG, "OK"), chat(LONG)]
    one_way = [MaskedProbes().made_from(record) for record in records]
    other_way = [MaskedProbes().made_from(record) for record in reversed(records)]
    assert one_way == other_way[::-1]
    assert one_way[0] != MaskedProbes(seed=1).made_from(records[0])


def test_all_requests_score_the_same_tokens() -> None:
    asked = ask(chat("Y", LONG, "OK"), loss_on="assistant")
    assert len(set(asked.scored)) == 1
    assert bytes(asked.scored[0]) == f"Y{LONG}OK".encode()


# --- where a probe stands -----------------------------------------------------------------------

PROMPT = "Go on?"


def text_of(ids: tuple[int, ...]) -> str:
    names = {256: "", 257: "<end>", 258: "<system>", 259: "<user>", 260: "<assistant>"}
    parts = [names[id_] if id_ in names else chr(id_) for id_ in ids]
    return "".join(parts)


@pytest.mark.parametrize("loss_on", ["completion", "assistant"])
@pytest.mark.parametrize("join", ["turn", "user", "plain"])
def test_the_same_response_ids_wherever_the_probe_stands(join: Any, loss_on: str) -> None:
    asked = ask(chat(LONG, LONG.upper()), MaskedProbes(join=join), loss_on=loss_on)
    assert len(asked.requests) == 6
    assert len(set(asked.scored)) == 1
    said = LONG.upper() if loss_on == "completion" else LONG + LONG.upper()
    assert bytes(asked.scored[0]).decode().replace("\n", "") == said


def test_joins_put_the_probe_where_they_say() -> None:
    masked = MaskedProbes(probes=1).made_from(chat(LONG))[0].turns[1].content
    found = {}
    for join in ("turn", "user", "plain"):
        asked = ask(chat(LONG), MaskedProbes(probes=1, join=join))  # type: ignore[arg-type]
        found[join] = [text_of(request.context) for request in asked.requests]
    assert found["turn"] == [
        f"<user>{PROMPT}<end><assistant>",
        f"<user>{PROMPT}<end><assistant>{masked}<end><user>{PROMPT}<end><assistant>",
    ]
    assert found["user"] == [
        f"<user>{PROMPT}<end><assistant>",
        f"<user>{PROMPT}\n{masked}\n\n{PROMPT}<end><assistant>",
    ]
    assert found["plain"] == [f"{PROMPT}\n", f"{PROMPT}\n{masked}\n\n{PROMPT}\n"]


def test_the_systems_turn_stays_in_front() -> None:
    record = Record("c", (Turn("system", "Be kind."), *chat(LONG).turns))
    for join in ("turn", "user"):
        asked = ask(record, MaskedProbes(probes=1, join=join))  # type: ignore[arg-type]
        for request in asked.requests:
            shown = text_of(request.context)
            assert shown.startswith("<system>Be kind.<end><user>")
            assert shown.count("Be kind.") == 1


@pytest.mark.parametrize("join", ["turn", "user", "plain"])
def test_what_does_not_fit_after_a_probe_is_a_reason(join: Any) -> None:
    with pytest.raises(UnscorableError, match="does not fit into the context"):
        ask(chat(LONG), MaskedProbes(join=join), max_length=80)


def test_without_a_users_turn_there_is_no_place_in_it() -> None:
    document = Record("d", (Turn("text", LONG),))
    with pytest.raises(UnscorableError, match="there is no user turn"):
        ask(document, MaskedProbes(join="user"))
    with pytest.raises(UnscorableError, match="would count too"):
        ask(chat(LONG), MaskedProbes(join="user"), loss_on="all")
    plain, turn = (ask(document, MaskedProbes(join=join)) for join in ("plain", "turn"))  # type: ignore[arg-type]
    assert plain.requests == turn.requests, "a document has no template"


def test_joined_records_do_not_change_what_is_asked_of_others() -> None:
    encoder = RecordEncoder(FakeTokenizer(), Layout(), limit=4096)
    before = encoder.encode(chat(LONG))
    for join in ("user", "plain", "turn"):
        MaskedProbes(join=join).ask(chat(LONG), Materials(encoder))  # type: ignore[arg-type]
    assert encoder.encode(chat(LONG)) is before


def test_a_response_of_marks_alone_says_so() -> None:
    record = Record("a", (Turn("user", "Well?"), Turn("assistant", "\U0001f600 \U0001f601 !!")))
    with pytest.raises(UnscorableError, match="no letter or digit in it"):
        MaskedProbes().made_from(record)
