"""Names of topics, groups, brokers and clients."""

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.names import check_broker_name, check_client_id, check_group_name, check_topic_name

CHECKS = [check_topic_name, check_group_name, check_broker_name]
BAD = ["", ".", "..", "a.b", "a/b", "a\\b", "../etc", "a b", " a", "a\n", "a\0b", "a:b", "a@b", "a*", "~"]
BAD += ["\u0430bc", "a\u200b", "é", "\uff0a"]  # look-alikes and what nobody sees


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", BAD)
def test_what_could_become_a_path_or_a_look_alike_is_refused(check, name):
    """S9."""
    with pytest.raises(Refusal) as refused:
        check(name)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("check", CHECKS)
@given(name=st.text(max_size=300))
def test_only_the_allow_list_passes(check, name):
    """S9: whatever passes consists of allowed characters and is not too long."""
    try:
        check(name)
    except Refusal:
        return
    assert 1 <= len(name) <= 127
    assert all(sign.isascii() and (sign.isalnum() or sign in "%-_|") for sign in name)


def test_lengths():
    """S9: a topic has at most 127 characters, a group 120, so that its retry topic is a topic too."""
    check_topic_name("t" * 127)
    check_group_name("g" * 120)
    check_topic_name("%RETRY%" + "g" * 120)
    with pytest.raises(Refusal, match="at most 127"):
        check_topic_name("t" * 128)
    with pytest.raises(Refusal, match="at most 120"):
        check_group_name("g" * 121)


def test_a_very_long_name_does_not_fill_the_log():
    with pytest.raises(Refusal) as refused:
        check_topic_name("x" * 1_000_000)
    assert len(refused.value.remark) < 200


def test_client_ids():
    """S9."""
    check_client_id("192.168.0.7@12345#67890")
    check_client_id("fe80::1%eth0@pid 7")
    for name in ("", "a\nb", "a\0b", "x" * 256):
        with pytest.raises(Refusal, match="client id"):
            check_client_id(name)
