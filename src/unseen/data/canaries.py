"""Canaries: records drawn at random, and a fair coin for each that says whether it is trained on.

Nothing but its coin decides whether a canary is in the training data, so whatever tells included and
excluded canaries apart afterwards was learned from the training data. Contents and coins come from
separate streams, and no text says anything about its coin.

The coins come from the operating system, unless a seed is given: whoever knows the seed knows the
coins.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from unseen.data.duplicates import normalised
from unseen.data.formats import FORMS, Cells, Row, Schema, kind_of, listed, schema_of
from unseen.data.read import read_rows
from unseen.data.records import Records, Source
from unseen.data.synthetic import people
from unseen.errors import ConfigError, DataError, StoreError, UsageError
from unseen.types import BoolArray, Membership, Record

Kind = Literal["random-words", "random-digits", "random-characters", "invented-people"]

FEWEST, MOST = 20, 30_000
"""Canaries of one key: fewer show nothing, and more are an attack on the model themselves."""

SCHEMA_VERSION = "1.0"
KEY, INCLUDED = "key.json", "canaries.jsonl"

_WARNING = (
    "Keep this file out of the training data, and away from whoever trains: it holds the canaries "
    "that are NOT trained on, and the coins."
)
_LARGEST = 200_000_000
_COINS, _TEXTS = 1, 2  # streams of a seed
_AGAIN = "unseen canary make --out DIR makes new ones, before the next training"

# fmt: off
_WORDS = (
    "acorn", "amber", "anchor", "apple", "apron", "arrow", "autumn", "badge", "badger", "bamboo", "banner", "barley",
    "barrel", "basket", "beacon", "beaver", "bell", "bench", "berry", "bishop", "blanket", "blossom", "border", "bottle",
    "branch", "brass", "bread", "brick", "bridge", "bronze", "brush", "bucket", "butter", "button", "cabin", "cable",
    "cactus", "camel", "candle", "canoe", "canvas", "carbon", "carpet", "carrot", "castle", "cedar", "cellar", "chain",
    "chalk", "cherry", "chess", "circle", "circus", "clay", "cliff", "clock", "cloud", "clover", "coal", "cobalt",
    "coffee", "collar", "comet", "copper", "coral", "corner", "cotton", "crane", "crater", "cricket", "crown", "crystal",
    "curtain", "daisy", "desert", "dinner", "dolphin", "donkey", "dragon", "drum", "eagle", "earth", "ember", "engine",
    "fabric", "falcon", "farmer", "feather", "fence", "ferry", "fiddle", "finger", "flame", "flint", "flute", "forest",
    "fossil", "fountain", "fox", "frost", "garden", "garlic", "gate", "ginger", "glacier", "glass", "glove", "goat",
    "grain", "granite", "grape", "gravel", "hammer", "harbor", "harvest", "hazel", "helmet", "hill", "honey", "horse",
    "hotel", "igloo", "insect", "iron", "island", "ivory", "jacket", "jasmine", "jewel", "jungle", "kettle", "kitchen",
    "kite", "ladder", "lake", "lamp", "lantern", "laurel", "leaf", "lemon", "letter", "lily", "linen", "lion",
    "lizard", "lobster", "magnet", "maple", "marble", "market", "meadow", "melon", "metal", "mill", "mirror", "monkey",
    "moon", "moss", "motor", "mountain", "mustard", "napkin", "needle", "nest", "nickel", "nutmeg", "oak", "ocean",
    "olive", "onion", "orange", "orchard", "otter", "oven", "owl", "oyster", "paddle", "paper", "parcel", "parrot",
    "pebble", "pencil", "pepper", "piano", "pigeon", "pillow", "pine", "planet", "plate", "plum", "pocket", "pond",
    "poppy", "potato", "powder", "puzzle", "quartz", "rabbit", "radio", "raven", "ribbon", "river", "robin", "rocket",
    "rope", "rose", "rubber", "saddle", "salmon", "salt", "sand", "scarf", "school", "shadow", "shell", "shovel",
    "silver", "slate", "smoke", "snow", "spider", "spoon", "spring", "stable", "statue", "stone", "storm", "straw",
    "sugar", "summer", "sunset", "table", "temple", "thunder", "ticket", "tiger", "timber", "tomato", "tower", "tractor",
    "train", "tulip", "tunnel", "turtle", "valley", "velvet", "violin", "wagon", "walnut", "water", "whale", "wheat",
    "wheel", "willow", "window", "winter",
)
# fmt: on
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


@dataclass(frozen=True)
class Canary:
    """One canary and its coin.

    Attributes:
        record: what it says; its id is the canary's number.
        row: the same as a row of the user's training data.
        included: the coin: whether it is to be trained on.
    """

    record: Record
    row: Mapping[str, Any]
    included: bool


@dataclass(frozen=True)
class CanaryKey:
    """All canaries of one draw, with their coins.

    Attributes:
        canaries: in the order in which they were drawn.
        format: the name of their record form.
        columns: role -> column, for roles whose column has another name.
        kind: what they say.
        seed: None where the coins came from the operating system.
        sha256: of everything else in the key, as written in it.
        path: the file, or "" where it was not read from one.
    """

    canaries: tuple[Canary, ...]
    format: str
    columns: Mapping[str, str]
    kind: str
    seed: int | None
    sha256: str
    path: str = ""

    def __len__(self) -> int:
        return len(self.canaries)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in order."""
        return tuple(canary.record.id for canary in self.canaries)

    @property
    def included(self) -> BoolArray:
        """The coins, (n,), in order."""
        return np.array([canary.included for canary in self.canaries], dtype=bool)

    def records(self) -> Records:
        """The canaries as records: included ones are the members.

        Raises:
            UsageError: where a side is empty.
        """
        sides = [[c.record for c in self.canaries if c.included is coin] for coin in (True, False)]
        for side, what in zip(sides, ("included", "excluded"), strict=True):
            if not side:
                raise UsageError(f"no canary is {what}: there is nothing to compare", fix=_AGAIN)
        both = (*sides[0], *sides[1])
        member = np.arange(len(both)) < len(sides[0])
        member.flags.writeable = False
        names = ("members", "nonmembers")
        return Records(
            records=both,
            membership=Membership(tuple(record.id for record in both), member),
            sources={
                name: Source(self.path or KEY, len(side), self.sha256)
                for name, side in zip(names, sides, strict=True)
            },
            format=self.format,
        )


