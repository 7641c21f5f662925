"""`rmq admin` for users, policies and quotas, with mqadmin's names and letters. Passwords come from files or a prompt."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import click

from rmq.client import Client
from rmq.client.admin import absent, access as ask
from rmq.client.admin.calls import Silent, broker_addresses
from rmq.commands.shared import asking, options, output
from rmq.errors import InvalidArgument
from rmq.net.commands import Request
from rmq.net.commands.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    Policy,
    PolicyEntry,
    UpdateAcl,
    UpdateUser,
    UserInfo,
)
from rmq.net.commands.quotas import DeleteQuota, QuotaRow, SetQuota
from rmq.secretfiles import read_lines

F = TypeVar("F", bound=Callable[..., Any])
Lacking = Callable[[Client, list[str]], Awaitable[set[str]]]
_USER_COLUMNS = {"address": "Broker", "name": "UserName", "type": "UserType", "status": "UserStatus"}
_ACL_COLUMNS = {
    "address": "Broker",
    "subject": "Subject",
    "policy": "PolicyType",
    "resource": "Resource",
    "actions": "Actions",
    "sources": "SourceIp",
    "decision": "Decision",
}


def _where(function: F) -> F:
    """-n, and -c or -b."""
    return options.namesrv(options.place(options.timeout(function)))


async def _nothing(_client: Client, _addresses: list[str]) -> set[str]:
    return set()


def _change(
    namesrv: str, cluster: str, broker: str, timeout_s: float, request: Request, what: str, absent_at: Lacking = _nothing
) -> None:
    """`absent_at`: of a deletion, those of the brokers that have nothing to delete."""
    options.check_place(cluster, broker)

    async def work(client: Client) -> tuple[list[str], set[str]]:
        lacking = await absent_at(client, await broker_addresses(client, cluster=cluster, broker=broker))
        return await ask.change(client, cluster, broker, request), lacking

    addresses, lacking = asking.run(namesrv, timeout_s, work)
    for address in addresses:
        click.echo(f"{what} to {address} success{' (it was not there)' if address in lacking else ''}.")


_user = click.option("-u", "--username", required=True, metavar="NAME")
_type = click.option("-t", "--type", "kind", type=click.Choice(["Super", "Normal"], case_sensitive=False))
_file = click.option(
    "-p", "--password-file", metavar="FILE", help="File of mode 0600 with the password; without it the command prompts."
)


@click.command("createUser")
@_where
@_user
@_type
@_file
def create_user(namesrv: str, cluster: str, broker: str, timeout_s: float, username: str, kind: str, password_file: str) -> None:
    """Make a user. A Normal user may do what policies allow, a Super user everything."""
    if password_file:
        password = read_lines(password_file)[0]
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    request = CreateUser(username, UserInfo(username, password, kind or "Normal"))
    _change(namesrv, cluster, broker, timeout_s, request, "create user")


@click.command("updateUser")
@_where
@_user
@_type
@_file
@click.option("-s", "--status", type=click.Choice(["enable", "disable"]))
def update_user(
    namesrv: str,
    cluster: str,
    broker: str,
    timeout_s: float,
    username: str,
    kind: str | None,
    password_file: str | None,
    status: str | None,
) -> None:
    """Change a user's password, type, or whether it may log in."""
    if not (kind or password_file or status):
        raise click.UsageError("give one of -p, -t and -s")
    password = read_lines(password_file)[0] if password_file else ""
    request = UpdateUser(username, UserInfo(username, password, kind or "", status or ""))
    _change(namesrv, cluster, broker, timeout_s, request, "update user")


@click.command("deleteUser")
@_where
@_user
def delete_user(namesrv: str, cluster: str, broker: str, timeout_s: float, username: str) -> None:
    """Delete a user and its policies."""
    _change(namesrv, cluster, broker, timeout_s, DeleteUser(username), "delete user", lambda c, at: absent.user(c, username, at))


