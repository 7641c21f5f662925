"""Consumer groups: their members, offsets and settings, and resetting them to another offset."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client, MessageQueue
from rmq.client.admin import calls, resets, topics
from rmq.client.admin.calls import leading
from rmq.client.admin.topickinds import is_system_group
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import all_said, ask, ask_all, quiet
from rmq.dashboard.formats import to_ms
from rmq.dashboard.lags import Group, groups_now
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.members import MOST_ASKED, held
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument
from rmq.model import BrokerAddresses, GroupConfig

PER_PAGE = 50


class ConsumerPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/groups", self.groups),
            page.view("/group", self.group),
            page.view("/group/reset", self.preview),
            page.action("/group/reset", self.reset),
            page.action("/group/save", self.save),
            page.action("/group/delete", self.delete),
        ]

    async def groups(self, visit: Visit) -> Response:
        brokers = await broker_groups(self._client)
        configs, silent = await self._configs(brokers)
        word, system = visit.text("q").lower(), visit.text("type") == "system"
        names = sorted({each.name for some in configs.values() for each in some})
        shown = [name for name in names if is_system_group(name) == system and word in name.lower()]
        page, number, pages = visit.cut(shown, PER_PAGE)
        heard = [group for group in brokers if group.name in configs]
        rows = await groups_now(self._client, page, heard, seconds=visit.left_s())
        return visit.show(
            "groups.html",
            rows=rows,
            total=len(shown),
            number=number,
            pages=pages,
            q=visit.text("q"),
            system=system,
            brokers=brokers,
            silent=silent,
        )

    async def group(self, visit: Visit) -> Response:
        name = visit.needed("name")
        brokers = await broker_groups(self._client)
        known, silent = await self._configs(brokers)
        configs = {broker: each for broker, some in known.items() for each in some if each.name == name}
        heard = [group for group in brokers if group.name in known]
        (found,) = await groups_now(self._client, [name], heard, seconds=visit.left_s())
        found = found._replace(silent=silent | found.silent)
        if not configs and not found.queues and not found.parts:
            raise InvalidArgument(f"no broker that answers has a consumer group {name}{quiet(silent)}")
        members = await held(self._client, found, visit.now_ms, visit.left_s())
        return visit.show(
            "group.html", group=found, configs=configs, brokers=brokers, topics=_by_topic(found), held=members, most=MOST_ASKED
        )

    async def preview(self, visit: Visit) -> Response:
        """Shows what a reset would do; changes nothing."""
        group, topic = visit.needed("group"), visit.needed("topic")
        moves = await ask(resets.plan_reset(self._client, group, topic, _target(visit)))
        return visit.show(
            "reset.html",
            group=group,
            topic=topic,
            moves=moves,
            to=visit.text("to"),
            time=visit.text("time"),
            again=sum(max(0, (move.now or 0) - move.to) for move in moves if move.now is not None),
            skipped=sum(max(0, move.to - move.now) for move in moves if move.now is not None),
        )

    async def reset(self, visit: Visit) -> Response:
        """Does exactly what the preview showed, queue by queue."""
        group, topic = visit.needed("group"), visit.needed("topic")
        moves = [_move(topic, text) for text in visit.ticked("move")]
        await resets.reset(self._client, group, moves)
        return visit.go(link("/group", name=group), f"{group} goes on at the chosen place in {len(moves)} queues of {topic}.")

    async def save(self, visit: Visit) -> Response:
        """Creates the group, or changes the settings in the form, at the ticked brokers."""
        name, where = visit.needed("name"), visit.ticked("broker")
        brokers = {group.name: group for group in await broker_groups(self._client)}
        if not where or set(where) - set(brokers):
            raise InvalidArgument("tick at least one broker that is to have the group")
        configs, silent = await self._configs([brokers[broker] for broker in where])
        all_said(silent)  # else settings that the form does not have would be those of a new group
        known = {broker: {each.name: each for each in some} for broker, some in configs.items()}
        changed = {broker: _changed(visit, known[broker].get(name, GroupConfig(name))) for broker in where}
        await calls.at_each(where, lambda broker: calls.update_group(self._client, changed[broker], broker=broker))
        return visit.go(link("/group", name=name), f"Group {name} is saved at {', '.join(where)}.")

    async def delete(self, visit: Visit) -> Response:
        """With its topics: the former group's failed messages would come to a group of that name that is made later."""
        name = visit.needed("name")
        if visit.text("typed") != name:
            raise InvalidArgument(f"to delete the group type its name, {name}; you typed {visit.text('typed')!r}")
        brokers = await broker_groups(self._client)
        configs, silent = await self._configs(brokers)
        where = [broker for broker, some in configs.items() if any(each.name == name for each in some)]
        known = {group.name: group for group in brokers}

        async def at(broker: str) -> None:
            addresses = [leading(known[broker])]
            await topics.delete_group_with_failed(self._client, name, addresses, broker=broker, clean_offsets=True)

        await calls.at_each(where, at)
        if silent:
            left = f"{', '.join(silent)} did not answer and may keep it"
            return visit.go("/groups", f"Group {name} is deleted at {', '.join(where)}; {left}.", "bad")
        return visit.go("/groups", f"Group {name} is deleted with its offsets, its retries and its dead letters.")

    async def _configs(self, brokers: Sequence[BrokerAddresses]) -> tuple[dict[str, list[GroupConfig]], dict[str, str]]:
        return await ask_all({group.name: calls.group_configs(self._client, leading(group)) for group in brokers})