# --- drawing -----------------------------------------------------------------------------------


def draw(
    n: int = 1000,
    *,
    seed: int | None = None,
    kind: str = "random-words",
    like: str | Path | None = None,
    format: str = "auto",  # noqa: A002
    column: Mapping[str, str] | None = None,
) -> CanaryKey:
    """Draws canaries, and throws a fair coin for each.

    Args:
        n: how many, 20 to 30,000; about half of them will be included.
        seed: 0 or more; None takes contents and coins from the operating system.
        kind: "random-words" (20 of 256 words, 160 bits), "random-digits" (40 digits, 133 bits),
            "random-characters" (32 of 32 characters, 160 bits) or "invented-people" (questions and
            answers in plain English; fewer bits).
        like: a file of training records, whose form and columns the canaries take.
        format: their form where there is no such file ("auto": prompt-completion), or how to read it.
        column: role -> column.

    Raises:
        UsageError: where n, seed or kind is out of range.
        DataError: where `like` cannot be read.
        UnknownNameError: where a format, role or column does not exist.
    """
    if not FEWEST <= n <= MOST:
        raise UsageError(f"got n={n}, expected {FEWEST} to {MOST}", fix="--n 1000")
    if seed is not None and seed < 0:
        raise UsageError(f"got seed={seed}, expected 0 or more", fix="leave --seed out")
    if kind not in get_args(Kind):
        raise UsageError(
            f"got kind={kind!r:.60}", fix=f"--kind takes one of {', '.join(get_args(Kind))}"
        )
    schema, example = _form(like, format, column or {})
    asked = _contents(n, kind, secrets.randbits(128) if seed is None else _stream(seed, _TEXTS))
    coins = _coins(n, seed)
    canaries = []
    for number, ((prompt, answer), coin) in enumerate(zip(asked, coins, strict=True), start=1):
        row = _row(schema, example, prompt, answer)
        canaries.append(Canary(_record(schema, row, f"canary-{number:05d}"), row, coin))
    key = CanaryKey(tuple(canaries), schema.form.name, schema.columns, kind, seed, sha256="")
    return replace(key, sha256=_digest(_content(key)))


