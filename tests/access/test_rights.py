"""The one table of rights is complete, and asks at least for what RocketMQ asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmq.access.policies import Need
from rmq.codes import RequestCode
from rmq.guard.needs import CODE_OF, needs_of
from rmq.net.commands import CODES, CreateAcl, CreateUser, DeleteTopic, Send, UpdateTopic
from rmq.net.commands.progress import GetCorrections, GetQueueEntries
from rmq.requests import REQUESTS, Action, Served
from tests.access.examples import CLUSTER, example

RECORDED = Path(__file__).parents[1] / "data" / "rights.json"
OFFSETS = (30, 31, 29, 32)  # what a pull tells as well
OTHERWISE = {  # where RocketMQ asks for nothing, or for less; and what readers may know
    **{RequestCode(code): {"Topic:Sub", "Topic:Get"} for code in OFFSETS},
    RequestCode.LITE_PULL_MESSAGE: {"Topic:Sub", "Group:Sub"},
    RequestCode.QUERY_ASSIGNMENT: {"Topic:Sub", "Group:Sub"},
    RequestCode.GET_TOPIC_CONFIG: {f"Topic:{action}" for action in Action.SEE.value},
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: {f"Group:{action}" for action in Action.SEE.value},
    RequestCode.GET_BROKER_RUNTIME_INFO: {"Cluster:Get"},
    RequestCode.GET_BROKER_HA_STATUS: {"Cluster:Get"},
    RequestCode.GET_BROKER_EPOCH_CACHE: {"Cluster:Get"},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"Group:Update"},
    RequestCode.DELETE_EXPIRED_COMMITLOG: {"Cluster:Update"},
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: {"Cluster:Update"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"Group:Create"},
}

# The message tells its topic, so their handlers look: an id does not, and clients leave their namespace out of an end.
BY_PLACE = {RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.END_TRANSACTION}


def test_every_code_has_a_row() -> None:
    """S2: a new request code without a row fails here."""
    missing = [code.name for code in RequestCode if code not in REQUESTS]
    assert not missing, f"give these a row in rmq/requests.py: {missing}"


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_every_request_says_what_it_is_about(kind: type[Any]) -> None:
    """S2: the names that a row speaks of are found in the request, or nobody could be refused."""
    row = REQUESTS[CODE_OF[kind]]
    if row.action not in (Action.ANY, Action.KNOWN, Action.NODE, Action.CLIENT):
        needs = needs_of(example(kind), CLUSTER)
        assert {need.kind for need in needs} == set(row.resource.value)
        assert all(need.name in (need.kind.lower(), "x") and need.actions for need in needs)


def test_rights_are_those_of_rocketmq() -> None:
    """S2: recorded from a RocketMQ 5.5.0 broker by `record_rights`. What is listed is cut down instead of refused."""
    kinds = {code: kind for kind, code in CODES.items()} | dict.fromkeys((10, 320), Send)
    for number, theirs in json.loads(RECORDED.read_text()).items():
        code = RequestCode(int(number))
        row, kind = REQUESTS[code], kinds.get(code, kinds[RequestCode.PULL_MESSAGE])
        if row.action is Action.KNOWN:
            assert theirs == [] or code in BY_PLACE
            continue
        ours = {f"{need.kind}:{action}" for need in needs_of(example(kind), CLUSTER) for action in need.actions}
        assert ours == OTHERWISE.get(code, set(theirs)), code.name


def test_a_retry_topic_belongs_to_its_group() -> None:
    """Who may not read for the group reads its retries neither, nor those of another, whose name may begin with that of the
    first: POP has a retry topic for each topic of a group."""
    pull = next(kind for kind, code in CODES.items() if code == RequestCode.PULL_MESSAGE)
    for topic, wanted in (
        ("%RETRY%g", ["Group:g"]),
        ("%RETRY%g_T", ["Group:g", "Topic:T"]),
        ("%RETRY%g+T", ["Group:g", "Topic:T"]),
        ("%RETRY%other", ["Group:other"]),
    ):
        *needs, own = needs_of(pull("g", topic, 0, 0), CLUSTER)
        assert [f"{need.kind}:{need.name}" for need in needs] == wanted
        assert {need.actions for need in needs} == {("Sub",)}
        assert (own.kind, own.name) == ("Group", "g")


def test_a_retry_topic_is_changed_only_by_who_may_change_its_group() -> None:
    assert needs_of(DeleteTopic("%RETRY%g"), CLUSTER) == [Need("Group", "g", ("Delete",))]
    assert needs_of(UpdateTopic("%RETRY%g"), CLUSTER) == [Need("Group", "g", ("Create",))]
    send = Send("p", "%RETRY%g", 0, b"")
    assert needs_of(send, CLUSTER) == [Need("Group", "g", ("Sub",))]


def test_what_tells_of_groups_needs_the_right_to_them() -> None:
    corrections = needs_of(GetCorrections("a", "T", "b,c"), CLUSTER)
    assert [(need.kind, need.name) for need in corrections] == [("Topic", "T"), ("Group", "a"), ("Group", "b"), ("Group", "c")]
    assert [need.kind for need in needs_of(GetQueueEntries("T", 0, 0), CLUSTER)] == ["Topic"]
    assert [need.kind for need in needs_of(GetQueueEntries("T", 0, 0, 1, "g"), CLUSTER)] == ["Topic", "Group"]


def test_only_nodes_say_what_nodes_say() -> None:
    """S3: between members, and to nameservers."""
    between = {code for code, row in REQUESTS.items() if row.action is Action.NODE}
    assert {RequestCode.FETCH_LOG, RequestCode.ASK_VOTE, RequestCode.REGISTER_BROKER, RequestCode.SHARE_ACCESS} <= between
    assert all(REQUESTS[CODES[kind]].served is Served.LEADER for kind in (CreateUser, CreateAcl))
