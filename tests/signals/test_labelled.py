import pytest
from scripted import TREC
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from unseen.data.templates import Layout, RecordEncoder
from unseen.prompts.behind import HiddenPrompts
from unseen.prompts.templates import Example
from unseen.prompts.trials import Game
from unseen.signals.base import Materials
from unseen.signals.labelled import Labelled
from unseen.targets.fake import FakeTokenizer
from unseen.targets.tokenizer import HFTokenizer

CASES = Game(trials=2, shots=2).cases(
    [Example(f"r{i}", f"What is thing {i}?", TREC.labels.words[i % 6]) for i in range(12)]
)


def spaced() -> HFTokenizer:
    """A tokenizer as those of Llama 2 and Vicuna are: every text begins with a space of its own."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    corpus = [TREC.hidden(case.demos) + TREC.asked(case.example.text) for case in CASES]
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    backend.train_from_iterator([*corpus, *TREC.labels.words] * 4, trainer)
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Replace("\u2581", " ")
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))


@pytest.mark.parametrize("tokenizer", [spaced(), FakeTokenizer()], ids=["spaced", "bytes"])
def test_a_label_has_the_tokens_that_it_has_where_it_stands(tokenizer) -> None:
    encoder = RecordEncoder(tokenizer, Layout(), limit=4096)
    behind = HiddenPrompts.of(TREC, encoder, CASES)
    for case in CASES:
        ask = Labelled().ask(case.record, Materials(encoder, behind=behind))
        for label, request in zip(TREC.labels.words, ask.requests, strict=True):
            text = f"{TREC.hidden(case.demos)}Question: {case.example.text}\nAnswer Type: {label}"
            assert (*request.context, *request.continuation) == encoder.prompt((), text)
            assert tokenizer.decode(request.continuation) == f" {label}"