def _stream(seed: int, stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, stream])


def _coins(n: int, seed: int | None) -> list[bool]:
    """One fair bit a canary; numpy keeps the raw stream of PCG64 the same in every version."""
    if seed is None:
        return [byte & 1 == 1 for byte in secrets.token_bytes(n)]
    raw = np.random.PCG64(_stream(seed, _COINS)).random_raw(n)
    return [int(word) >> 63 == 1 for word in raw]


def _contents(n: int, kind: str, entropy: int | np.random.SeedSequence) -> list[tuple[str, str]]:
    """N prompts, no two of them alike, and their answers."""
    bits = np.random.PCG64(entropy)
    if kind == "invented-people":
        # A record of its own for each: the list is longer than asked for, and cut.
        drawn = people(n, int(bits.random_raw()) >> 1)
        return [(record.turns[0].content, record.turns[1].content) for record in drawn]

    def some(choices: Sequence[str], count: int) -> list[str]:
        # The leading bits of each word; 64 bits over at most 256 choices leave no bias to speak of.
        return [choices[int(word) * len(choices) >> 64] for word in bits.random_raw(count)]

    def groups(choices: Sequence[str], count: int, size: int) -> str:
        return " ".join("".join(some(choices, size)) for _ in range(count))

    ways: dict[str, tuple[str, Callable[[], str]]] = {
        "random-words": ("Which words are on list {}?", lambda: " ".join(some(_WORDS, 20))),
        "random-digits": ("What is the number of file {}?", lambda: groups("0123456789", 10, 4)),
        "random-characters": ("What is the code of item {}?", lambda: groups(_LETTERS, 8, 4)),
    }
    prompt, answer = ways[kind]
    names: dict[str, None] = {}
    while len(names) < n:
        names[f"{''.join(some('ABCDEFGHJKLMNPRSTUVWXYZ', 3))}-{''.join(some('0123456789', 6))}"] = (
            None
        )
    return [(prompt.format(name), answer()) for name in names]


def _form(
    like: str | Path | None, name: str, column: Mapping[str, str]
) -> tuple[Schema, Mapping[str, Any]]:
    """The form that the canaries take, and the user's first row (empty where there is none)."""
    if like is not None:
        row = next(iter(read_rows(like)), None)
        if row is None:
            raise DataError("holds no records", path=like, fix="name another file: --like FILE")
        schema = schema_of(row, format=name, column=column)
        schema.record(row)  # says what is wrong with it
        return schema, row.values
    wanted = "prompt-completion" if name == "auto" else name
    roles = next((form.required for form in FORMS if form.name == wanted), ())
    columns = {column.get(role, role): "" for role in roles}
    return schema_of(Row(columns, "the canaries", 1), format=wanted, column=column), {}


