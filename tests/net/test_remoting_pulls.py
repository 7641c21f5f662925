"""Answers to pulls in RocketMQ's JSON."""

from rmq.net.codec.frames import decode_frame
from rmq.net.commands import PullAnswer
from rmq.net.remoting import pulls
from rmq.net.remoting.headers import ANSWER_FLAG, write
from tests.net.test_remoting_known import PULL, codec, frame


def test_an_answer_is_written_as_any_other() -> None:
    asked = decode_frame(codec(), frame(11, PULL, 12))[3]
    for answer in (PullAnswer(160, 0, 7500, b"messages"), PullAnswer(160, 3, 2**60, b"", 19, 2), PullAnswer(0, 0, 0, b"", 21)):
        for remark in ("FOUND", "", 'odd "opaque":0 %d % x'):
            expected = write(False, answer.status, ANSWER_FLAG, 12, remark, pulls.pull_ext(answer), answer.messages)
            assert codec().answer(12, asked, answer, remark) == expected
            assert b"".join(codec().found(12, asked, answer, remark)) == expected
