"""Topics: listed by type, one in detail; created, changed, deleted; sending to one."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client, Message
from rmq.client.admin import access, calls, configuration, one, topics as admin_topics
from rmq.client.admin.calls import leading
from rmq.client.admin.topickinds import KINDS, kind
from rmq.client.shared.routes import LEADER
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import BROKERS_S, all_said, ask, ask_all, quiet
from rmq.dashboard.lags import groups_now
from rmq.dashboard.looks import WIPED, broker_groups, look, troubles
from rmq.dashboard.page import Page, Visit
from rmq.dashboard.users import ShownEntry, off, shown_entries
from rmq.errors import InvalidArgument, Refusal
from rmq.model import PERM_INHERIT, PERM_WRITE, BrokerAddresses, Route, TopicConfig

PER_PAGE = 50
_LOOK_S = 0.05
_OWN = ("NORMAL", "DELAY", "FIFO", "TRANSACTION", "MIXED", "UNSPECIFIED")  # users' topics; others are hidden until asked for


class Row(NamedTuple):
    """One topic, over all brokers that have it."""

    name: str
    kind: str
    read_queues: int
    write_queues: int
    perm: int
    brokers: list[str]


class TopicPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/topics", self.topics),
            page.view("/topic", self.topic),
            page.action("/topic/save", self.save),
            page.action("/topic/delete", self.delete),
            page.action("/topic/send", self.send),
        ]

    async def topics(self, visit: Visit) -> Response:
        brokers = await broker_groups(self._client)
        found, silent = await self._configs(brokers)
        all_rows = rows(brokers, found)
        wanted, word = visit.text("type"), visit.text("q").lower()
        kinds = [wanted] if wanted in KINDS else KINDS if wanted == "all" else _OWN
        shown = [row for row in all_rows if row.kind in kinds and word in row.name.lower()]
        counts = {each: sum(row.kind == each for row in all_rows) for each in KINDS}
        page, number, pages = visit.cut(shown, PER_PAGE)
        return visit.show(
            "topics.html",
            rows=page,
            total=len(shown),
            number=number,
            pages=pages,
            type=wanted,
            q=visit.text("q"),
            counts=counts,
            brokers=brokers,
            silent=silent,
            kinds=KINDS,
        )

    async def topic(self, visit: Visit) -> Response:
        name = visit.needed("name")
        brokers = await broker_groups(self._client)
        configs, silent = await self._of_topic(name, brokers)
        if not configs:
            raise InvalidArgument(f"no broker that answers has a topic {name}{quiet(silent)}")
        having = [group for group in brokers if group.name in configs]
        addresses = [leading(group) for group in having]
        (stats, late), (consumers, _), (routes, _), seen, entries = await asyncio.gather(
            ask_all({at: one.topic_stats(self._client, name, at) for at in addresses}, visit.left_s()),
            ask_all({at: one.groups_of_topic(self._client, name, at) for at in addresses}, visit.left_s()),
            ask_all({name: calls.topic_route(self._client, name)}, visit.left_s()),
            look(self._client, list(configs), visit.left_s(0.6)),
            self._policies(name, having, visit.left_s()),
        )
        queues = [row for answer in stats.values() for row in answer.queues]
        tps = sum(answer.topic_put_tps for answer in stats.values())
        names = sorted({group for some in consumers.values() for group in some})
        heard = [group for group in having if leading(group) in stats]
        groups = await groups_now(self._client, names, heard, name, visit.left_s())
        first = next(iter(configs.values()))
        return visit.show(
            "topic.html",
            name=name,
            configs=configs,
            brokers=having,
            everywhere=brokers,
            queues=sorted(queues),
            tps=tps,
            groups=groups,
            silent=silent | late,
            kind=kind_of(first, brokers),
            first=first,
            unsendable=unsendable(having, configs, routes.get(name)),
            troubles=[each for each in troubles(seen, visit.now_ms) if each.group in configs and WIPED not in each.text],
            entries=entries,
        )

    async def _policies(self, name: str, brokers: Sequence[BrokerAddresses], seconds: float) -> list[ShownEntry] | None:
        """What policies say of the topic at these broker groups; None if every user may do everything there, or nobody tells."""
        configs = {group.name: configuration.broker_config(self._client, leading(group)) for group in brokers}
        acls = {group.name: access.acls_at(self._client, leading(group)) for group in brokers}
        (settings, _), (found, _) = await asyncio.gather(ask_all(configs, seconds), ask_all(acls, seconds))
        bound = {broker: each for broker, each in found.items() if broker not in off(settings, "authorizationEnabled")}
        return [entry for entry in shown_entries(bound) if covers(entry.resource, name)] if bound else None

    async def save(self, visit: Visit) -> Response:
        """Creates the topic at the ticked broker groups, or (`known`: from its own page) changes it."""
        name, where = visit.needed("name"), visit.ticked("broker")
        there = await self._check_there(name, where) if visit.text("known") else {}
        if not where:
            raise InvalidArgument("tick at least one broker that is to have the topic")
        brokers = {group.name: group for group in await broker_groups(self._client)}
        if strangers := set(where) - set(brokers):
            raise InvalidArgument(f"no broker {', '.join(sorted(strangers))}")
        read, write, perm = visit.number("read", 8, 1, 1024), visit.number("write", 8, 1, 1024), visit.number("perm", 6, 0, 7)
        message_type = visit.text("type")
        attributes = f"+message.type={message_type}" if message_type else ""

        async def at(broker: str) -> None:
            if known := there.get(broker):  # what the form does not show stays: flags of units, and whether others inherit
                perm_there = perm | known.perm & PERM_INHERIT
                changed = known._replace(read_queue_nums=read, write_queue_nums=write, perm=perm_there)
                await admin_topics.change(self._client, changed, leading(brokers[broker]))
                return
            await calls.update_topic(
                self._client,
                name,
                broker=broker,
                read_queues=read,
                write_queues=write,
                perm=perm,
                order=visit.text("order") == "yes",
                attributes=attributes,
            )

        await calls.at_each(where, at)
        await self._until_told(name)
        return visit.go(link("/topic", name=name), f"Topic {name} is saved at {', '.join(where)}.")

    async def _until_told(self, name: str) -> None:
        """Waits until the nameservers know the new topic, so that a send right afterwards finds its queues: brokers register it a
        little after they answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BROKERS_S):
                while True:
                    with contextlib.suppress(Refusal):
                        await calls.topic_route(self._client, name)
                        return
                    await asyncio.sleep(_LOOK_S)

    async def delete(self, visit: Visit) -> Response:
        name = visit.needed("name")
        if visit.text("typed") != name:
            raise InvalidArgument(f"to delete the topic type its name, {name}; you typed {visit.text('typed')!r}")
        configs, silent = await self._of_topic(name, await broker_groups(self._client))
        await calls.at_each(configs, lambda broker: calls.delete_topic(self._client, name, broker=broker))
        if silent:
            left = f"{', '.join(silent)} did not answer and may keep it"
            return visit.go("/topics", f"Topic {name} is deleted at {', '.join(configs)}; {left}.", "bad")
        return visit.go("/topics", f"Topic {name} is deleted with its messages.")

    async def _check_there(self, name: str, where: Collection[str] = ()) -> dict[str, TopicConfig]:
        """Its settings by broker. Raises InvalidArgument: a page that has been open for long must not make a topic anew that was
        deleted meanwhile. Unreachable: a broker of `where` does not say its settings."""
        configs, silent = await self._of_topic(name, await broker_groups(self._client))
        if not configs and not silent:
            raise InvalidArgument(f"topic {name} is not there any more; if you want it, make it again on the page Topics")
        all_said({broker: why for broker, why in silent.items() if broker in where})
        return configs

    async def send(self, visit: Visit) -> Response:
        name = visit.needed("name")
        await self._check_there(name)
        message = Message(name, visit.raw("body").replace("\r\n", "\n").encode(), visit.text("tag"), visit.text("keys").split())
        if visit.text("delay"):
            message = message._replace(delay_s=visit.number("delay", 0, 0, 3 * 86_400))
        async with self._client.producer("rmq_dashboard") as producer:
            sent = await ask(producer.send(message), 5.0)
        place = f"{sent.queue.broker_name}, queue {sent.queue.queue_id}, offset {sent.queue_offset}"
        return visit.go(link("/topic", name=name), f"Sent: {sent.message_id} at {place}.")

    async def _configs(self, brokers: Sequence[BrokerAddresses]) -> tuple[dict[str, list[TopicConfig]], dict[str, str]]:
        return await ask_all({group.name: calls.topic_configs(self._client, leading(group)) for group in brokers})

    async def _of_topic(self, name: str, brokers: Sequence[BrokerAddresses]) -> tuple[dict[str, TopicConfig], dict[str, str]]:
        """Settings by broker name, and why other brokers did not answer. Brokers without the topic are in neither."""
        found, silent = await ask_all({group.name: calls.topic_config(self._client, name, leading(group)) for group in brokers})
        return found, {broker: why for broker, why in silent.items() if "TOPIC_NOT_EXIST" not in why}


