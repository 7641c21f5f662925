"""A group's own times between tries, as RocketMQ's classes count them."""

import pytest

from rmq.codes import ResponseCode
from rmq.delivery.backoff import MAX_MS, canonical, delay_ms
from rmq.delivery.retry import after_failure
from rmq.errors import Refusal
from rmq.model import RETRY_PREFIX

DOUBLING = canonical('{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":5000,"multiplier":2}}')
LISTED = canonical('{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,2,3000,4000,5000]}}')


def test_times_grow_up_to_the_highest() -> None:
    """[ExponentialRetryPolicy.nextDelayDuration]"""
    assert [delay_ms(DOUBLING, times) for times in (0, 1, 2, 3, 2**31 - 1)] == [1000, 2000, 4000, 5000, 5000]


def test_a_list_begins_with_its_third_time_and_stays_at_the_last() -> None:
    """[CustomizedRetryPolicy.nextDelayDuration] Its first two are levels 1 and 2, which no retry has."""
    assert [delay_ms(LISTED, times) for times in (0, 1, 2, 3, 99)] == [3000, 4000, 5000, 5000, 5000]
    assert delay_ms(canonical('{"customizedRetryPolicy":{"next":[7]}}'), 0) == 7


def test_what_the_consumer_asks_for_wins() -> None:
    assert after_failure("g", 1, 0, 16, DOUBLING)[:] == (RETRY_PREFIX + "g", 0, 2000)
    assert after_failure("g", 1, 4, 16, DOUBLING)[:] == (RETRY_PREFIX + "g", 4, 0)
    assert after_failure("g", 16, 0, 16, DOUBLING).dead
    assert not after_failure("g", 0, 0, 16, canonical('{"customizedRetryPolicy":{"next":[0]}}')).dead


@pytest.mark.parametrize("usual", ["", " ", "{}", '{"type":"CUSTOMIZED"}', '{"type":1}', '{"customizedRetryPolicy":null}'])
def test_the_usual_one_is_none(usual: str) -> None:
    assert canonical(usual) == ""


def test_what_is_left_out_is_rocketmqs() -> None:
    assert delay_ms(canonical('{"type":0}'), 0) == 5000
    assert canonical(canonical('{"type":"exponential","more":1}')) == canonical('{"type":"EXPONENTIAL"}')


@pytest.mark.parametrize(
    "wrong",
    [
        "x", "[]", '{"type":"LINEAR"}', '{"type":7}', '{"type":[]}', '{"customizedRetryPolicy":{"next":[]}}',
        '{"customizedRetryPolicy":{"next":["1"]}}', '{"customizedRetryPolicy":{"next":[-1]}}', '{"customizedRetryPolicy":[1]}',
        f'{{"customizedRetryPolicy":{{"next":[{MAX_MS + 1}]}}}}', f'{{"customizedRetryPolicy":{{"next":{[1] * 101}}}}}',
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":0}}', '{"type":"EXPONENTIAL","exponentialRetryPolicy":[1]}',
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"multiplier":1.5}}',
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"max":1e30}}',
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_kept_is_refused(wrong: str) -> None:
    with pytest.raises(Refusal, match="groupRetryPolicy") as refused:
        canonical(wrong)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
