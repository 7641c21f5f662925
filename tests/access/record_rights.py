"""Asks a running RocketMQ 5.x broker which rights each request needs, and writes them down: tests/data/rights.json.

    python -m tests.access.record_rights HOST:PORT NAME SECRET > tests/data/rights.json

As `record_policies`. A user that may do everything is denied one action on all topics (groups, clusters); the requests that are
refused then need it. A request that needs nothing is permitted to everybody who can log in.
"""

import json
import sys

from tests.access.record_policies import SECRET, Asker, entry

USER = "probe-rights"
TOPIC, GROUP = "rmq_probe_rights", "rmq_probe_rights_group"
_FIELDS = f"""
topic={TOPIC} b={TOPIC} originTopic={TOPIC} consumerGroup={GROUP} group={GROUP} groupName={GROUP} a=p c=TBW102 d=1 e=0 f=0 g=1
h=0 queueId=0 producerGroup=p clientID=c clientId=c key=k maxNum=1 beginTimestamp=0 endTimestamp=1 offset=0 queueOffset=0
commitOffset=0 maxMsgNums=1 sysFlag=0 suspendTimeoutMillis=0 subVersion=0 timestamp=0 msgId=0 tranStateTableOffset=0
commitLogOffset=0 commitOrRollback=0 delayLevel=0 recallHandle=x defaultTopic=TBW102 readQueueNums=1 writeQueueNums=1 perm=6
topicFilterType=SINGLE_TAG order=false invisibleTime=1000 pollTime=0 bornTime=0 initMode=0 extraInfo=0 isForce=true
username=nobody subject=User:nobody
"""
EXT = dict(field.split("=", 1) for field in _FIELDS.split())
QUEUES = {"consumerGroup": GROUP, "clientId": "c", "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": 0}]}
CONSUMER = {
    "groupName": GROUP,
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}],
}
BODIES: dict[int, object] = {
    34: {"clientID": "c", "producerDataSet": [], "consumerDataSet": [CONSUMER]},
    41: QUEUES,
    42: QUEUES,
    200: {"groupName": GROUP},
    400: {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING"},
    401: {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL", "popShareQueueNum": 0},
    3001: {"username": "nobody", "password": "x", "userType": "Normal"},
    3002: {"username": "nobody", "password": "x", "userType": "Normal"},
    3006: {"subject": "User:nobody", "policies": []},
    3007: {"subject": "User:nobody", "policies": []},
}
_CODES = """
310 10 320 37 370 11 361 14 15 41 36 200050 200051 200053 200052 200054 400 42 30 31 29 32 12 33 34 35 38 21 201 28 351
202 300 352 208 200055 203 323 401 222 329 306 907 1007 3001 3002 3003 3004 3005 3006 3007 3008 3009 3010 17 200 207 215
"""
CODES = [int(code) for code in _CODES.split()]
KINDS, ACTIONS = ("Topic", "Group", "Cluster"), ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


def record(address: str, name: str, secret: str) -> dict[str, list[str]]:
    """Rights as "Topic:Pub" by request code."""
    root = Asker(address, name, secret)
    root.ask(3003, {"username": USER})
    user = {"username": USER, "password": SECRET, "userType": "Normal"}
    assert root.ask(3001, {"username": USER}, json.dumps(user).encode())[0] == 0
    needed: dict[str, list[str]] = {str(code): [] for code in CODES}
    for kind in KINDS:
        for action in ACTIONS:
            root.ask(3008, {"subject": f"User:{USER}"})
            entries = [entry("*", "All"), entry(f"{kind}:*", action, "Deny")]
            acl = {"subject": f"User:{USER}", "policies": [{"policyType": "Custom", "entries": entries}]}
            code, remark = root.ask(3006, {"subject": f"User:{USER}"}, json.dumps(acl).encode())
            assert code == 0, remark
            asker = Asker(address, USER, SECRET, timeout_s=1)
            for asked in CODES:
                body = json.dumps(BODIES[asked]).encode() if asked in BODIES else b"x" if asked in (310, 10) else b""
                try:
                    _, remark = asker.ask(asked, EXT, body)
                except TimeoutError:  # it waits for messages: it was permitted
                    asker, remark = Asker(address, USER, SECRET, timeout_s=1), ""
                if "has no permission" in remark:
                    needed[str(asked)].append(f"{kind}:{action}")
    return needed


if __name__ == "__main__":
    print(json.dumps(record(*sys.argv[1:4]), indent=0))
