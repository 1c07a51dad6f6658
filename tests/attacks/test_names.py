import importlib.metadata
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from unseen import attacks
from unseen.attacks.loss import Loss
from unseen.errors import ConfigError, UnknownNameError
from unseen.signals.base import Observations

OURS = (
    "bag_of_words", "con_recall", "ez_mia", "fusion", "icp_sp", "loss", "lowercase", "min_k", "min_k_pp", "perplexity",
    "recall", "reference", "wbc", "zlib",
)  # fmt: skip

TOY = """
    '''Toy: longer is more.'''

    from dataclasses import dataclass
    from typing import ClassVar

    from unseen.attacks.base import score_each
    from unseen.signals.text import CompressedSize
    from unseen.targets.access import Access

    @dataclass(frozen=True)
    class Toy:
        '''Counts bytes.'''

        access: ClassVar[Access] = Access.TEXT
        paper: ClassVar[str] = "none"
        factor: float = 1.0

        def signals(self):
            return (CompressedSize(),)

        def score(self, audited, known=None):
            return score_each(
                audited, lambda id_: self.factor * audited.get(CompressedSize(), id_).n_bytes
            )
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A second folder of attacks, beside the package's own."""
    monkeypatch.setattr(attacks, "__path__", [*attacks.__path__, str(tmp_path)])
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"unseen.attacks.{path.stem}", None)
        if hasattr(attacks, path.stem):
            delattr(attacks, path.stem)


def test_the_folder_is_the_list() -> None:
    assert set(OURS) <= set(attacks.names())
    assert attacks.names() == sorted(attacks.names())
    assert "base" not in attacks.names()


@pytest.mark.parametrize("name", attacks.names())
def test_names_read_back(name: str) -> None:
    attack = attacks.create(name)
    assert type(attack) is attacks.find(name)
    assert attacks.name_of(attack) == attacks.label(attack) == name
    assert attacks.create(name.replace("_", "-")) == attack


@pytest.mark.parametrize("spec", attacks.default())
def test_specs_of_an_ordinary_audit_read_back(spec: str) -> None:
    assert attacks.label(attacks.create(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("min_k[k=0.3]", "min_k[k=0.3]"),
        ("min_k[k=0.2]", "min_k"),
        ("min_k[k=1]", "min_k[k=1.0]"),
        (" min-k [ k = .3 ] ".replace(" [", "["), "min_k[k=0.3]"),
        ("loss[]", "loss"),
        ("zlib[length=sum]", "zlib[length=sum]"),
        ("zlib[length='sum']", "zlib[length=sum]"),
        ("ez-mia[tokens=all,smoothing=1]", "ez_mia[tokens=all,smoothing=1.0]"),
        ("con_recall[gamma=0,shots=3]", "con_recall[shots=3,gamma=0.0]"),
        ("icp_sp[placeholder=[MASK],seed=1]", "icp_sp[placeholder=[MASK],seed=1]"),
        ("icp_sp[placeholder=a, b,probes=2]", "icp_sp[probes=2,placeholder=a, b]"),
        ("icp_sp[placeholder=7]", "icp_sp[placeholder=7]"),
    ],
)
def test_labels_read_back(spec: str, label: str) -> None:
    attack = attacks.create(spec)
    assert attacks.label(attack) == label
    assert attacks.create(label) == attack


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("min_kk", "unknown attack 'min_kk'\n  did you mean 'min_k'? known: "),
        ("Min-K%", "cannot read the attack 'Min-K%'"),
        ("base", "unknown attack 'base'\n  known: "),
        ("min_k[kk=1]", "unknown field of min_k 'kk'\n  did you mean 'k'? known: k"),
        ("loss[k=1]", "unknown field of loss 'k'\n  none are known"),
        ("min_k[0.3]", "cannot read '0.3' in 'min_k[0.3]'\n  write field=value"),
        ("min_k[k=0.3", "cannot read the attack 'min_k[k=0.3'\n  write name or name[field=value]"),
        ("", "cannot read the attack ''"),
        ("min_k[k=2]", "attack 'min_k[k=2]': got k=2.0, expected a share above 0 and at most 1"),
        ("min_k[k=much]", "attack 'min_k[k=much]': got k=much, expected a number"),
        ("recall[shots=7.5]", "attack 'recall[shots=7.5]': got shots=7.5, expected a whole number"),
        ("recall[shots=True]", "got shots=True, expected a whole number"),
        ("fusion[reference=no]", "got reference=no, expected True or False"),
        ("zlib[length=max]", "got length='max', expected 'mean' or 'sum'"),
        ("ez_mia[tokens=some]", "got tokens='some', expected 'errors' or 'all'"),
        ("ez_mia[smoothing=0]", "got smoothing=0.0, expected nats above 0"),
    ],
)
def test_a_wrong_spec_says_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        attacks.create(spec)
    assert message in str(raised.value)


