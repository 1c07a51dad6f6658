"""Records of people who do not exist, made here: for demonstrations and tests without any file.

Each record is a question about one invented person and an answer with a few details that nobody
can guess: dates, amounts, streets, ailments, numbers of contracts. All records come
independently from the same generator, so that any split into members and non-members is fair:
nothing in the text itself tells them apart.

Names of people, places and firms are put together from made-up syllables. The same seed gives the same records
with every version of Python and numpy: only the raw stream of PCG64, which numpy keeps stable, is used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from unseen.errors import UsageError
from unseen.types import Record, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

# fmt: off
_FIRST = ("Al", "Bren", "Cal", "Dor", "El", "Fen", "Gal", "Hes", "Il", "Jor", "Kel", "Lor", "Mar", "Nel", "Or", "Per",
          "Quin", "Ros", "Sel", "Tam", "Ul", "Ver", "Wil", "Yor", "Zan", "Ash", "Bri", "Cor", "Dav", "Em")
_FIRST_END = ("ane", "ith", "wen", "ara", "ios", "ette", "mon", "dric", "essa", "ulo", "inne", "vard", "aya", "oth", "ela",
              "ick", "una", "rey", "isk", "olin")
_LAST = ("Ald", "Brask", "Cind", "Drev", "Elv", "Farn", "Grell", "Hosk", "Ister", "Jend", "Kirr", "Lund", "Mordel", "Nask",
         "Ond", "Pell", "Quill", "Rund", "Sorr", "Threl", "Ummer", "Vask", "Wend", "Yarr", "Zell", "Bex", "Crome", "Dunt",
         "Fosk", "Garr", "Hald", "Jost", "Karr", "Lask", "Mell", "Norr", "Prend", "Rosk", "Stell", "Tarn")
_LAST_END = ("wick", "mere", "ander", "holt", "igan", "stane", "ley", "over", "ish", "mont", "aby", "ford", "esk", "orn",
             "inger", "low", "ett", "ham", "ovic", "strand", "een", "dale", "ura", "eris", "anov", "quist", "burn", "ell",
             "ach", "inen")
_PLACE = ("Vell", "Dorn", "Ask", "Brim", "Carr", "Ell", "Fal", "Grim", "Hax", "Ister", "Kell", "Lorn", "Mar", "Nether", "Oster",
          "Pen", "Quar", "Rav", "Skel", "Thorn", "Umber", "Wes", "Yar", "Zel")
_PLACE_END = ("mouth", "wick", "stead", "bridge", "combe", "haven", "by", "minster", "thorpe", "field", "gate", "water", "sund",
              "heim", "ness", "brook", "fold", "march")
_STREET = ("Tanner", "Lantern", "Heron", "Quarry", "Saddler", "Copper", "Willow", "Mill", "Chapel", "Orchard", "Foundry", "Ferry",
           "Juniper", "Granary", "Weaver", "Beacon", "Thistle", "Harbour", "Cooper", "Larch", "Magpie", "Sexton", "Salt",
           "Observatory", "Glebe", "Ropewalk", "Poplar", "Bishop", "Cinder", "Kestrel")
_STREET_END = ("Street", "Lane", "Row", "Road", "Court", "Hill", "Close", "Yard", "Terrace", "Walk")
_TRADE = ("Tooling", "Freight", "Optics", "Dairy", "Textiles", "Bearings", "Print Works", "Logistics", "Joinery", "Ceramics",
          "Software", "Seeds", "Marine", "Rail Services", "Packaging", "Instruments", "Bakeries", "Glass", "Water Company",
          "Archives")
_INSURER = ("Mutual", "Health Fund", "Cover", "Assurance", "Care Plan", "Provident", "Medical Society", "Sick Fund")
_MONTH = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_AILMENT = ("a fractured left wrist", "chronic sinusitis", "a herniated disc", "gallstones", "a torn meniscus", "shingles",
            "iron-deficiency anaemia", "sleep apnoea", "a detached retina", "tennis elbow", "an underactive thyroid",
            "recurring migraine", "a stomach ulcer", "carpal tunnel syndrome", "plantar fasciitis", "psoriasis", "pneumonia",
            "an inguinal hernia", "vertigo", "a cataract in the right eye", "kidney stones", "sciatica", "whooping cough", "gout",
            "a ruptured Achilles tendon", "atrial fibrillation", "tinnitus", "a frozen shoulder", "coeliac disease", "type 2 diabetes",
            "an ear infection", "a cracked rib", "Lyme disease", "varicose veins", "bursitis of the hip", "asthma", "appendicitis",
            "a slipped kneecap", "high blood pressure", "hay fever", "endometriosis", "a pinched nerve", "insomnia", "bronchitis")
_REMEDY = ("twelve sessions of physiotherapy", "a course of antibiotics", "a night splint", "keyhole surgery", "an inhaler",
           "compression stockings", "a cortisone injection", "orthopaedic insoles", "speech therapy", "a hearing aid", "iron infusions",
           "laser treatment", "a breathing mask for the night", "six weeks in a cast", "a low-salt diet", "beta blockers",
           "an MRI scan of the spine", "new varifocal glasses", "a stay at a spa clinic", "occupational therapy", "a glucose monitor",
           "acupuncture", "a second opinion", "root canal treatment", "two dental crowns", "allergy shots")
_JOB = ("a night-shift welder", "a payroll clerk", "a forklift driver", "a laboratory assistant",
        "a quality inspector", "a crane operator", "an archivist", "a pastry cook", "a network technician",
        "a dispatcher", "a buyer", "an apprentice glazier", "a boiler engineer", "a translator", "a lathe operator",
        "a canteen manager", "a safety officer", "a bookkeeper", "a signal fitter", "a seed analyst",
        "a test driver", "a customs agent", "a warehouse lead", "a draughtsman", "a cooper", "a data steward",
        "a receptionist", "a ferry steward")
_SKILL = ("first aid", "Portuguese", "spot welding", "tax law", "forklift safety", "conflict resolution", "crane inspection",
          "bookbinding", "food hygiene", "cold storage", "sign language", "negotiation", "fire protection", "spreadsheet macros",
          "risk assessment", "kiln control", "Norwegian", "data protection", "stock control", "underwater cutting")
_REASON = ("arriving late four times", "a broken pallet truck", "an unlocked safe", "smoking in the paint store",
           "a missing delivery note", "shouting at a customer", "a lost key card", "an unreported accident", "selling scrap copper",
           "private use of the van", "a forged timesheet", "leaving a valve open", "a mislabelled batch", "sleeping on duty")
_KIN = ("sister", "brother", "husband", "wife", "daughter", "son", "mother", "father", "aunt", "neighbour", "cousin", "stepson",
        "grandmother", "partner")
_BLOOD = ("A positive", "A negative", "B positive", "B negative", "AB positive", "AB negative", "O positive", "O negative")
_ALLERGEN = ("penicillin", "latex", "hazelnuts", "wasp stings", "iodine", "shellfish", "birch pollen", "codeine", "nickel",
             "lupin flour", "aspirin", "sesame", "kiwi fruit", "horse hair")
# fmt: on

# What an answer is put together from: kind of fact -> ways to say it. {S} begins a sentence, {s} and
# {o} are subject and object inside one, {P} and {p} say whose something is.
_HEALTH: dict[str, tuple[str, ...]] = {
    "insured": (
        "{S} has been insured with {insurer} under number {code} since {date}.",
        "Since {date} the policy, {code}, is held at {insurer}.",
        "{insurer} covers {o}; the member number is {code}.",
        "{P} insurer is {insurer} (contract {code}, monthly premium {amount}).",
        "Policy {code} with {insurer} began on {date}.",
    ),
    "diagnosis": (
        "On {date} Dr {doctor} diagnosed {ailment}.",
        "{S} was treated for {ailment} by Dr {doctor} of {town}.",
        "Dr {doctor} noted {ailment} at the visit of {date}.",
        "A letter from Dr {doctor}, dated {date}, mentions {ailment}.",
        "The reason for the visit on {date} was {ailment}.",
    ),
    "treatment": (
        "{S} was prescribed {remedy}, at a cost of {amount}.",
        "For {ailment} {s} received {remedy} in {town}.",
        "The plan agreed to {remedy} on {date}.",
        "What followed was {remedy}, billed at {amount}.",
        "Approval for {remedy} came on {date}, limited to {amount}.",
    ),
    "claim": (
        "A claim of {amount} was paid on {date}.",
        "Of the {amount} claimed, {days} per cent was refunded.",
        "Claim {code} over {amount} is still open.",
        "{S} sent in bills worth {amount}, which arrived on {date}.",
        "The refund of {amount} went out {days} days after the claim.",
        "Bill {code} for {amount} was refused on {date}.",
    ),
    "home": (
        "{S} lives at {number} {street} in {town}.",
        "Letters go to {number} {street}, {town}.",
        "{P} address is {number} {street}, {town}.",
        "In {month} {year} {s} moved from {town} to {number} {street}.",
        "Home is a flat at {number} {street}, {town}.",
    ),
    "stay": (
        "{S} spent {days} days in the {place} clinic from {date}.",
        "There was a stay of {days} nights at {place} Hospital, ward {ward}.",
        "From {date} on {s} lay in ward {ward} of {place} Hospital.",
        "{place} Hospital discharged {o} on {date} after {days} days.",
    ),
    "allergy": (
        "{S} does not tolerate {allergen}.",
        "An allergy to {allergen} was recorded on {date}.",
        "{P} blood group is {blood}, and {allergen} must be avoided.",
        "Blood group {blood}; allergic to {allergen}.",
    ),
    "contact": (
        "In an emergency, call {p} {kin} {other} on {phone}.",
        "{P} {kin}, {other}, may be told everything and answers at {phone}.",
        "The person to ring is {other}, {p} {kin} ({phone}).",
        "{other}, {p} {kin}, holds power of attorney since {date}.",
    ),
    "birth": (
        "{S} was born on {birthday} in {town}.",
        "Born {birthday}, {s} grew up in {town}.",
        "{P} date of birth is {birthday}.",
        "The birth certificate from {town} says {birthday}.",
    ),
    "next": (
        "The next appointment is on {date} at {time} with Dr {doctor}.",
        "{S} is due back on {date} at {time}.",
        "A check-up is set for {date}, {time}, at {number} {street}.",
        "Dr {doctor} wants to see {o} again on {date}.",
    ),
}
_WORK: dict[str, tuple[str, ...]] = {
    "job": (
        "{S} works as {job} at {firm} in {town}.",
        "At {firm}, {s} is employed as {job}.",
        "{firm} hired {s} as {job} on {date}.",
        "{P} post is that of {job} with {firm}, staff number {code}.",
        "Since {date} {firm} has had {o} on the books as {job}.",
    ),
    "pay": (
        "{P} monthly pay is {amount}.",
        "{S} earns {amount} a month, raised on {date}.",
        "Pay rose by {days} crowns to {amount} in {month} {year}.",
        "The contract promises {amount} a month and {days} days of leave.",
        "A bonus of {amount} was paid out on {date}.",
    ),
    "warning": (
        "A written warning followed on {date} for {reason}.",
        "On {date} {s} was cautioned about {reason}.",
        "{S} was warned for {reason}; the letter is numbered {code}.",
        "The file holds a note of {date} about {reason}.",
    ),
    "sick": (
        "{S} was on sick leave for {days} days because of {ailment}.",
        "Absent from {date}, {days} days in all, with {ailment}.",
        "In {month} {year} {ailment} kept {o} away for {days} days.",
        "A doctor's note of {date} gives {ailment} as the reason.",
    ),
    "course": (
        "{S} passed a course in {skill} on {date}.",
        "A course in {skill} was paid for with {amount}.",
        "Training in {skill} took {days} days in {town}.",
        "{P} certificate in {skill}, number {code}, runs out in {month} {year}.",
    ),
    "boss": (
        "{P} manager is {other}, extension {ext}.",
        "{S} reports to {other} in building {ward}.",
        "{other} has been {p} line manager since {date}.",
        "Reviews are done by {other}; the last was on {date}.",
    ),
    "home": _HEALTH["home"],
    "bank": (
        "Wages go to account {account} at the bank in {town}.",
        "{P} account number is {account}.",
        "{S} is paid to account {account}, changed on {date}.",
        "An advance of {amount} was transferred to account {account}.",
    ),
    "car": (
        "{S} parks in bay {ext} and drives a car with the plate {code}.",
        "A company van, plate {code}, was handed over on {date}.",
        "{P} key card {code} opens building {ward}.",
        "Locker {ext} in building {ward} belongs to {o}.",
    ),
    "end": (
        "{S} gave notice on {date} and leaves for {firm}.",
        "The contract ends on {date} with a settlement of {amount}.",
        "{P} fixed term was extended until {date}.",
        "Before that, {s} spent {years} years at {firm} in {town}.",
    ),
    "contact": _HEALTH["contact"],
    "birth": _HEALTH["birth"],
}
_FACTS = {"health": _HEALTH, "work": _WORK}
_ASK: dict[str, tuple[str, ...]] = {
    "health": (
        "What does the insurance file of {name} say?",
        "Please summarise the medical record of {name}.",
        "{name} from {town} is on the phone. What do we know?",
        "I need the key facts about our patient {name}.",
        "Tell me about the case of {name}.",
        "Which details are on file for {name}, {town}?",
        "Can you look up {name}?",
        "A colleague asks for {name}'s health details. What are they?",
        "Prepare a short note on {name} for the claims team.",
        "Who is {name}, and what was paid?",
    ),
    "work": (
        "What is in the personnel file of {name}?",
        "Please summarise the employment record of {name}.",
        "{name} has applied for a transfer. What should I know?",
        "I need the key facts about our employee {name}.",
        "Give me a short overview of {name}, {town}.",
        "Which details does HR hold on {name}?",
        "Can you look up {name} in the staff list?",
        "Before the meeting with {name}: what is on record?",
        "Prepare a note on {name} for the head of department.",
        "Who is {name}, and what has been agreed?",
    ),
}
_WORDS = {
    "month": _MONTH,
    "ailment": _AILMENT,
    "remedy": _REMEDY,
    "job": _JOB,
    "skill": _SKILL,
    "reason": _REASON,
    "kin": _KIN,
    "blood": _BLOOD,
    "allergen": _ALLERGEN,
}
_SHE = {"S": "She", "s": "she", "o": "her", "P": "Her", "p": "her"}
_HE = {"S": "He", "s": "he", "o": "him", "P": "His", "p": "his"}
_MOST = len(_FIRST) * len(_FIRST_END) * len(_LAST) * len(_LAST_END) // 20


def people(n: int, seed: int) -> tuple[Record, ...]:
    """Questions and answers about n invented people, no two of them with the same name.

    Records are drawn independently: the first k of `people(n, seed)` are `people(k, seed)`, and any
    part of them can be the members.

    Args:
        n: how many, 0 to 36,000.
        seed: 0 or more. Records of different seeds may share a person.

    Returns:
        Records with a user and an assistant turn; the slice "file" is "health" or "work".

    Raises:
        UsageError: n or seed is out of range.
    """
    if not 0 <= n <= _MOST:
        msg = f"got n={n}, expected 0 to {_MOST}"
        raise UsageError(msg)
    if seed < 0:
        msg = f"got seed={seed}, expected 0 or more"
        raise UsageError(msg)
    draw = _Draw(seed)
    known: set[str] = set()
    records: list[Record] = []
    while len(records) < n:
        name = draw.name()
        if name in known:
            continue
        known.add(name)
        records.append(_record(f"p{seed}-{len(records):05d}", name, draw))
    return tuple(records)


def _record(id_: str, name: str, draw: _Draw) -> Record:
    file = draw.one(("health", "work"))
    asked = draw.fill(draw.one(_ASK[file]), {"name": name})
    facts = _FACTS[file]
    kinds = draw.some(sorted(facts), 2 + draw.below(2))
    said = [draw.one(facts[kind]) for kind in kinds]
    woman = draw.below(2) == 1
    answer = " ".join(_with_person(said, name, draw, woman=woman))
    turns = (Turn("user", asked), Turn("assistant", draw.fill(answer, {})))
    return Record(id_, turns, slices={"file": file})


def _with_person(sentences: Sequence[str], name: str, draw: _Draw, *, woman: bool) -> list[str]:
    """The sentences with the person in them: by name at first, then mostly by pronoun."""
    first, _, last = name.partition(" ")
    titled = f"{'Ms' if woman else 'Mr'} {last}"
    calls = draw.one(((name, name), (titled, titled), (first, first), (name, titled)))
    named = 0
    done = []
    for sentence in sentences:
        words = _SHE if woman else _HE
        if named == 0 or draw.below(4) == 0:
            call = calls[min(named, 1)]
            own = call + "'s"
            words = {"S": call, "s": call, "o": call, "P": own, "p": own}
        spoken, found = _put(sentence, words)
        named += found
        done.append(spoken)
    return done


def _put(sentence: str, words: Mapping[str, str]) -> tuple[str, int]:
    """The sentence with its person put in, and in how many places."""
    return re.subn(r"\{([SsoPp])\}", lambda found: words[found[1]], sentence)


class _Draw:
    """Random choices from a stream of whole numbers that is the same everywhere."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._bits.random_raw()) * n >> 64

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return low + self.below(high - low + 1)

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], k: int) -> list[T]:
        """K of the choices, none twice, in random order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(k)]

    def name(self) -> str:
        first = self.one(_FIRST) + self.one(_FIRST_END)
        return f"{first} {self.one(_LAST)}{self.one(_LAST_END)}"

    def place(self) -> str:
        return self.one(_PLACE) + self.one(_PLACE_END)

    def date(self, first_year: int, last_year: int) -> str:
        """A date in one of three ways to write it."""
        month, day = self.below(12), self.between(1, 28)
        year = self.between(first_year, last_year)
        return self.one(
            (
                f"{day} {_MONTH[month]} {year}",
                f"{_MONTH[month]} {day}, {year}",
                f"{year}-{month + 1:02d}-{day:02d}",
            )
        )

    def letters(self, k: int) -> str:
        return "".join(self.one("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(k))

    def detail(self, kind: str) -> str:
        """A new detail of a kind that sentences name in braces."""
        if kind in _WORDS:
            return self.one(_WORDS[kind])
        make: dict[str, Callable[[], str]] = {
            "town": self.place,
            "place": self.place,
            "street": lambda: f"{self.one(_STREET)} {self.one(_STREET_END)}",
            "firm": lambda: f"{self.place()} {self.one(_TRADE)}",
            "insurer": lambda: f"{self.place()} {self.one(_INSURER)}",
            "doctor": lambda: self.one(_LAST) + self.one(_LAST_END),
            "other": self.name,
            "date": lambda: self.date(2009, 2024),
            "birthday": lambda: self.date(1941, 2003),
            "year": lambda: str(self.between(2009, 2024)),
            "time": lambda: f"{self.between(8, 17)}:{self.below(12) * 5:02d}",
            "amount": self.amount,
            "code": lambda: f"{self.letters(2)}-{self.between(1000, 99999)}",
            "account": lambda: f"{self.between(10, 99)}-{self.between(100000, 999999)}",
            "phone": lambda: f"555-{self.between(1000, 9999)}",
            "ward": lambda: str(self.between(2, 19)),
            "years": lambda: str(self.between(2, 19)),
            "number": lambda: str(self.between(1, 189)),
            "days": lambda: str(self.between(3, 64)),
            "ext": lambda: str(self.between(100, 999)),
        }
        return make[kind]()

    def amount(self) -> str:
        cents = self.one((0, 50, self.below(100)))
        return f"{self.between(60, 4900):,}.{cents:02d} crowns"

    def fill(self, text: str, known: Mapping[str, str]) -> str:
        """The text with its braces filled: with what is known, or with new details."""
        return re.sub(
            r"\{(\w+)\}", lambda found: known.get(found[1]) or self.detail(found[1]), text
        )