def covers(resource: str, topic: str) -> bool:
    """Whether a policy's entry with that resource is about the topic."""
    kind, _, pattern = resource.partition(":")
    if resource == "*":
        return True
    return kind == "Topic" and (topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern)


def unsendable(
    having: Sequence[BrokerAddresses], configs: Mapping[str, TopicConfig], route: Route | None
) -> list[tuple[str, str]]:
    """Broker groups to which nobody can send the topic's messages, and why. `route`: what clients are told, None for nothing."""
    answers = {data.broker_name: data for data in route.queues} if route else {}
    found = []
    for group in having:
        config = configs[group.name]
        if LEADER not in group.addresses:
            found.append((group.name, "nobody leads it"))
        elif not config.perm & PERM_WRITE or not config.write_queue_nums:
            found.append((group.name, "the topic may not be written there: see its settings below"))
        elif group.name not in answers:
            found.append((group.name, "no nameserver tells clients that it has the topic; it registers every 30 s"))
        elif not answers[group.name].perm & PERM_WRITE:
            found.append((group.name, WIPED))
    return found


def kind_of(config: TopicConfig, brokers: Sequence[BrokerAddresses]) -> str:
    return kind(config, frozenset(group.cluster for group in brokers), frozenset(group.name for group in brokers))


def rows(brokers: Sequence[BrokerAddresses], configs: dict[str, list[TopicConfig]]) -> list[Row]:
    """By name."""
    clusters, names = frozenset(group.cluster for group in brokers), frozenset(group.name for group in brokers)
    found: dict[str, Row] = {}
    for broker, topics in configs.items():
        for config in topics:
            known = found.get(config.name) or Row(config.name, kind(config, clusters, names), 0, 0, config.perm, [])
            found[config.name] = known._replace(
                read_queues=known.read_queues + config.read_queue_nums,
                write_queues=known.write_queues + config.write_queue_nums,
                brokers=[*known.brokers, broker],
            )
    return sorted(found.values())
