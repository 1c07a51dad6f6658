import dataclasses
from pathlib import Path

import pytest

from unseen.errors import ConfigError, UnknownNameError
from unseen.prompts.templates import PAPERS, Example, as_chat, find_template, read_template
from unseen.types import Turn

INSTRUCTION = (
    "Classify the questions based on whether their answer type is a Number, Location, Person, "
    "Description, Entity, or Abbreviation."
)
DEMOS = (
    Example("a", "What is a biosphere?", "Description"),
    Example("b", "When was Ozzy Osbourne born?", "Number"),
)


# --- the papers', byte by byte ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "shown"),
    [
        (0, ""),
        (1, "Question: What is a biosphere?\nAnswer Type: Description\n\n"),
        (
            2,
            "Question: What is a biosphere?\nAnswer Type: Description\n\n"
            "Question: When was Ozzy Osbourne born?\nAnswer Type: Number\n\n",
        ),
    ],
)
def test_the_prompt_of_trec(k: int, shown: str) -> None:
    trec = find_template("trec")
    whole = trec.hidden(DEMOS[:k]) + trec.asked("Who wrote Hamlet?")
    expected = f"{INSTRUCTION}\n\n{shown}Question: Who wrote Hamlet?\nAnswer Type:"
    assert whole.encode() == expected.encode()
    assert trec.begun("Who wrote Hamlet") == "Question: Who wrote Hamlet"
    assert trec.answered("Person") == " Person"


LABELS = {
    "trec": "Number Location Person Description Entity Abbreviation",
    "trec-paper": "Number Location Person Description Entity Ab",
    "agnews": "World Sports Business Technology",
    "agnews-paper": "World Sports Business Technology",
    "dbpedia": "Company School Artist Athlete Politician Transportation Building Nature Village "
    "Animal Plant Album Film Book",
    "dbpedia-paper": "Company School Artist Ath Polit Transportation Building Nature Village "
    "Animal Plant Album Film Book",
}


def test_labels_stand_in_the_order_of_the_data_sets() -> None:
    # AG News: 3 is Business and 4 Technology. DBPedia: 4 is Athlete and 5 Politician.
    assert {name: t.labels and " ".join(t.labels.words) for name, t in PAPERS.items()} == LABELS


def test_instructions_and_cues_of_the_others() -> None:
    agnews, dbpedia = PAPERS["agnews"], PAPERS["dbpedia"]
    assert agnews.hidden(()) == (
        "Classify the news articles into the categories of World, Sports, Business, and "
        "Technology.\n\n"
    )
    assert PAPERS["agnews-paper"].hidden(()) == ""
    assert dbpedia.hidden(()) == (
        "Classify the documents based on whether they are about a Company, School, Artist, "
        "Athlete, Politician, Transportation, Building, Nature, Village, Animal, Plant, Album, "
        "Film, or Book.\n\n"
    )
    for template in (agnews, dbpedia, PAPERS["agnews-paper"]):
        assert template.shown(Example("", "x", "Film")) == "Article: x\nAnswer: Film\n\n"
        assert template.asked("x") == "Article: x\nAnswer:"


# --- what is filled in --------------------------------------------------------------------------


def test_a_text_may_hold_the_marks_itself() -> None:
    shown = PAPERS["trec"].shown(Example("", "what is {output} or {input}?", "{input}"))
    assert shown == "Question: what is {output} or {input}?\nAnswer Type: {input}\n\n"


def test_marks_that_nothing_is_put_in_place_of_are_found(tmp_path: Path) -> None:
    path = written(
        tmp_path, "t.txt", 'As {"a": {x}}: {labels}\n{demos}{ labels } {input} {labels}:'
    )
    assert read_template(path).unfilled == ("{x}", "{labels}")
    assert all(template.unfilled == () for template in PAPERS.values())


def test_an_answer_ends_where_the_next_demonstration_would_begin() -> None:
    trec = PAPERS["trec"]
    assert trec.until(" Person\n\nQuestion: Who") == " Person"
    assert trec.until(" Person\nor so") == " Person\nor so"


def test_a_chat_shows_demonstrations_to_the_system_or_as_turns() -> None:
    trec = PAPERS["trec"]
    shown = trec.hidden(DEMOS[:1]).rstrip()
    assert as_chat(trec).turns(DEMOS[:1], "Hello") == (Turn("system", shown), Turn("user", "Hello"))
    assert as_chat(trec, as_turns=True).turns(DEMOS[:1], "Hello") == (
        Turn("system", INSTRUCTION),
        Turn("user", "Question: What is a biosphere?\nAnswer Type:"),
        Turn("assistant", "Description"),
        Turn("user", "Hello"),
    )
    told = as_chat(dataclasses.replace(trec, after="Say less.\n\n"))
    assert told.turns(DEMOS[:1], "Hello")[0].content == f"{shown}\n\nSay less."
    told = dataclasses.replace(told, as_turns=True)
    assert told.turns(DEMOS[:1], "Hello") == (
        *as_chat(trec, as_turns=True).turns(DEMOS[:1], "")[:-1],
        Turn("user", "Say less.\n\nHello"),
    )
    assert as_chat(PAPERS["agnews-paper"]).turns((), "Hello") == (Turn("user", "Hello"),)
    assert as_chat(trec).answered("Person") == "Person"


