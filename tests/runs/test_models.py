import pytest

from unseen.errors import ModelError
from unseen.runs.collect import collect
from unseen.runs.config import FinetuneAudit
from unseen.runs.models import is_endpoint, measure_lengths, open_encoder, open_models
from unseen.scoring.store import Store
from unseen.signals.base import REFERENCE, TARGET
from unseen.signals.token_stats import TokenStatistics
from unseen.targets.fake import FakeTarget, FakeTokenizer
from unseen.types import Record, Turn

RECORDS = tuple(
    Record(f"r{i}", (Turn("user", f"Who is {i}?"), Turn("assistant", "A fox." * i)))
    for i in range(20)
)


class Counting(FakeTokenizer):
    rendered = 0

    def render(self, *args, **options):
        Counting.rendered += 1
        return super().render(*args, **options)


def test_records_are_encoded_once_for_models_of_one_tokenizer_and_their_lengths() -> None:
    target = FakeTarget(tokenizer=Counting(), max_length=100)
    models = open_models(FinetuneAudit(), target)
    signals = [TokenStatistics(), TokenStatistics(of=REFERENCE)]
    with Store() as store:
        collect(signals[:1], RECORDS[1:], models, store=store)
        rendered = Counting.rendered
        assert rendered > 0
        observations, _ = collect(signals, RECORDS[1:], models, store=store)
    lengths, truncated = measure_lengths(RECORDS[1:], models[TARGET].encoder)
    assert Counting.rendered == rendered
    assert lengths == {
        id_: len(observations.get(TokenStatistics(), id_).logprob) for id_ in observations.ids
    }
    assert truncated == sum(length < 6 * i for i, length in enumerate(lengths.values(), start=1))
    assert truncated > 0


def test_what_cannot_be_scored_has_no_length() -> None:
    models = open_models(FinetuneAudit(), FakeTarget())
    assert measure_lengths(RECORDS[:2], models[TARGET].encoder) == ({"r0": 0, "r1": 6}, 0)


def test_another_context_is_another_encoding() -> None:
    class Short(FakeTarget):
        @property
        def reference(self) -> FakeTarget:
            return FakeTarget(tokenizer=self.tokenizer, max_length=30)

    models = open_models(FinetuneAudit(), Short())
    assert models[TARGET].encoder is not models[REFERENCE].encoder
    alike = open_models(FinetuneAudit(), FakeTarget())
    assert alike[TARGET].encoder is alike[REFERENCE].encoder


def test_a_model_of_the_hub_and_one_behind_an_endpoint(tmp_path, monkeypatch) -> None:
    assert is_endpoint("openai/gpt-oss-20b")
    assert not is_endpoint("hf/openai/gpt-oss-20b")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"(^|[^/])openai/gpt-oss-20b"):
        open_encoder(FinetuneAudit(model="hf/openai/gpt-oss-20b"))
    encoder = open_encoder(FinetuneAudit(model="openai/gpt-oss-20b"))
    assert encoder.prompt((Turn("user", "a"),))[1:2] == (ord("a"),)
    lengths, _ = measure_lengths(RECORDS[1:2], encoder)
    assert lengths == {"r1": 2}  # of 6 characters, about
