"""Prometheus is told the same of the same work as by Apache RocketMQ 5.5.0; what differs is known."""

import json
from pathlib import Path

from tests.interop.metrics import RECORDED, at_ours

PAGE = Path(__file__).parent.parent.parent / "docs" / "monitoring.md"
_POPPED_AGAIN = "consumer_group=p is_retry=true is_system=false topic=P"
_NEW = "consumer_group=q is_retry=false is_system=false topic=T"
DIFFERENT = {
    "rocketmq_commit_messages_total topic=T": "ours has no topic",
    "rocketmq_rollback_messages_total topic=T": "ours has no topic",
    "rocketmq_half_messages topic=T": "ours has the producer group",
    "rocketmq_send_to_dlq_messages_total consumer_group=q is_system=false topic=T": "ours has no topic",
    "rocketmq_messages_out_total consumer_group=g is_system=false topic=T": "ours has is_retry, as RocketMQ's pops",
    "rocketmq_messages_out_total consumer_group=q is_system=false topic=T": "ours has is_retry, as RocketMQ's pops",
    "rocketmq_messages_in_total is_system=false message_type=normal topic=T": "a committed message counts, too",
    "rocketmq_pop_checkpoint_buffer_size": "ours are all open receipts, RocketMQ's those that are not stored yet",
    "rocketmq_topic_number": "two topics of ours",
    **{f"rocketmq_consumer_{kind}_messages {_POPPED_AGAIN}": "nothing came back yet" for kind in ("lag", "inflight", "ready")},
    **{f"rocketmq_consumer_{kind}_messages {_NEW}": "it has no offset yet" for kind in ("lag", "inflight", "ready")},
}
"""Rows of RocketMQ's that ours has not, or with another value."""


async def test_the_same_work_has_the_same_figures() -> None:
    theirs, ours = json.loads(RECORDED.read_text()), await at_ours()
    missing = {
        f"{name} {labels}".rstrip()
        for name, rows in theirs.items()
        for labels, value in rows.items()
        if name in ours and ours[name].get(labels) != value
    }
    assert missing == DIFFERENT.keys()
    told = PAGE.read_text()
    assert not [name for name in theirs.keys() - ours.keys() if f"`{name.removesuffix('_total')}`" not in told]
    assert not ours.keys() - theirs.keys()