@click.command("getUser")
@_where
@_user
@options.output
def get_user(namesrv: str, cluster: str, broker: str, timeout_s: float, username: str, form: str) -> int:
    """Show a user. Passwords are never shown."""
    return _show_users(namesrv, timeout_s, form, partial(ask.users, cluster=cluster, broker=broker, name=username))


@click.command("listUser")
@_where
@click.option("-f", "--filter", "part", default="", metavar="TEXT", help="Part of the name.")
@options.output
def list_users(namesrv: str, cluster: str, broker: str, timeout_s: float, part: str, form: str) -> int:
    """Show all users."""
    return _show_users(namesrv, timeout_s, form, partial(ask.users, cluster=cluster, broker=broker, part=part))


def _show_users(namesrv: str, timeout_s: float, form: str, work: Callable[..., Any]) -> int:
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, partial(work, silent=silent))
    rows = [(address, user.username, user.user_type, user.user_status) for address, users in found.items() for user in users]
    output.show(output.Table(_USER_COLUMNS, rows), form)
    return asking.incomplete(silent)


_subject = click.option("-s", "--subject", required=True, metavar="User:NAME")
_entry = [
    click.option("-r", "--resources", required=True, metavar="RESOURCE,...", help="Topic:a,Topic:b*,Group:*,Cluster:*,*"),
    click.option("-a", "--actions", required=True, metavar="ACTION,...", help="Pub,Sub,Create,Update,Delete,Get,List,All"),
    click.option("-d", "--decision", required=True, type=click.Choice(["Allow", "Deny"], case_sensitive=False)),
    click.option("-i", "--source-ips", default="", metavar="IP,...", help="Addresses and networks; none: from anywhere."),
]


def _policy(function: F) -> F:
    for option in reversed(_entry):
        function = option(function)
    return _where(_subject(function))


def _acl(subject: str, resources: str, actions: str, decision: str, source_ips: str) -> AclInfo:
    does, comes_from = _parts(actions), _parts(source_ips)
    return AclInfo(subject, [Policy("Custom", [PolicyEntry(one, does, comes_from, decision) for one in _parts(resources)])])


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@click.command("createAcl")
@_policy
def create_acl(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, **entry: str) -> None:
    """Add a policy: what a user may do with which topics, groups and clusters, and from where."""
    _change(namesrv, cluster, broker, timeout_s, CreateAcl(subject, _acl(subject, **entry)), "create acl")


@click.command("updateAcl")
@_policy
def update_acl(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, **entry: str) -> None:
    """Change a policy. An entry replaces the one of the same resource."""
    _change(namesrv, cluster, broker, timeout_s, UpdateAcl(subject, _acl(subject, **entry)), "update acl")


@click.command("deleteAcl")
@_where
@_subject
@click.option("-r", "--resource", default="", metavar="RESOURCE", help="Only the entry of this resource.")
def delete_acl(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, resource: str) -> None:
    """Delete a user's policy, or its entry for one resource."""
    request = DeleteAcl(subject, "", resource)
    _change(namesrv, cluster, broker, timeout_s, request, "delete acl", lambda c, at: absent.policy(c, subject, resource, at))


@click.command("getAcl")
@_where
@_subject
@options.output
def get_acl(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, form: str) -> int:
    """Show the policy of a user."""
    return _show_acls(namesrv, timeout_s, form, partial(ask.acls, cluster=cluster, broker=broker, subject=subject))


@click.command("listAcl")
@_where
@click.option("-s", "--subject", default="", metavar="TEXT", help="Part of the subject.")
@click.option("-r", "--resource", default="", metavar="TEXT", help="Part of the resource.")
@options.output
def list_acls(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, resource: str, form: str) -> int:
    """Show all policies."""
    work = partial(ask.acls, cluster=cluster, broker=broker, subject=subject, resource=resource, listed=True)
    return _show_acls(namesrv, timeout_s, form, work)


