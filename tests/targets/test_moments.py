import numpy as np
import pytest
import torch

from unseen.targets.moments import moments


def test_moments_are_exact_where_the_model_is_nearly_certain() -> None:
    logits = torch.zeros(1, 1000)
    logits[0, 3] = 30.0
    logp, mean, sd, rank, argmax = moments(logits, torch.tensor([3]))
    exact = torch.log_softmax(logits.double(), -1)
    p = exact.exp()
    right = ((p * (exact - (p * exact).sum()) ** 2).sum()) ** 0.5
    assert float(logp) == pytest.approx(float(exact[0, 3]), rel=1e-5, abs=1e-7)
    assert float(mean) == pytest.approx(float((p * exact).sum()), abs=1e-9)
    assert float(sd) == pytest.approx(float(right), rel=1e-3)
    assert (int(rank), int(argmax)) == (0, 3)


def test_moments_of_a_uniform_distribution() -> None:
    logp, mean, sd, rank, _ = moments(torch.full((1, 64), 5.0), torch.tensor([7]))
    assert float(logp) == float(mean) == pytest.approx(-np.log(64))
    assert float(sd) == 0
    assert int(rank) == 0


def test_tokens_that_a_model_rules_out_add_to_no_moment() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([logits, torch.full((4, 10), -torch.inf)], 1)
    tokens = torch.arange(4)
    for one, other in zip(
        moments(logits.clone(), tokens),
        moments(padded.clone(), tokens),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("vocabulary", [5, 255, 256, 257, 1000])
def test_the_largest_is_the_first_of_equals(vocabulary: int) -> None:
    draw = torch.Generator().manual_seed(vocabulary)
    logits = torch.randint(0, 9, (200, vocabulary), generator=draw).double()
    tokens = torch.randint(0, vocabulary, (200,), generator=draw)
    logp, _, _, rank, argmax = moments(logits, tokens)
    own = logits.gather(1, tokens[:, None])
    assert rank.tolist() == (logits > own).sum(1).tolist()
    assert argmax.tolist() == logits.numpy().argmax(1).tolist()
    exact = logits.log_softmax(1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(logp, exact)


def test_moments_do_not_change_the_models_logits() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    moments(logits, torch.arange(4))
    assert torch.equal(logits, before)
