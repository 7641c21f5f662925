"""Users, policies and quotas, as an administrator sees and changes them. Errors: as of `rmq.client.admin.calls`."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import cast

from rmq.client.admin.calls import Silent, broker_addresses, change_each, of_each
from rmq.client.client import Client
from rmq.errors import RmqError, done_in_part
from rmq.net.commands import Answer, Request
from rmq.net.commands.access import (
    AclInfo,
    AclInfos,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    PolicyEntry,
    UpdateAcl,
    UpdateUser,
    UserInfo,
    UserInfos,
)
from rmq.net.commands.quotas import ListQuotas, QuotaRow, QuotaRows


async def change(client: Client, cluster: str, broker: str, request: Request) -> list[str]:
    """At the leader of each broker group of the cluster, or at one; where that was done."""
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    await change_each(client, addresses, request)
    return addresses


async def users(
    client: Client, cluster: str, broker: str, name: str = "", part: str = "", silent: Silent | None = None
) -> dict[str, list[UserInfo]]:
    """By address: that one, or all with `part` in their names."""
    answers = await _at(client, cluster, broker, GetUser(name) if name else ListUsers(part), silent)
    return {at: [each] if isinstance(each, UserInfo) else cast(UserInfos, each).users for at, each in answers.items()}


async def acls(
    client: Client,
    cluster: str,
    broker: str,
    subject: str = "",
    resource: str = "",
    listed: bool = False,
    silent: Silent | None = None,
) -> dict[str, list[AclInfo]]:
    """By address: of that subject, or (`listed`) of all with these texts in their names."""
    answers = await _at(client, cluster, broker, ListAcls(subject, resource) if listed else GetAcl(subject), silent)
    return {at: [each] if isinstance(each, AclInfo) else cast(AclInfos, each).acls for at, each in answers.items()}


async def users_at(client: Client, address: str) -> list[UserInfo]:
    """All users of one broker group, as the node at `address` knows them."""
    return cast(UserInfos, await _ask(client, address, ListUsers())).users


async def acls_at(client: Client, address: str) -> list[AclInfo]:
    """All policies of one broker group."""
    return cast(AclInfos, await _ask(client, address, ListAcls())).acls


async def save_users(client: Client, address: str, users: Iterable[UserInfo]) -> None:
    """Make them there, or change what is not empty in them."""
    there = {each.username for each in await users_at(client, address)}
    changes = [(UpdateUser if user.username in there else CreateUser)(user.username, user) for user in users]
    await _one_after_another(client, address, changes)


async def delete_user(client: Client, address: str, name: str) -> None:
    """With what policies say of the user."""
    await _ask(client, address, DeleteUser(name))


async def save_acls(client: Client, address: str, acls: Iterable[AclInfo]) -> None:
    """Entries of the same resources are replaced, others stay."""
    there = {each.subject for each in await acls_at(client, address)}
    changes = [(UpdateAcl if acl.subject in there else CreateAcl)(acl.subject, acl) for acl in acls]
    await _one_after_another(client, address, changes)


async def delete_policy(client: Client, address: str, subject: str, policy_type: str, resource: str) -> None:
    """One entry."""
    await _ask(client, address, DeleteAcl(subject, policy_type, resource))


async def copy_users(client: Client, origin: str, target: str, names: Collection[str]) -> list[str]:
    """Those that were copied, with passwords, which nobody gets to see. `origin`, `target`: "host:port"; no `names`: all."""
    chosen = [user for user in await users_at(client, origin) if not names or user.username in names]
    await save_users(client, target, chosen)
    return [user.username for user in chosen]


async def copy_acls(client: Client, origin: str, target: str, subjects: Collection[str]) -> list[str]:
    """As `copy_users`."""
    chosen = [acl for acl in await acls_at(client, origin) if not subjects or acl.subject in subjects]
    await save_acls(client, target, chosen)
    return [acl.subject for acl in chosen]


async def quotas(
    client: Client, cluster: str, broker: str, part: str = "", silent: Silent | None = None
) -> dict[str, list[QuotaRow]]:
    """By address: those with `part` in their subjects."""
    answers = await _at(client, cluster, broker, ListQuotas(part), silent)
    return {at: cast(QuotaRows, each).quotas for at, each in answers.items()}


async def _at(client: Client, cluster: str, broker: str, request: Request, silent: Silent | None) -> dict[str, Answer]:
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    return await of_each(addresses, partial(_ask, client, request=request), silent)


async def _one_after_another(client: Client, address: str, changes: Sequence[Request]) -> None:
    """Ends at the first one that fails, which says how many were made."""
    for done, change in enumerate(changes):
        try:
            await _ask(client, address, change)
        except RmqError as error:
            about = f"; {done} of {len(changes)} are done" if len(changes) > 1 else ""
            raise done_in_part(error, (), done, about) from error


async def _ask(client: Client, address: str, request: Request) -> Answer:
    return await client.session.connections.request(address, request)


__all__ = [
    "AclInfo", "Policy", "PolicyEntry", "UserInfo", "acls", "acls_at", "change", "copy_acls", "copy_users", "delete_policy",
    "delete_user", "quotas", "save_acls", "save_users", "users", "users_at",
]  # fmt: skip