def test_an_unknown_name_lists_all_names() -> None:
    with pytest.raises(UnknownNameError) as raised:
        attacks.find("no such attack")
    assert str(raised.value).endswith(f"known: {', '.join(sorted(attacks.names()))}")


def test_a_file_in_the_folder_is_an_attack(
    folder: Path, observed: Callable[..., Observations]
) -> None:
    from unseen.signals.text import CompressedSize, Size

    (folder / "toy.py").write_text(textwrap.dedent(TOY))
    (folder / "_helpers.py").write_text("")
    assert "toy" in attacks.names()
    assert "toy" in attacks.default()
    assert "_helpers" not in attacks.names()
    toy = attacks.create("toy[factor=2]")
    assert attacks.label(toy) == "toy[factor=2.0]"
    scores = toy.score(observed({CompressedSize(): {"a": Size(3, 9), "b": "empty"}}))
    assert (scores.values.tolist(), scores.unscored) == ([6.0], {"b": "empty"})
    with pytest.raises(UnknownNameError, match="did you mean 'toy'"):
        attacks.find("toyy")


def test_other_packages_add_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "unseen.attacks"
    entries = [
        importlib.metadata.EntryPoint("theirs", "collections:Counter", group),
        importlib.metadata.EntryPoint("loss", "collections:Counter", group),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    assert attacks.names()[-1] == "theirs"
    assert attacks.names().count("loss") == 1
    assert attacks.find("theirs") is Counter
    assert attacks.create("loss") == Loss(), "what is ours keeps its name"
    with pytest.raises(UnknownNameError, match="did you mean 'theirs'"):
        attacks.find("their")


def test_an_attack_of_another_package_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class OtherAttack:
        depth: int = 2

    entry = importlib.metadata.EntryPoint(
        "theirs", f"{__name__}:{OtherAttack.__qualname__}", "unseen.attacks"
    )
    assert attacks.label(OtherAttack(3)) == "other_attack[depth=3]"  # type: ignore[arg-type]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    assert attacks.label(OtherAttack(3)) == "theirs[depth=3]"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("def (", "line 1"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit", "SystemExit"),
        ("x = 1", "0 attack classes"),
    ],
)
def test_a_broken_file_is_named(folder: Path, content: str, why: str) -> None:
    (folder / "toy.py").write_text(content)
    with pytest.raises(attacks.BrokenAttackError, match=r"toy\.py cannot be loaded") as caught:
        attacks.find("toy")
    assert why in caught.value.problem
    assert attacks.find("loss") is Loss
    assert "toy" in attacks.names()
    assert {attacks.label(one) for one in attacks.blind()} == {
        "bag_of_words",
        "bag_of_words[model=logistic]",
        "writing",
    }


def test_truth_is_written_in_any_case() -> None:
    assert attacks.create("spv[log=true]") == attacks.create("spv[log=True]")
    assert attacks.create("fusion[reference=false]") == attacks.create("fusion[reference=False]")