def _show_acls(namesrv: str, timeout_s: float, form: str, work: Callable[..., Any]) -> int:
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, partial(work, silent=silent))
    rows = [
        (address, acl.subject, policy.policy_type, one.resource, ",".join(one.actions), ",".join(one.source_ips), one.decision)
        for address, acls in found.items()
        for acl in acls
        for policy in acl.policies
        for one in policy.entries
    ]
    output.show(output.Table(_ACL_COLUMNS, rows), form)
    return asking.incomplete(silent)


_from = click.option("-f", "--from", "origin", required=True, metavar="HOST:PORT", help="Broker to copy from.")
_to = click.option("-t", "--to", "target", required=True, metavar="HOST:PORT", help="Broker to copy to.")


@click.command("copyUser")
@options.namesrv
@options.timeout
@_from
@_to
@click.option("-u", "--usernames", default="", metavar="NAME,...", help="Only these.")
def copy_user(namesrv: str, timeout_s: float, origin: str, target: str, usernames: str) -> None:
    """Copy users with their passwords to another broker. Needs a super user on both."""
    _copied(asking.run(namesrv, timeout_s, lambda client: ask.copy_users(client, origin, target, _parts(usernames))), target)


@click.command("copyAcl")
@options.namesrv
@options.timeout
@_from
@_to
@click.option("-s", "--subjects", default="", metavar="User:NAME,...", help="Only these.")
def copy_acl(namesrv: str, timeout_s: float, origin: str, target: str, subjects: str) -> None:
    """Copy policies to another broker. Their users must exist there."""
    _copied(asking.run(namesrv, timeout_s, lambda client: ask.copy_acls(client, origin, target, _parts(subjects))), target)


def _copied(names: list[str], target: str) -> None:
    if not names:
        raise InvalidArgument("nothing was copied: no such names there; listUser and listAcl show them")
    for name in names:
        click.echo(f"copied {name} to {target}.")


_quota_subject = click.option("-s", "--subject", required=True, metavar="User:NAME|Client:ID|Topic:NAME|KIND:*")
_limits = [
    ("--bytes-in", "Bytes sent per second."),
    ("--bytes-out", "Bytes received per second."),
    ("--messages-in", "Messages sent per second."),
    ("--messages-out", "Messages received per second."),
    ("--connections", "Connections to each broker."),
    ("--topics", "Topics that it may make."),
    ("--groups", "Consumer groups that it may make."),
]


def _quota(function: F) -> F:
    for name, about in reversed(_limits):
        function = click.option(
            name, type=click.IntRange(min=0), default=0, metavar="NUMBER", help=f"{about}  [default: no limit]"
        )(function)
    return _where(_quota_subject(function))


@click.command("setQuota")
@_quota
def set_quota(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, **limits: int) -> None:
    """Set the quota of a user, a client or a topic. KIND:* is for each one that has no quota of its own."""
    _change(namesrv, cluster, broker, timeout_s, SetQuota(QuotaRow(subject, **limits)), "set quota")


@click.command("deleteQuota")
@_where
@_quota_subject
def delete_quota(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str) -> None:
    """Delete a quota. Then the quota KIND:* counts, if there is one."""
    _change(namesrv, cluster, broker, timeout_s, DeleteQuota(subject), "delete quota", lambda c, at: absent.quota(c, subject, at))


@click.command("listQuota")
@_where
@click.option("-s", "--subject", default="", metavar="TEXT", help="Part of the subject.")
@options.output
def list_quotas(namesrv: str, cluster: str, broker: str, timeout_s: float, subject: str, form: str) -> int:
    """Show all quotas; 0 is no limit."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: ask.quotas(client, cluster, broker, subject, silent))
    columns = {"address": "Broker", "subject": "Subject"} | {name: name for name in QuotaRow._fields[1:]}
    output.show(output.Table(columns, [(address, *row) for address, rows in found.items() for row in rows]), form)
    return asking.incomplete(silent)


COMMANDS = (
    create_user, update_user, delete_user, get_user, list_users, copy_user, create_acl, update_acl, delete_acl, get_acl,
    list_acls, copy_acl, set_quota, delete_quota, list_quotas,
)  # fmt: skip
