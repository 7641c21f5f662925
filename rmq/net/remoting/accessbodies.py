"""JSON bodies of requests about users and policies, and of their answers [UserInfo, AclInfo]. Pure."""

from collections.abc import Callable
from typing import Any

import orjson

from rmq.net.commands.access import (
    AclInfo,
    AclInfos,
    CreateAcl,
    CreateUser,
    Policy,
    PolicyEntry,
    UpdateAcl,
    UpdateUser,
    UserInfo,
    UserInfos,
)
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import Json, get, load, texts


def _user(body: bytes, what: str) -> UserInfo:
    source = load(body, what)
    names = ("username", "password", "userType", "userStatus")
    return UserInfo(*(get(source, name, "") for name in names))


def _acl(body: bytes, what: str) -> AclInfo:
    source = load(body, what)
    policies = [
        Policy(get(policy, "policyType", "") or "Custom", [_entry(entry) for entry in get(policy, "entries", [])])
        for policy in get(source, "policies", [])
    ]
    return AclInfo(get(source, "subject", ""), policies)


def _entry(source: Any) -> PolicyEntry:
    return PolicyEntry(
        get(source, "resource", ""), texts(source, "actions"), texts(source, "sourceIps"), get(source, "decision", "")
    )


def _user_json(user: UserInfo) -> Json:
    names = ("username", "password", "userType", "userStatus")
    return dict(zip(names, user, strict=True))


def _acl_json(acl: AclInfo) -> Json:
    return {
        "policies": [
            {
                "entries": [
                    {"actions": one.actions, "decision": one.decision, "resource": one.resource, "sourceIps": one.source_ips}
                    for one in policy.entries
                ],
                "policyType": policy.policy_type,
            }
            for policy in acl.policies
        ],
        "subject": acl.subject,
    }


ACCESS_READERS: dict[type[Any], Callable[[Ext, bytes], Any]] = {
    CreateUser: lambda ext, body: CreateUser(ext.get("username", ""), _user(body, "AUTH_CREATE_USER")),
    UpdateUser: lambda ext, body: UpdateUser(ext.get("username", ""), _user(body, "AUTH_UPDATE_USER")),
    CreateAcl: lambda ext, body: CreateAcl(ext.get("subject", ""), _acl(body, "AUTH_CREATE_ACL")),
    UpdateAcl: lambda ext, body: UpdateAcl(ext.get("subject", ""), _acl(body, "AUTH_UPDATE_ACL")),
}

ACCESS_WRITERS: dict[type[Any], Callable[[Any, bool], bytes]] = {
    UserInfo: lambda answer, _quoted: orjson.dumps(_user_json(answer)),
    UserInfos: lambda answer, _quoted: orjson.dumps([_user_json(user) for user in answer.users]),
    AclInfo: lambda answer, _quoted: orjson.dumps(_acl_json(answer)),
    AclInfos: lambda answer, _quoted: orjson.dumps([_acl_json(acl) for acl in answer.acls]),
}