# --- the user's ---------------------------------------------------------------------------------


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_a_text_file_is_a_prompt_with_two_marks(tmp_path: Path) -> None:
    path = written(tmp_path, "triage.txt", "Sort:\n\n{demos}Ticket: {input}\nQueue: \n")
    template = find_template(str(path))
    assert template.hidden(DEMOS[:1]) == (
        "Sort:\n\nTicket: What is a biosphere?\nQueue: Description\n\n"
    )
    assert template.asked("Help!") == "Ticket: Help!\nQueue:"
    assert template.answered("IT") == " IT"
    assert (template.name, template.labels, template.chat) == ("triage.txt", None, False)
    broken = written(tmp_path, "broken.txt", "Sort:\n{demos}\n\nTicket: {input}\nQueue:")
    assert read_template(broken).asked("Help!") == "Ticket: Help!\nQueue:"


def test_a_yaml_file_says_the_same_by_fields(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "triage.yaml",
        'before: "Sort.\\n"\nquestion: |\n  {input}\n  =>\nafter: "Now:\\n"\nchat: true\n'
        "labels: [IT, 2, 'no']\nsynonyms: {IT: [computers], 2: [two]}\n",
    )
    template = read_template(path)
    assert template.hidden(DEMOS[:1]) == "Sort.\nWhat is a biosphere?\n=> Description\n\nNow:\n"
    assert template.labels is not None
    assert template.labels.words == ("IT", "2", "no")
    assert template.labels.parse("Two, I think") == "2"
    assert (template.chat, template.as_turns) == (True, False)
    shown = "question: '{input}?'\ndemonstration: \"<{input}>\\n{output};\"\n"
    own = read_template(written(tmp_path, "own.yml", shown))
    assert own.hidden(DEMOS) == (
        "<What is a biosphere?>\nDescription;<When was Ozzy Osbourne born?>\nNumber;"
    )
    assert own.answered("Number") == " Number"  # it is not shown how an answer follows "?"
    assert own.until("Number;<What") == "Number"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "Ticket: {input}", "has no place for demonstrations\n  write {demos} where"),
        ("t.txt", "{demos}Ticket:", "has no place for what is asked\n  write {input} where"),
        ("t.txt", "{demos}{demos}{input}", "has {demos} where no demonstrations go"),
        ("t.txt", "{demos}{input} => {output}", "has {output}, where nothing is answered yet"),
        ("t.yaml", "question: '{input} {output}'", "has {output}, where nothing is answered yet"),
        ("t.yaml", "before: x\nquestion: [secret", "t.yaml line 2 is no YAML: "),
        ("t.yaml", "", "holds no fields\n  before, question"),
        ("t.yaml", "before: x", "does not say how something is asked: question"),
        ("t.yaml", "questions: x", "unknown field of a template 'questions'\n  did you mean"),
        ("t.yaml", "question: x", "has no place for what is asked"),
        ("t.yaml", "question: '{input}'\nbefore: '{demos}'", "has {demos} where no"),
        ("t.yaml", "question: '{input}'\ndemonstration: '{input}'", "has no {output}\n  write it"),
        ("t.yaml", "question: '{input}'\nas_turns: true", "as turns, and is no chat\n  chat: true"),
        ("t.yaml", "question: '{input}'\nchat: 'no'", "field chat of the template"),
        ("t.yaml", "question: '{input}'\nlabels: [yes, no]", "YAML reads yes and no as true"),
        ("t.yaml", "question: '{input}'\nlabels: A, B", "  labels: [First, Second]"),
        ("t.yaml", "question: '{input}'\nlabels: [A, B]\nsynonyms: {A: a1}", "synonyms: {First:"),
        ("t.yaml", "question: '{input}'\nsynonyms: {A: [a1]}", "which they are spellings of"),
        ("t.yaml", "question: [a]", "field question of the template"),
    ],
)
def test_a_template_that_cannot_be_used_says_why(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_template(written(tmp_path, name, content))
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xff\xfe{demos}")
    with pytest.raises(ConfigError, match=r"t\.txt is no text in UTF-8 \(byte 1\)"):
        read_template(path)
    path.write_bytes(b"\xef\xbb\xbfSort:\n{demos}{input}:")  # as some editors begin a file
    assert read_template(path).hidden(()) == "Sort:\n"
    with pytest.raises(ConfigError, match="is a folder"):
        find_template(str(tmp_path))
    with pytest.raises(ConfigError, match=r"the template triage\.txt is not there"):
        find_template("triage.txt")
    with pytest.raises(UnknownNameError) as raised:
        find_template("tric")
    assert "did you mean 'trec'" in str(raised.value)
