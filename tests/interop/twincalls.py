"""The random calls that `tests.interop.twinclients` makes."""

from random import Random
from typing import Any, Final

from tests.interop.twinseen import Op

QUIET_MS: Final = 1500  # nothing more comes: what a consumer fetches is there at once
STATES: Final = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
_FAR: Final = 1 << 42  # a time
_SEND: Final = "send(Message,MessageQueue)"
_FORBIDDEN: Final = "updateAndGetGroupReadForbidden(String,String,String,Boolean)"
_RESET: Final = "resetOffsetByTimestamp(String,String,long,boolean)"
_TOPIC: Final = "createAndUpdateTopicConfig(String,TopicConfig)"
_GROUP: Final = "createAndUpdateSubscriptionGroupConfig(String,SubscriptionGroupConfig)"


class Calls:
    """Of a seed, about topics and groups of its own. Topic A has two queues, B one; what comes later goes to D, and comes when
    the calls are over. P is one of priorities, C is compacted, and questions go to Q.

    Where RocketMQ goes wrong, or ours refuses on purpose, nothing is asked."""

    def __init__(self, seed: int) -> None:
        self.chance, self._seed = Random(seed), seed
        self.a, self.b, self.d, self.p, self.c, self.q = (f"{name}{seed}" for name in "ABDPCQ")
        self.concurrent, self.orderly, self.popping, self.lite, self.assigned = self.groups = [
            f"{name}{seed}" for name in ("concurrent", "orderly", "popping", "lite", "assigned")
        ]
        self.ends: dict[tuple[str, int], int] = {}  # of queues: how many messages they have
        self.sent: list[tuple[int, str]] = []  # by the number of the call: to which topic
        self.viewed: list[int] = []  # the same, of messages that were looked at
        self._count = 0

    def one(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def prepared(self) -> list[Op]:
        kinds = {self.p: {"+message.type": "PRIORITY"}, self.c: {"+cleanup.policy": "COMPACTION"}}
        found = []
        for name, queues in ((self.a, 2), (self.b, 1), (self.d, 1), (self.p, 4), (self.c, 1), (self.q, 1)):
            config = {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
            found.append(_admin(_TOPIC, "$broker", {**config, "attributes": kinds.get(name, {})}))
        for name in self.groups:
            config = {"groupName": name, "retryMaxTimes": self.one(16, 1, 2), "retryQueueNums": 1}
            found.append(_admin(_GROUP, "$broker", config))
        mode = "setMessageRequestMode(String,String,String,MessageRequestMode,int,long)"
        found.append(_admin(mode, "$broker", self.b, self.popping, "POP", 8, 3000))
        filtered = self.one({"tags": "*"}, {"tags": "red || blue"}, {"sql": "colour = 'blue' OR number > 3"})
        first = {"from": "CONSUME_FROM_FIRST_OFFSET"}
        found.append(Op(self.lite, "consumer", ({"group": self.lite, "topic": self.a, **first, **filtered},)))
        return [*found, Op(self.assigned, "consumer", ({"group": self.assigned, **first},))]

    # --- sends

    def message(self, topic: str) -> dict[str, Any]:
        self._count += 1
        text = {"body": f"m{self._count}"}
        body = self.one({"body": ""}, text, text, {"body": "long " * 2000}, {"noise": 6000})
        message = {"topic": topic, **body, "flag": self.one(0, 7), "tags": self.one("red", "blue", "green", "", "a||b")}
        message["keys"] = self.one([], ["k"], ["k", "l"], ["two words", f"u{self._count}"])
        odd = self.one({}, {"empty ": " "}, {"ünï": "çödé ☃"}, {"number": str(self._count)}, {"quoted": '"\\,:{}'})
        plan = self.one("", "", "later", "later later", "throw", "null", "later:-1", "later:2", "later later later", "ok")
        own = {"colour": self.one("red", "blue"), **odd, **({"plan": plan} if plan else {}), "who": f"m{self._count}"}
        reserved = {self.one("WAIT", "DELAY", "KEYS", "UNIQ_KEY"): "1"} if self.chance.random() < 0.03 else {}
        return {**message, "properties": {**own, **reserved}}

    def send(self) -> Op:
        where = self.place()
        message = self.message(where[0])
        many = [self.message(where[0]) for _ in range(self.chance.randrange(1, 4))]
        call, *args = self.one(
            (_SEND, message, where),
            (_SEND, message, where),
            ("send(Message,MessageQueueSelector,Object)", message, None, self.one("x", "y", "zz")),
            ("send(Message,MessageQueue,SendCallback)", message, where, None),
            ("send(Collection,MessageQueue)", many, where),
            ("send(Collection,MessageQueue,SendCallback)", many, where, None),
            ("sendOneway(Message,MessageQueue)", message, where),
            ("send(Message)", self.message(self.b)),
            ("send(Collection)", [self.message(self.b)] * 2),
            (_SEND, {**message, **self._wrong()}, where),
            ("send(Message)", {**message, "topic": self.p, "priority": self.one(0, 1, 3, 9)}),
            (_SEND, {**message, "topic": self.c}, [self.c, 0]),
            ("send(Collection,MessageQueue)", [*many, self.message(self.one(where[0], self.b))], where),
            ("send(Collection,MessageQueue)", self.one([*many, {**message, "level": 1}], []), where),
        )
        return Op("producer", call, tuple(args))

    def _wrong(self) -> dict[str, Any]:
        """Refused, or nearly."""
        return dict(self.one(
            {"topic": f"absent{self._seed}"}, {"topic": "a b"}, {"topic": ""}, {"topic": "TBW102"}, {"topic": "t" * 127},
            {"topic": "t" * 128}, {"topic": "%RETRY%none"}, {"topic": "SCHEDULE_TOPIC_XXXX"}, {"level": 99, "topic": self.d},
            {"noise": (4 << 20) + 1}, {"properties": {"p": "x" * 32_000}}, {"properties": {"p": "x" * 40_000}},
            {"deliverInMs": 10**12}, {"level": -1}, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        ))  # fmt: skip

    def later(self) -> Op:
        message = {**self.message(self.d), "flag": 0}
        message["properties"]["checks"] = " ".join(self.one(*STATES) for _ in range(3)) + " COMMIT_MESSAGE"
        if self.one(True, False):
            message["properties"]["plan"] = "ok"
            return Op("transacting", "sendMessageInTransaction(Message,Object)", (message, self.one(*STATES)))
        when = self.one({"level": 1}, {"delayMs": 1500}, {"deliverInMs": -5}, {"deliverInMs": 1200}, {"delayMs": 5000})
        return Op("producer", "send(Message)", ({**message, **when},))

    def recall(self, number: int) -> Op:
        handle = self.one({"of": number, "take": "RecallHandle"}, "wrong", "")
        return Op("producer", "recallMessage(String,String)", (self.one(self.d, self.d, self.a), handle))

    # --- pulls

    def place(self) -> list[Any]:
        return list(self.one((self.a, 0), (self.a, 1), (self.b, 0)))

    def _when(self) -> Any:
        """A time, best that of a message."""
        return self.one(0, _FAR, *([{"of": self.chance.choice(self.sent)[0], "take": "before"}] * 2 if self.sent else []))

    def pull(self) -> Op:
        if self.chance.random() < 0.3:
            who, place, own = self.lite, [self.a, self.one(0, 1)], [("assignment()",)]
        else:  # a pause leaves a pull on its way: with tags that may bring a message later
            who, place = self.assigned, self.place()
            own = [
                ("pause(Collection)", [place]),
                ("resume(Collection)", [place]),
                ("assign(Collection)", [place]),
                ("assign(Collection)", [[self.a, 0], [self.a, 1]]),
            ]
        end = self.ends.get((place[0], place[1]), 0)
        call, *args = self.one(
            ("seek(MessageQueue,long)", place, self.one(0, 1, 3, 1000, -1)),
            ("seekToBegin(MessageQueue)", place),
            ("seekToEnd(MessageQueue)", place),
            ("commit()",),
            ("commitSync()",),
            ("commit(Map,boolean)", [[place, self.chance.randrange(end + 1)]], True),
            ("committed(MessageQueue)", place),
            ("offsetForTimestamp(MessageQueue,Long)", place, self._when()),
            ("fetchMessageQueues(String)", self.one(place[0], f"absent{self._seed}", "%RETRY%none")),
            ("poll", QUIET_MS),
            ("poll", QUIET_MS),
            *own,
        )
        return Op(who, call, tuple(args))

    # --- what administrators look at, and change

    def look(self) -> Op:
        place, group, topic = self.place(), self.one(*self.groups, "none"), self.one(self.a, self.b, "none")
        word = self.one("k", "l", "two", "two words", "none")
        choices: list[tuple[Any, ...]] = [
            ("searchOffset(MessageQueue,long)", place, self._when()),
            ("minOffset(MessageQueue)", place),
            ("maxOffset(MessageQueue)", self.one(place, ["none", 0], [self.a, 7])),
            ("queryMessage(String,String,int,long,long)", topic, word, self.one(1, 64), 0, _FAR),
            ("examineTopicStats(String)", topic),
            ("examineConsumeStats(String,String)", group, topic),
            ("examineTopicRouteInfo(String)", self.one(topic, f"%RETRY%{group}")),
            ("examineTopicConfig(String,String)", "$broker", topic),
            ("queryTopicConsumeByWho(String)", topic),
            ("queryConsumeTimeSpan(String,String)", topic, group),
            ("getConsumeStatus(String,String,String)", topic, self.one(*self.groups[:4]), ""),
            ("getTopicClusterList(String)", topic),
            ("querySubscription(String,String)", self.one(self.concurrent, self.orderly, self.lite), topic),
            ("examineConsumerConnectionInfo(String)", group),
            ("examineProducerConnectionInfo(String,String)", self.one("producers", "none"), topic),
            ("createTopic(String,String,int,Map)", "none", f"made{self._seed}", 1, []),
            # RocketMQ's tool wants a retry topic of a group that pops, also where nothing failed
            *([] if group == self.popping else [("examineConsumeStats(String)", group)]),
            *self._message_of(group),
        ]
        call, *args = self.chance.choice(choices)
        return Op("admin", call, tuple(args))

    def _message_of(self, group: str) -> list[tuple[Any, ...]]:
        """About a message that was sent, and its queue."""
        if not self.sent:
            return []
        number, topic = self.chance.choice(self.sent)
        ids = [{"of": number, "take": take} for take in ("MsgId", "OffsetMsgId")]
        queue = next(place for place in self.ends if place[0] == topic)
        return [
            ("queryConsumeQueue(String,String,int,long,int,String)", "$broker", *queue, 0, 32, group),
            ("viewMessage(String,String)", topic, self.one(*ids, "none")),
            ("viewMessage(String,String)", topic, self.one(*ids)),
            ("queryMessage(String,String,String)", "DefaultCluster", topic, self.one(*ids)),
            *[("messageTrackDetail(MessageExt)", {"of": one, "take": "itself"}) for one in self.viewed[-1:]],
        ]

    def change(self) -> Op:
        """At RocketMQ a group that was reset stays so until its consumer comes, here until a tool says something else."""
        group, topic, place = self.one(self.concurrent, self.popping), self.one(self.a, self.b), self.place()
        last = max(self.ends.get((place[0], place[1]), 0) - 1, 0)
        call, *args = self.one(
            (_RESET, topic, group, self.one(self._when(), -1), True),
            ("resetOffsetNew(String,String,long)", group, topic, self.one(self._when(), -1)),
            ("resetOffsetByQueueId(String,String,String,int,long)", "$broker", group, *place, 0),
            ("updateConsumeOffset(String,String,MessageQueue,long)", "$broker", self.orderly, place, last),
            ("cloneGroupOffset(String,String,String,boolean)", self.assigned, self.orderly, topic, self.one(True, False)),
            (_FORBIDDEN, "$broker", group, topic, self.one(True, False, None)),
            ("createTopic(String,String,int,Map)", "DefaultCluster", f"made{self._seed}", self.one(1, 3), []),
            ("createTopic(String,String,int,Map)", "DefaultCluster", self.one("a b", "t" * 128, "TBW102"), 1, []),
            (_TOPIC, "$broker", self._odd_topic()),
            (_GROUP, "$broker", self._odd_group()),
        )
        return Op("admin", call, tuple(args))

    def _odd_topic(self) -> dict[str, Any]:
        once = {"+cleanup.policy": "COMPACTION"}, {"+queue.type": "SimpleCQ"}
        kinds = {"+message.type": "FIFO"}, {"+none": "1"}, {"message.type": "FIFO"}, {"+message.type": "WRONG"}
        attributes = self.one({}, *once, *kinds)
        name = f"odd{self._seed}" + (f"_{self._count}" if attributes in once else "")
        sizes = {"readQueueNums": 2, "writeQueueNums": 4}, {"readQueueNums": 3, "writeQueueNums": 1}
        more = self.one(*sizes, {"perm": 0}, {"perm": 9})
        return {"topicName": name, "perm": 6, **more, "attributes": attributes, "order": self.one(True, False)}

    def _odd_group(self) -> dict[str, Any]:
        more = self.one(
            {"retryMaxTimes": -1}, {"retryQueueNums": 0}, {"consumeEnable": False}, {"consumeMessageOrderly": True},
            {"groupName": "a b"}, {"groupName": ""}, {"groupName": "g" * 110 + str(self._seed)}, {"groupName": "g" * 256},
            {"brokerId": 3}, {"consumeTimeoutMinute": 1, "consumeBroadcastEnable": False},
            {"attributes": {"+priority.factor": "50"}}, {"attributes": {"+wrong": "1"}},
        )  # fmt: skip
        return {"groupName": f"odd{self._seed}", **more}

    # --- consumers

    def readable(self) -> list[Op]:
        """What `change` forbade."""
        return [_admin(_FORBIDDEN, "$broker", group, topic, True) for group in self.groups[:3] for topic in (self.a, self.b)]

    def listeners(self) -> list[dict[str, Any]]:
        """Push consumers of all kinds. `again`: a tool sets the group back while it runs."""
        some = self.one({"tags": "*"}, {"tags": "red"}, {"sql": "colour = 'red' AND number IS NULL"})
        start = self.one("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP")
        common = {"from": "CONSUME_FROM_FIRST_OFFSET", "model": "CLUSTERING", "times": self.one(-1, 1, 2), "tags": "*"}
        wanted = [
            {"group": self.concurrent, "topic": self.one(self.a, self.b), **some, "again": self.one(True, False)},
            {"group": self.orderly, "topic": self.a, "orderly": True, "again": self.one(True, False)},
            {"group": self.popping, "topic": self.b, "pop": True},
            {"group": f"all{self._seed}", "topic": self.b, "model": "BROADCASTING", "times": -1},
            {"group": f"fresh{self._seed}", "topic": self.a, "from": start},
            {"group": f"later{self._seed}", "topic": self.d},
        ]
        return [{**common, **each} for each in wanted]

    def answering(self) -> dict[str, Any]:
        first = {"from": "CONSUME_FROM_FIRST_OFFSET", "model": "CLUSTERING", "times": 1, "tags": "*"}
        return {"group": f"answering{self._seed}", "topic": self.q, **first}

    def question(self, number: int) -> Op:
        properties = {"plan": self.one("reply", "reply", "ok"), "who": str(number)}
        message = {"topic": self.q, "body": f"q{number}", "properties": properties}
        return Op("producer", "request(Message,long)", (message, 3000))

    def deleted(self) -> list[Op]:
        found = [Op(name, "shutdown()", ()) for name in (self.lite, self.assigned)]
        for group in self.groups:
            found.append(_admin("deleteSubscriptionGroup(String,String,boolean)", "$broker", group, self.one(True, False)))
        return found + [_admin("deleteTopic(String,String)", topic, "DefaultCluster") for topic in (self.a, self.b)]


def _admin(call: str, *args: Any) -> Op:
    return Op("admin", call, args)