def _changed(visit: Visit, known: GroupConfig) -> GroupConfig:
    """Settings that the form does not have stay as they are. Raises InvalidArgument."""

    def yes(name: str, now: bool) -> bool:
        return visit.text(name, "yes" if now else "no") == "yes"

    return known._replace(
        consume_enable=yes("consume", known.consume_enable),
        consume_broadcast_enable=yes("broadcast", known.consume_broadcast_enable),
        consume_from_min_enable=yes("from_min", known.consume_from_min_enable),
        consume_message_orderly=yes("orderly", known.consume_message_orderly),
        notify_consumer_ids_changed_enable=yes("notify", known.notify_consumer_ids_changed_enable),
        retry_max_times=visit.number("retries", known.retry_max_times, -1),
        retry_queue_nums=visit.number("retry_queues", known.retry_queue_nums, 0, 1024),
        consume_timeout_minute=visit.number("timeout", known.consume_timeout_minute, 1),
        broker_id=visit.number("broker_id", known.broker_id),
        which_broker_when_consume_slowly=visit.number("slow_broker_id", known.which_broker_when_consume_slowly),
        retry_policy=visit.text("policy", known.retry_policy),
    )


def _by_topic(group: Group) -> list[tuple[str, int, list[tuple[object, int]]]]:
    """Each topic, its lag, and its queues with their lags; the topic with the largest lag first."""
    found: dict[str, list[tuple[object, int]]] = {}
    for row in group.queues:
        found.setdefault(row.queue.topic, []).append((row, max(0, row.broker_offset - row.consumer_offset)))
    return sorted(
        ((topic, sum(lag for _, lag in rows), rows) for topic, rows in found.items()), key=lambda each: (-each[1], each[0])
    )


def _target(visit: Visit) -> resets.Target:
    to = visit.needed("to")
    if to in ("first", "last"):
        return "first" if to == "first" else "last"
    time_ms = to_ms(visit.text("time"))
    if time_ms is None:
        raise InvalidArgument("choose a time to go back or on to")
    return time_ms


def _move(topic: str, text: str) -> resets.Move:
    """Parses the form's `broker:queue:offset`. Raises InvalidArgument."""
    try:
        broker, queue, offset = text.rsplit(":", 2)
        return resets.Move(MessageQueue(topic, broker, int(queue)), 0, 0, None, int(offset))
    except ValueError:
        raise InvalidArgument(f"{text!r} is no queue and offset") from None
