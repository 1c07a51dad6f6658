"""Overlap between the sides, against all pairs compared one by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.data.duplicates import (
    Overlap,
    character_shingles,
    drop_overlap,
    find_overlap,
    has_words,
    normalised,
    repeated,
    word_shingles,
)
from unseen.data.records import Records
from unseen.errors import ConfigError, DataError


def slow_similarity(a: str, b: str) -> float:
    """Jaccard similarity of two normalised texts, from the definition."""
    worded = has_words(a) and has_words(b)
    units = (a.split(), b.split()) if worded else (list(a), list(b))
    sets = [{tuple(u[i : i + 5]) for i in range(max(1, len(u) - 4))} for u in units]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def slow_overlap(records: Records, threshold: float) -> set[Overlap]:
    """Every record with its closest partner, by comparing all pairs."""
    found = set()
    sides = records.members, records.nonmembers
    for own, other in (sides, sides[::-1]):
        for record in own:
            text = normalised(record.text)
            ranked = []
            for at, partner in enumerate(other):
                partner_text = normalised(partner.text)
                equal = text == partner_text
                similarity = 1.0 if equal else slow_similarity(text, partner_text)
                if similarity >= threshold:
                    ranked.append((not equal, -similarity, at, partner.id))
            if ranked:
                unequal, negative, _, partner_id = min(ranked)
                pair = (record.id, partner_id) if own is sides[0] else (partner_id, record.id)
                found.add(Overlap(*pair, "near" if unequal else "exact", -negative))
    return found


def twin_check(members: list[str], nonmembers: list[str], threshold: float = 0.8) -> int:
    records = Records.from_texts(members, nonmembers)
    found = find_overlap(records, threshold)
    assert set(found) == slow_overlap(records, threshold)
    assert len(set(found)) == len(found)
    return len(found)


def varied(rng: random.Random, text: str, changes: int) -> str:
    words = text.split(" ")
    for _ in range(changes):
        words[rng.randrange(len(words))] = rng.choice(["alpha", "beta", "gamma"])
    return " ".join(words)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("length", [6, 18, 22, 60])
@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_twin_on_words(seed: int, length: int, threshold: float) -> None:
    rng = random.Random(seed)
    vocabulary = [f"word{i}" for i in range(300)]
    base = [
        " ".join(rng.choices(vocabulary, k=rng.randint(length - 4, length + 4))) for _ in range(25)
    ]
    members = [varied(rng, text, rng.randint(0, 2)) for text in base] + base[:3]
    nonmembers = [varied(rng, text, rng.randint(0, 3)) for text in base] + base[2:6]
    assert twin_check(members, nonmembers, threshold) > 0


@pytest.mark.parametrize("seed", range(4))
def test_twin_on_text_without_spaces(seed: int) -> None:
    rng = random.Random(seed)
    base = [
        "".join(chr(rng.randint(0x4E00, 0x4E60)) for _ in range(rng.randint(3, 80)))
        for _ in range(20)
    ]
    members = [text + chr(rng.randint(0x4E00, 0x4E60)) for text in base]
    assert twin_check(members, base) > 5


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_twin_on_few_letters(data: st.DataObject) -> None:
    texts = st.lists(st.text("ab ", min_size=1).filter(str.strip), min_size=1, max_size=8)
    members, nonmembers = data.draw(texts), data.draw(texts)
    if members != nonmembers:
        twin_check(members, nonmembers, data.draw(st.sampled_from([0.3, 0.8])))


def test_shingles_are_five_in_a_row() -> None:
    assert word_shingles("a b c d e f") == {"a b c d e", "b c d e f"}
    assert word_shingles("a b") == {"a b"}
    assert character_shingles("abcdef") == {"abcde", "bcdef"}
    assert character_shingles("ab") == {"ab"}


def test_words_need_spaces_and_number() -> None:
    assert has_words(" ".join(["word"] * 20))
    assert not has_words(" ".join(["word"] * 19))
    assert not has_words("東京は静かだった。" * 100)
    assert not has_words(" ".join(["東京は静かだった。" * 5] * 30))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The  cat\nsat.", "the cat sat."),
        ("ＦＵＬＬ width", "full width"),
        ("e\u0301te\u0301", "été"),
        ("Straße", "STRASSE"),
        ("ﬁne", "fine"),
        (" a ", "a"),
    ],
)
def test_exact_after_normalising(one: str, other: str) -> None:
    found = find_overlap(Records.from_texts([one], [other]))
    assert found == (Overlap("members:1", "nonmembers:1", "exact", 1.0),)


def test_prompt_and_response_are_compared_together() -> None:
    ask = "Which of the two harbours did the committee visit in the spring of that year?"
    records = Records.from_texts(
        [{"prompt": ask, "completion": "The northern one."}],
        [{"prompt": ask, "completion": "Neither; the visit was put off twice and then forgotten."}],
    )
    assert find_overlap(records) == ()


def test_short_records_from_one_template_are_no_near_duplicates() -> None:
    capitals = [
        f"What is the capital of {name}?" for name in ("France", "Spain", "Peru", "Chad", "Oman")
    ]
    assert find_overlap(Records.from_texts(capitals[:2], capitals[2:])) == ()


def test_a_long_shared_template_counts_as_the_jaccard_says() -> None:
    rng = random.Random(0)
    frame = " ".join(f"frame{i}" for i in range(40))
    own = [" ".join(f"{rng.random()}" for _ in range(20)) for _ in range(40)]
    texts = [f"{frame} {text}" for text in own]
    assert twin_check(texts[:20], texts[20:]) == 0


def test_repeats_are_counted_and_kept() -> None:
    records = Records.from_texts(["Same text", "same  TEXT", "same text", "other"], ["x", "X", "y"])
    assert repeated(records) == {"members": 2, "nonmembers": 1}
    left, dropped = drop_overlap(records)
    assert (len(left), dropped) == (7, ())


def test_the_result_grows_with_records_not_pairs() -> None:
    found = find_overlap(Records.from_texts(["same"] * 50, ["same"] * 40))
    assert len(found) == 89
    assert {o.member_id for o in found} == {f"members:{i}" for i in range(1, 51)}
    assert {o.nonmember_id for o in found} == {f"nonmembers:{i}" for i in range(1, 41)}


def test_drop_takes_both_partners_with_reason() -> None:
    rng = random.Random(1)
    long = " ".join(f"word{rng.randint(0, 999)}" for _ in range(60))
    near = long.rsplit(" ", 1)[0] + " changed"
    records = Records.from_texts(["one", long, "stays"], ["ONE", near, "also stays"])
    left, dropped = drop_overlap(records)
    assert left.ids == ("members:3", "nonmembers:3")
    assert left.membership.member.tolist() == [True, False]
    assert [(d.id, d.side, d.reason, d.other_id) for d in dropped] == [
        ("members:1", "member", "exact_duplicate", "nonmembers:1"),
        ("members:2", "member", "near_duplicate", "nonmembers:2"),
        ("nonmembers:1", "nonmember", "exact_duplicate", "members:1"),
        ("nonmembers:2", "nonmember", "near_duplicate", "members:2"),
    ]
    assert find_overlap(left) == ()


def test_dropping_does_not_depend_on_the_order() -> None:
    rng = random.Random(3)
    base = [" ".join(rng.choices("abcdefgh", k=30)) for _ in range(30)]
    members = base[:20]
    nonmembers = [varied(rng, text, 1) for text in base[10:]] + ["fully different"]
    kept = []
    for seed in range(3):
        mixed = random.Random(seed).sample(members, 20), random.Random(seed).sample(nonmembers, 21)
        left, _ = drop_overlap(Records.from_texts(*mixed))
        kept.append({record.text for record in left.records})
    assert kept[0] == kept[1] == kept[2]


def test_nothing_left_is_an_error_without_text() -> None:
    with pytest.raises(DataError, match="nothing is left: all of the members") as caught:
        drop_overlap(Records.from_texts(["hidden"], ["Hidden", "other"]))
    assert "hidden" not in str(caught.value).lower()


@pytest.mark.parametrize("threshold", [0, -1, 1.01, float("nan")])
def test_thresholds_out_of_range(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        find_overlap(Records.from_texts(["a"], ["b"]), threshold)


@pytest.mark.slow
def test_real_texts(real_data: Path, tmp_path: Path) -> None:
    lines = (real_data / "banking77.jsonl").read_text("utf-8").splitlines(keepends=True)
    chosen = np.random.default_rng(0).permutation(len(lines))[:300]
    files = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files[0].write_text("".join(lines[i] for i in chosen[:150]), "utf-8")
    files[1].write_text("".join(lines[i] for i in chosen[100:]), "utf-8")
    records = Records.from_files(*files)
    found = find_overlap(records)
    assert sum(o.kind == "exact" for o in found) >= 50
    assert set(found) == slow_overlap(records, 0.8)


def test_repeats_in_a_pool_are_found_one_by_one() -> None:
    from unseen.data.duplicates import character_shingles, normalised, repeats_in
    from unseen.types import Record, Turn

    def made(*texts: str) -> list[Record]:
        return [Record(f"r{i}", (Turn("text", text),)) for i, text in enumerate(texts)]

    base = "the river runs past the old mill"
    pool = made("Nothing alike.", base, base.upper(), base + "s", "東京は静かだった", "x")
    records = made(base, "something else entirely", "東京は静かだった。", base + " ")
    found = repeats_in(pool, records, 0.8)

    def similarity(one: str, other: str) -> float:
        a, b = (character_shingles(normalised(text)) for text in (one, other))
        return len(a & b) / len(a | b)

    slow = {
        record.id: frozenset(
            at for at, shot in enumerate(pool) if similarity(record.text, shot.text) >= 0.8
        )
        for record in records
    }
    assert found == {id_: places for id_, places in slow.items() if places}
    assert found["r0"] == found["r3"] == {1, 2, 3}