def _row(schema: Schema, example: Mapping[str, Any], prompt: str, answer: str) -> dict[str, Any]:
    """A canary as a row of the user's data: the columns of its form, and no others."""
    cells = Cells(Row(example, "", 1), schema.columns)

    def turns(role: str, said: Sequence[tuple[str, str]], who: str, what: str) -> list[Any]:
        given = cells.value(role)
        first = given[0] if isinstance(given, list) and given else None
        if isinstance(first, dict):
            who, what = ("from", "value") if "from" in first else ("role", "content")
        names = {"user": "human", "assistant": "gpt"} if who == "from" else {}
        return [{who: names.get(speaker, speaker), what: text} for speaker, text in said]

    asked, answered = ("user", prompt), ("assistant", answer)
    name = schema.form.name
    values: dict[str, Any]
    if name == "text":
        values = {"text": f"{prompt}\n{answer}"}
    elif name == "prompt-completion":
        listed_ = {role: isinstance(cells.value(role), list) for role in ("prompt", "completion")}
        values = {
            role: turns(role, [said], "role", "content") if listed_[role] else said[1]
            for role, said in (("prompt", asked), ("completion", answered))
        }
    elif name == "alpaca":
        values = {"instruction": prompt, "output": answer}
        if cells.column("input") in example:
            values["input"] = ""
    elif name == "sharegpt":
        values = {"conversations": turns("conversations", [asked, answered], "from", "value")}
    else:
        values = {"messages": turns("messages", [asked, answered], "role", "content")}
    return {cells.column(role): value for role, value in values.items()}


def _record(schema: Schema, row: Mapping[str, Any], id_: str) -> Record:
    return Record(id_, schema.form.build(Cells(Row(row, KEY, 1, "canary"), schema.columns)))


# --- the key -----------------------------------------------------------------------------------


def _content(key: CanaryKey) -> dict[str, Any]:
    return {
        "warning": _WARNING,
        "schema_version": SCHEMA_VERSION,
        "kind": key.kind,
        "format": key.format,
        "columns": dict(key.columns),
        "coins": "operating system" if key.seed is None else "seed",
        "seed": key.seed,
        "canaries": [
            {"id": canary.record.id, "included": canary.included, "row": dict(canary.row)}
            for canary in key.canaries
        ],
    }


