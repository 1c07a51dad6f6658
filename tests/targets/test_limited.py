import numpy as np
import pytest
import tiny

from unseen.errors import AccessError, ConfigError
from unseen.targets.access import (
    Access,
    InsideTarget,
    LogprobTarget,
    NextTokenTarget,
    TextTarget,
    stats_of_one,
)
from unseen.targets.fake import FakeTarget
from unseen.targets.huggingface import HFTarget
from unseen.targets.limited import LimitedTarget
from unseen.targets.looks import NormLook, StepLook
from unseen.types import Passage, Request

REQUEST = Request((256, 1, 2), (3, 4))
RUNGS = [Access.TEXT, Access.LABEL, Access.LOGPROB, Access.LOGIT]


@pytest.mark.parametrize("access", RUNGS)
def test_gives_its_rung_and_nothing_above(access: Access) -> None:
    target = LimitedTarget(FakeTarget(), access)
    assert target.generate([[1, 2]], max_new_tokens=2) == FakeTarget().generate(
        [[1, 2]], max_new_tokens=2
    )
    (free,) = FakeTarget().generate([[1, 2]], max_new_tokens=9)
    (stopped,) = target.generate([[1, 2]], max_new_tokens=9, stop=chr(free[0]))
    assert stopped == free[:1]
    if access >= Access.LABEL:
        assert target.top_token([[1, 2]]) == FakeTarget().top_token([[1, 2]])
    else:
        with pytest.raises(AccessError, match="needs label access, but fake is limited to text"):
            target.top_token([[1, 2]])
    if access < Access.LABEL:
        with pytest.raises(AccessError, match=f"needs label access, .* limited to {access.word}"):
            stats_of_one(target, REQUEST)
        return
    answer, whole = stats_of_one(target, REQUEST), stats_of_one(FakeTarget(), REQUEST)
    np.testing.assert_array_equal(answer.argmax, whole.argmax)
    if access < Access.LOGPROB:
        assert np.isnan(answer.logprob).all()
    else:
        np.testing.assert_array_equal(answer.logprob, whole.logprob)
    for part in ("mean", "sd", "rank"):
        assert (getattr(answer, part) is None) == (access < Access.LOGIT)


def test_refused_questions_never_reach_the_model() -> None:
    inner = FakeTarget()
    with pytest.raises(AccessError):
        stats_of_one(LimitedTarget(inner, Access.TEXT), REQUEST)
    assert inner.n_executed == 0


def test_each_rung_has_its_own_fingerprint() -> None:
    prints = {LimitedTarget(FakeTarget(), access).fingerprint for access in RUNGS}
    assert len(prints | {FakeTarget().fingerprint}) == len(RUNGS) + 1


def test_a_rung_above_the_targets_is_refused() -> None:
    with pytest.raises(ConfigError, match="got --access logit, but fake gives logprob at most"):
        LimitedTarget(FakeTarget(access=Access.LOGPROB), Access.LOGIT)
    limited = LimitedTarget(FakeTarget(), Access.LABEL)
    with pytest.raises(ConfigError, match="at most"):
        LimitedTarget(limited, Access.LOGPROB)


def test_the_rest_is_the_inner_targets() -> None:
    inner = FakeTarget(max_length=77, name="little")
    target = LimitedTarget(inner, Access.LOGPROB)
    assert isinstance(target, LogprobTarget)
    assert isinstance(target, TextTarget)
    assert target.name == "little"
    assert target.max_length == 77
    assert target.batch_tokens == inner.batch_tokens
    assert target.tokenizer is inner.tokenizer
    assert target.describe() == inner.describe()


def test_the_inside_is_shown_on_the_highest_rung_alone(tmp_path) -> None:
    inner = HFTarget(tiny.folder(tmp_path / "m"), dtype="float64")
    passage = Passage((5, 6, 7), (2,))
    target = LimitedTarget(inner, Access.WHITE_BOX)
    assert isinstance(target, InsideTarget)
    (seen,), (expected,) = (one.look([NormLook()], [passage]) for one in (target, inner))
    assert seen == expected
    assert (target.width, target.has_adapter) == (32, False)
    assert target.check_step(StepLook(), passage).reason is None
    below = LimitedTarget(inner, Access.LOGIT)
    for refused in (
        lambda: below.look([NormLook()], [passage]),
        lambda: below.check_step(StepLook(), passage),
        lambda: LimitedTarget(FakeTarget(access=Access.WHITE_BOX), Access.WHITE_BOX).look([], []),
    ):
        with pytest.raises(AccessError):
            refused()


def test_next_token_probabilities_need_the_logit_rung() -> None:
    prompts = [[256, 1, 2], [256, 3]]
    whole = FakeTarget()
    limited = LimitedTarget(whole, Access.LOGIT)
    assert isinstance(limited, NextTokenTarget)
    for one, other in zip(
        limited.next_token_probabilities(prompts, top=4),
        whole.next_token_probabilities(prompts, top=4),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    among = np.array([[65, 66], [67, 65]])
    _, p = whole.next_token_probabilities(prompts, among=among)
    for i, prompt in enumerate(prompts):
        for j, token in enumerate(among[i].tolist()):
            answer = stats_of_one(whole, Request(tuple(prompt), (token,)))
            np.testing.assert_allclose(np.log(p[i, j]), answer.logprob[0])
    with pytest.raises(AccessError, match="this needs logit access"):
        LimitedTarget(whole, Access.LOGPROB).next_token_probabilities(prompts)
