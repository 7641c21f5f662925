"""Policies decide as RocketMQ's do."""

import json
from pathlib import Path

import pytest

from rmq.access.policies import CUSTOM, DEFAULT, Acl, Entry, Need, checked, merged, pattern_of, permits, without
from rmq.errors import Refusal

RECORDED = Path(__file__).parents[1] / "data" / "policies.json"
PUB = Need("Topic", "orders", ("Pub",))


def acl(*entries: Entry) -> Acl:
    return merged(None, {CUSTOM: entries})


def test_every_verdict_that_rocketmq_gave_is_ours() -> None:
    """S2: what a RocketMQ 5.5.0 broker answered to real requests; `record_policies` wrote it down."""
    asked = 0
    for case in json.loads(RECORDED.read_text()):
        entries = [Entry(e["resource"], e["actions"], e.get("sourceIps", []), e["decision"]) for e in case["entries"]]
        for kind, name, action, permitted in case["asked"]:
            asked += 1
            found = permits(acl(*entries), Need(kind, name, (action,)), case["source"])
            assert found == permitted, f"{entries}: {action} on {kind}:{name} from {case['source']}"
    assert asked >= 300


def test_default_entries_are_asked_only_where_no_custom_one_fits() -> None:
    both = merged(None, {CUSTOM: [Entry("Topic:orders", ["Pub"], [], "Deny")], DEFAULT: [Entry("*", ["All"])]})
    assert not permits(both, PUB, "10.0.0.1")
    assert permits(both, PUB._replace(name="other"), "10.0.0.1")


def test_nobody_may_what_no_entry_allows() -> None:
    """S2: deny by default."""
    assert not permits(None, PUB, "10.0.0.1")
    assert not permits({}, PUB, "10.0.0.1")
    assert not permits(acl(Entry("Topic:orders", ["Sub"])), PUB, "10.0.0.1")


@pytest.mark.parametrize("source", ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"])
def test_sources_are_addresses_and_networks_of_both_kinds(source: str) -> None:
    there = acl(Entry("Topic:orders", ["Pub"], ["10.1.0.0/16", "2001:db8::/32"]))
    assert permits(there, PUB, source)
    assert not permits(there, PUB, "10.2.2.3")
    assert not permits(there, PUB, "")


@pytest.mark.parametrize(
    "wrong",
    [
        Entry("orders", ["Pub"]),
        Entry("Topic:", ["Pub"]),
        Entry("Queue:orders", ["Pub"]),
        Entry("Topic:*-secret", ["Pub"], [], "Deny"),
        Entry("Topic:*orders*", ["Pub"]),
        Entry("Topic:orders", []),
        Entry("Topic:orders", ["Write"]),
        Entry("Topic:orders", ["Any"]),
        Entry("Topic:orders", ["Pub"], ["10.0.0.300"]),
        Entry("Topic:orders", ["Pub"], [], "Perhaps"),
    ],
)
def test_what_no_policy_can_mean_is_refused(wrong: Entry) -> None:
    with pytest.raises(Refusal):
        checked(wrong)


def test_an_entry_of_the_same_resource_takes_the_others_place() -> None:
    first = acl(Entry("Topic:orders", ["Pub"]), Entry("Topic:a*", ["Sub"]))
    then = merged(first, {CUSTOM: [Entry("Topic:orders", ["sub"], [], "deny")]})
    assert then == {CUSTOM: [Entry("Topic:orders", ["Sub"], [], "Deny"), Entry("Topic:a*", ["Sub"])]}
    assert without(then, "", "Topic:a*") == {CUSTOM: [Entry("Topic:orders", ["Sub"], [], "Deny")]}
    assert without(then, CUSTOM, "") == {}
    assert pattern_of("topic:x").kind == "Topic"


def test_entries_of_one_resource_that_come_together_stay_together() -> None:
    """As in RocketMQ: one was dropped, and it might be the one that denies."""
    both = [Entry("Topic:orders", ["Pub"], ["10.0.0.5"], "Deny"), Entry("Topic:orders", ["Pub"], ["10.0.0.0/8"])]
    found = merged(acl(Entry("Topic:orders", ["All"])), {CUSTOM: both})
    assert found == {CUSTOM: both}
    need = Need("Topic", "orders", ("Pub",))
    assert [permits(found, need, source) for source in ("10.0.0.5", "10.0.0.6", "11.0.0.1")] == [False, True, False]
    assert without(found, "", "Topic:orders") == {}


def test_a_kind_in_another_case_is_the_same_resource() -> None:
    """As in RocketMQ: else a right that was replaced, or taken away, would stay."""
    first = merged(None, {CUSTOM: [Entry("topic:orders", ["All"])]})
    assert first == {CUSTOM: [Entry("Topic:orders", ["All"])]}
    assert merged(first, {CUSTOM: [Entry("TOPIC:orders", ["Sub"])]}) == {CUSTOM: [Entry("Topic:orders", ["Sub"])]}
    assert without(first, "", "TOPIC:orders") == {}
    stored_before = acl(Entry("topic:orders", ["All"]))
    assert merged(stored_before, {CUSTOM: [Entry("Topic:orders", ["Sub"])]}) == {CUSTOM: [Entry("Topic:orders", ["Sub"])]}
    assert without(stored_before, "", "Topic:orders") == {}


def test_a_policy_type_may_be_spelled_in_any_case() -> None:
    """RocketMQ takes it. Here it was refused, and a deletion by it deleted nothing and was called done."""
    both = merged(None, {"custom": [Entry("Topic:a", ["Pub"])], "DEFAULT": [Entry("Topic:a", ["Sub"])]})
    assert [*both] == [CUSTOM, DEFAULT]
    assert [*without(both, "CUSTOM", "")] == [DEFAULT]
    with pytest.raises(Refusal, match="policyType 'other': Custom or Default"):
        without(both, "other", "")