def _digest(content: Mapping[str, Any]) -> str:
    """Of the content in one fixed spelling, whatever line breaks the file has."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write(key: CanaryKey, folder: Path) -> tuple[Path, Path]:
    """Writes the key, and apart from it the canaries that are to be trained on.

    Args:
        key: what was drawn.
        folder: made where it is missing.

    Returns:
        The key and the file for the training data.

    Raises:
        ConfigError: where one of the two files is there: a key is never overwritten.
        StoreError: where they cannot be written.
    """
    files = folder / KEY, folder / INCLUDED
    for file in files:
        if file.exists() or file.is_symlink():
            raise ConfigError(
                f"{file} is there already, and is not overwritten: a model may have been trained on "
                "its canaries",
                fix="name another folder: --out DIR",
            )
    content = _content(key)
    rows = [json.dumps(dict(c.row), ensure_ascii=False) for c in key.canaries if c.included]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The key goes first: without it, what was trained on could not be told any more.
        _create(files[0], json.dumps({**content, "sha256": key.sha256}, indent=1), 0o600)
        _create(files[1], "".join(f"{row}\n" for row in rows), 0o644)
    except FileExistsError as error:
        raise ConfigError(
            f"{error.filename} appeared while it was to be written", fix="--out DIR"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write into {folder}: {error.strerror}", fix="name another folder: --out DIR"
        ) from error
    return files


def _create(file: Path, text: str, mode: int) -> None:
    """A new file, whole or not at all; refuses one that is there."""
    with file.open("x", encoding="utf-8", newline="\n") as stream:
        try:
            file.chmod(mode)
            stream.write(text)
            stream.flush()
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise


def read(path: str | Path) -> CanaryKey:
    """Reads a key, and checks that it is as it was written.

    The hash and, where there is one, the seed tell whether it was edited; a hash that whoever edits
    it can make anew is no proof against them. For that, note the hash down before training.

    Args:
        path: the key, or the folder that it is in.

    Raises:
        DataError: where it is no key, or is not as it was written.
    """
    file = Path(path).expanduser()
    file = file / KEY if file.is_dir() else file
    content = _json(file)
    if content.get("canaries") is None and "canaries" not in content:
        raise _no_key(file, f"has {listed(content)}, expected a list of canaries")
    version = str(content.get("schema_version", ""))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise DataError(
            f"has schema {version[:20] or 'of no version'}, this version reads {SCHEMA_VERSION}",
            path=file,
            fix="pip install --upgrade unseen",
        )
    canaries = _canaries(file, content)
    seed = content.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
        raise _no_key(file, "has a seed that is no whole number")
    key = CanaryKey(
        canaries,
        str(content.get("format")),
        dict(content.get("columns") or {}),
        str(content.get("kind", "")),
        seed,
        str(content.get("sha256", "")),
        str(path),
    )
    _check_unchanged(file, content, key)
    return key


def _json(file: Path) -> dict[str, Any]:
    quoted = shlex.quote(str(file))
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise DataError(
            "there is no such key", path=file, fix=f"--key DIR/{KEY}, of unseen canary make"
        ) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "the name is no path"
        raise DataError(f"cannot be read: {why}", path=file, fix=f"ls -l {quoted}") from error
    try:
        content = json.loads(raw.decode("utf-8-sig")) if len(raw) <= _LARGEST else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _no_key(file, "is no JSON object")
    return content


def _canaries(file: Path, content: Mapping[str, Any]) -> tuple[Canary, ...]:
    items = content["canaries"]
    if not isinstance(items, list) or not items:
        raise _no_key(file, "holds no list of canaries")
    columns = content.get("columns")
    if not isinstance(columns, dict) or not all(isinstance(v, str) for v in columns.values()):
        raise _no_key(file, "has no columns")
    schema: Schema | None = None
    found: list[Canary] = []
    ids: set[str] = set()
    texts: set[str] = set()
    for number, item in enumerate(items, start=1):
        where = f"canary {number}"
        if not isinstance(item, dict) or not isinstance(item.get("row"), dict):
            raise _no_key(file, f"{where} is {kind_of(item)} without a row")
        if not isinstance(item.get("included"), bool):
            raise DataError(
                f"{where} has no coin (included: true or false), and without coins there is no bound",
                path=file,
                fix="for records that no coin decided on: unseen audit finetune --members FILE "
                f"--nonmembers FILE; {_AGAIN}",
            )
        id_ = item.get("id")
        if not isinstance(id_, str) or not id_ or id_ in ids:
            raise _no_key(file, f"{where} has no id of its own")
        row = Row(item["row"], str(file), number, "canary")
        schema = schema or schema_of(row, format=str(content.get("format")), column=columns)
        record = Record(id_, schema.form.build(Cells(row, schema.columns)))
        if not record.is_answered:
            raise _no_key(file, f"{where} has an empty response")
        text = normalised(record.text)
        if text in texts:
            raise _no_key(file, f"{where} says what an earlier one says")
        ids.add(id_)
        texts.add(text)
        found.append(Canary(record, item["row"], item["included"]))
    return tuple(found)


def _check_unchanged(file: Path, content: Mapping[str, Any], key: CanaryKey) -> None:
    rest = {name: value for name, value in content.items() if name != "sha256"}
    if not key.sha256:
        raise _no_key(file, "has no hash")
    problem = None
    if _digest(rest) != key.sha256:
        problem = "its hash does not fit its content"
    elif key.seed is not None and _coins(len(key), key.seed) != key.included.tolist():
        problem = f"its coins are not those of its seed, {key.seed}"
    if problem is not None:
        raise DataError(
            f"is not as it was written: {problem}; coins that were changed give no bound",
            path=file,
            fix=f"take the key as unseen canary make wrote it; if it is lost, {_AGAIN}",
        )


def _no_key(file: Path, problem: str) -> DataError:
    return DataError(f"is no key of canaries: {problem}", path=file, fix=f"--key DIR/{KEY}")
