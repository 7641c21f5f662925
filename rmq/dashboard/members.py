"""What the members of a consumer group say about themselves: queues held, speed, subscriptions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmq.client import Client, MessageQueue
from rmq.client.admin import members as ask
from rmq.client.admin.members import RunningInfo
from rmq.dashboard.bounded import ask_all
from rmq.dashboard.lags import Group, behind
from rmq.model import RETRY_PREFIX

FEW = 10  # so many messages may wait anywhere
MOST_ASKED = 64  # at most so many members of one group are asked, so that the page stays readable
NOTHING = "nothing"


class Member(NamedTuple):
    """`queues`: those that it holds, None if it did not say. `waiting`: messages waiting in them. `handled`, `failed`: messages
    per second. `each_ms`: how long it takes for one message of its slowest topic."""

    client_id: str
    address: str
    language: str
    version: int
    queues: list[MessageQueue] | None
    waiting: int
    each_ms: float
    handled: float
    failed: float


class Held(NamedTuple):
    """What the members of one group say. `differing`: topic -> subscription -> client ids, for topics with several subscriptions.
    `stuck`: what else is wrong with the members."""

    members: list[Member]
    owners: dict[MessageQueue, list[str]]
    differing: dict[str, dict[str, list[str]]]
    stuck: list[str]
    silent: dict[str, str]

    @property
    def slowest(self) -> Member | None:
        """The member that holds the group up: at least four times as much waits for it as for any other."""
        if len(self.members) < 2:
            return None
        first, second = self.members[:2]
        return first if first.waiting > FEW and first.waiting >= 4 * second.waiting else None


async def held(client: Client, group: Group, now_ms: int, seconds: float) -> Held:
    """Asks each member through a broker that it is connected to. Members that lag most come first."""
    at = {
        each.client_id: address for address, part in reversed(group.parts.items()) for each in part.connections
    }  # the first broker that lists it
    asked = {client_id: ask.running(client, group.name, client_id, at[client_id]) for client_id in sorted(at)[:MOST_ASKED]}
    answers, silent = await ask_all(asked, seconds)
    owners: dict[MessageQueue, list[str]] = {}
    for client_id, info in sorted(answers.items()):
        for queue, place in info.queues.items():
            if not place.droped:
                owners.setdefault(queue, []).append(client_id)
    lags = {row.queue: behind(row) for row in group.queues}
    found = [_member(client_id, group, answers.get(client_id), lags) for client_id in sorted(at)]
    found.sort(key=lambda member: -member.waiting)
    return Held(found, owners, differing(answers), ask.stuck(answers, now_ms), silent)


async def held_by(
    client: Client, members: Mapping[tuple[str, str], str], queue: MessageQueue, seconds: float
) -> dict[str, list[str]]:
    """By group, the members that hold the queue. `members`: group and client id -> the broker that is to ask the member."""
    chosen = dict(list(members.items())[:MOST_ASKED])
    answers, _ = await ask_all({key: ask.running(client, *key, address) for key, address in chosen.items()}, seconds)
    found: dict[str, list[str]] = {}
    for (group, client_id), info in answers.items():
        if queue in info.queues and not info.queues[queue].droped:
            found.setdefault(group, []).append(client_id)
    return found


def _member(client_id: str, group: Group, info: RunningInfo | None, lags: Mapping[MessageQueue, int]) -> Member:
    address, language, version = group.members[client_id]
    if info is None:
        return Member(client_id, address, language, version, None, 0, 0.0, 0.0, 0.0)
    queues = sorted(queue for queue, place in info.queues.items() if not place.droped)
    rates = info.rates.values()
    return Member(
        client_id,
        address,
        language,
        version,
        queues,
        sum(lags.get(queue, 0) for queue in queues),
        max((each.consume_rt for each in rates), default=0.0),
        sum(each.consume_ok_tps for each in rates),
        sum(each.consume_failed_tps for each in rates),
    )


def differing(answers: Mapping[str, RunningInfo]) -> dict[str, dict[str, list[str]]]:
    """Topics with several subscriptions, and the members that have each. Such members get messages by chance: each takes what it
    subscribes to from the queues that it holds. [ConsumerRunningInfo.analyzeSubscription]"""
    wanted = {client_id: _wants(info) for client_id, info in answers.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for topic in sorted({topic for wants in wanted.values() for topic in wants}):
        by_want: dict[str, list[str]] = {}
        for client_id, wants in sorted(wanted.items()):
            by_want.setdefault(wants.get(topic, NOTHING), []).append(client_id)
        if len(by_want) > 1:
            found[topic] = by_want
    return found


def _wants(info: RunningInfo) -> dict[str, str]:
    """The member's subscription by topic, with its tags sorted."""
    return {
        each.topic: _spelled(each.expression)
        if each.expression_type in ("", "TAG")
        else f"{each.expression_type}: {each.expression}"
        for each in info.subscriptions
        if not each.topic.startswith(RETRY_PREFIX)
    }


def _spelled(tags: str) -> str:
    words: Sequence[str] = sorted({tag.strip() for tag in tags.split("||")} - {""})
    return " || ".join(words) or "*"
