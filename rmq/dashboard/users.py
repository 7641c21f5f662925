"""Users of the cluster, and what policies let them do. The users of the dashboard itself are in `access`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import access, configuration
from rmq.client.admin.access import AclInfo, Policy, PolicyEntry, UserInfo
from rmq.client.admin.calls import at_each, leading
from rmq.dashboard.bounded import ask_all
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument
from rmq.model import BrokerAddresses

ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")


class ShownUser(NamedTuple):
    """`brokers`: names of the broker groups where the user is exactly this."""

    name: str
    kind: str
    status: str
    brokers: list[str]


class ShownEntry(NamedTuple):
    """One entry of a policy. `brokers`: names of the broker groups where the entry is exactly this."""

    subject: str
    kind: str
    resource: str
    actions: str
    sources: str
    decision: str
    brokers: list[str]


class UserPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/users", self.users),
            page.action("/users/save", self.save_user),
            page.action("/users/delete", self.delete_user),
            page.action("/users/policy/save", self.save_policy),
            page.action("/users/policy/delete", self.delete_policy),
        ]

    async def users(self, visit: Visit) -> Response:
        """`broker`: shows this broker group only. `user`, `subject` and `resource`: what the forms are filled with."""
        brokers = await broker_groups(self._client)
        chosen = [group for group in brokers if visit.text("broker") in ("", group.name)]
        answers, silent = await ask_all({group.name: access.users_at(self._client, leading(group)) for group in chosen})
        asked = [group for group in chosen if group.name in answers]
        acls, _ = await ask_all({each.name: access.acls_at(self._client, leading(each)) for each in asked}, visit.left_s(0.5))
        configs = {each.name: configuration.broker_config(self._client, leading(each)) for each in asked}
        settings, _ = await ask_all(configs, visit.left_s(0.5))
        known, entries = shown_users(answers), shown_entries(acls)
        wanted = (visit.text("subject"), visit.text("resource"), visit.text("kind"))
        return visit.show(
            "users.html",
            brokers=brokers,
            broker=visit.text("broker"),
            silent=silent,
            unasked=off(settings, "authenticationEnabled"),
            unbound=off(settings, "authorizationEnabled"),
            users=known,
            entries=entries,
            user=next((each for each in known if each.name == visit.text("user")), None),
            entry=next((each for each in entries if (each.subject, each.resource, each.kind) == wanted), None),
            actions=ACTIONS,
        )

    async def save_user(self, visit: Visit) -> Response:
        user = UserInfo(visit.needed("name"), visit.raw("password"), visit.text("kind"), visit.text("status"))
        where = await self._at_ticked(visit, lambda address: access.save_users(self._client, address, [user]))
        return visit.go("/users", f"User {user.username} is saved at {where}.")

    async def delete_user(self, visit: Visit) -> Response:
        name = visit.needed("name")
        if visit.text("typed") != name:
            raise InvalidArgument(f"to delete the user type the name, {name}; you typed {visit.text('typed')!r}")
        where = await self._at_ticked(visit, lambda address: access.delete_user(self._client, address, name))
        return visit.go("/users", f"User {name} is deleted at {where}, with what policies said of that user.")

    async def save_policy(self, visit: Visit) -> Response:
        name = visit.needed("user").removeprefix("User:")
        actions, sources = visit.ticked("action"), visit.text("sources").replace(",", " ").split()
        decision = visit.text("decision", "Allow")
        resources = visit.needed("resources").replace(",", " ").split()
        policy = Policy(visit.text("kind", "Custom"), [PolicyEntry(each, actions, sources, decision) for each in resources])
        acl = AclInfo(f"User:{name}", [policy])
        where = await self._at_ticked(visit, lambda address: access.save_acls(self._client, address, [acl]))
        return visit.go("/users", f"What {name} may do with {', '.join(resources)} is saved at {where}.")

    async def delete_policy(self, visit: Visit) -> Response:
        subject, kind, resource = visit.needed("subject"), visit.text("kind"), visit.needed("resource")
        where = await self._at_ticked(visit, lambda address: access.delete_policy(self._client, address, subject, kind, resource))
        return visit.go("/users", f"{subject} is no longer told anything about {resource} at {where}.")

    async def _at_ticked(self, visit: Visit, change: Callable[[str], Awaitable[None]]) -> str:
        """Makes the change at each of these broker groups; returns their names. Raises RmqError if one fails."""
        where = visit.ticked("broker")
        known: dict[str, BrokerAddresses] = {group.name: group for group in await broker_groups(self._client)}
        if not where or set(where) - set(known):
            raise InvalidArgument("tick at least one broker: each has users and policies of its own")
        await at_each(where, lambda name: change(leading(known[name])))
        return ", ".join(where)


def off(settings: Mapping[str, Mapping[str, str]], key: str) -> list[str]:
    """Brokers where the switch `key` is off."""
    return sorted(broker for broker, values in settings.items() if values.get(key) != "true")


def shown_users(answers: Mapping[str, Iterable[UserInfo]]) -> list[ShownUser]:
    """Sorted by name. A user that differs between brokers appears once for each form."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for broker, users in answers.items():
        for user in users:
            found.setdefault((user.username, user.user_type, user.user_status), []).append(broker)
    return [ShownUser(*key, brokers) for key, brokers in sorted(found.items())]


def shown_entries(answers: Mapping[str, Sequence[AclInfo]]) -> list[ShownEntry]:
    """Sorted by subject and resource."""
    found: dict[tuple[str, str, str, str, str, str], list[str]] = {}
    for broker, acls in answers.items():
        for acl in acls:
            for policy in acl.policies:
                for entry in policy.entries:
                    key = (
                        acl.subject,
                        policy.policy_type,
                        entry.resource,
                        ", ".join(entry.actions),
                        ", ".join(entry.source_ips),
                        entry.decision,
                    )
                    found.setdefault(key, []).append(broker)
    return [ShownEntry(*key, brokers) for key, brokers in sorted(found.items())]
