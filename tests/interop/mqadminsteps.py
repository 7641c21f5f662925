"""What is asked of mqadmin 5.5.0: each of its 96 commands, with what it does, what it refuses, and nobody there.

The steps build on each other: what one made, the next ones show. A line begins with a sign:

    +  works         !  is refused, by the broker or by the tool itself
    x  nobody there  .  prepares the next steps; nothing is compared

`{n}` is the nameserver's address, `{b}` the broker's, `{f}` a folder, `{id}` and `{offset}` the ids of the first message,
`{client}` a member of group readers, `{traced}` the id of a message with a trace. A line that ends with `?? TEXT` is repeated
until TEXT is printed, one that ends with `!! TEXT` goes on until it is stopped, which it is as soon as TEXT is printed.
"""

from typing import Final, NamedTuple

FILES: Final = {
    "topics.json": '[{"topicName":"Listed","readQueueNums":2,"writeQueueNums":2,"perm":6,"topicFilterType":"SINGLE_TAG",'
    '"topicSysFlag":0,"order":false,"attributes":{}}]',
    "groups.json": '[{"groupName":"listed","retryMaxTimes":3}]',
    "broker.conf": "brokerName=broker-z\n",
}
"""Made in `{f}` before."""

_STEPS = """
. help
. options
. clusterList ?? broker-a
+ updateTopic -c DefaultCluster -t Orders -r 4 -w 4
+ updateTopic -b {b} -t Ordered -r 2 -w 2 -o true -a +message.type=FIFO
+ updateTopic -b {b} -t Quiet -r 1 -w 1 -p 4
! updateTopic -b {b} -t bad^name
! updateTopic -b {b} -t Orders -a +no.such=1
! updateTopic -b {b} -t SCHEDULE_TOPIC_XXXX
! updateTopic -c Nowhere -t Orders
x updateTopic -b {x} -t Orders
+ updateTopicList -b {b} -f {f}/topics.json
! updateTopicList -b {b} -f {f}/missing.json
x updateTopicList -b {x} -f {f}/topics.json
+ updateSubGroup -c DefaultCluster -g readers
+ updateSubGroup -b {b} -g slow -s true -m false -d false -q 2 -r 3 -i 0 -w 1 -a false
+ updateSubGroup -b {b} -g backing -p {{"type":"CUSTOMIZED","customizedRetryPolicy":{{"next":[1000,5000]}}}}
! updateSubGroup -b {b} -g bad^name
x updateSubGroup -b {x} -g readers
+ updateSubGroupList -b {b} -f {f}/groups.json
! updateSubGroupList -b {b} -f {f}/missing.json
x updateSubGroupList -b {x} -f {f}/groups.json
+ getConsumerConfig -g readers
+ getConsumerConfig -g slow
+ getConsumerConfig -g backing
+ getConsumerConfig -g listed
! getConsumerConfig -g missing
x getConsumerConfig -n {x} -g readers
+ sendMessage -t Orders -p hello -k key1 -c red -b broker-a -i 0
+ sendMessage -t Orders -p again -k key1 -c blue -b broker-a -i 1
+ sendMessage -t Orders -p third -k key2 -c red -b broker-a -i 0
! sendMessage -t Quiet -p hello
! sendMessage -t Orders -p hello -i 0
x sendMessage -n {x} -t Orders -p hello
+ checkMsgSendRT -t Listed -a 3 -s 16
! checkMsgSendRT -t Quiet -a 2 -s 16
x checkMsgSendRT -n {x} -t Listed -a 1
+ sendMsgStatus -b broker-a -s 16 -c 2
! sendMsgStatus -b broker-z -s 16 -c 1
x sendMsgStatus -n {x} -b broker-a -c 1
+ topicList
+ topicList -c
x topicList -n {x}
+ topicRoute -t Orders
+ topicRoute -t Orders -l
! topicRoute -t Missing
x topicRoute -n {x} -t Orders
+ topicStatus -t Orders
! topicStatus -t Missing
x topicStatus -n {x} -t Orders
+ topicClusterList -t Orders
! topicClusterList -t Missing
x topicClusterList -n {x} -t Orders
+ updateTopicPerm -b {b} -t Quiet -p 6
+ updateTopicPerm -c DefaultCluster -t Quiet -p 4
! updateTopicPerm -b {b} -t Missing -p 6
! updateTopicPerm -b {b} -t Quiet -p 9
x updateTopicPerm -n {x} -b {b} -t Quiet -p 6
+ updateOrderConf -t Ordered -m put -v broker-a:2
+ updateOrderConf -t Ordered -m get
+ updateOrderConf -t Ordered -m delete
! updateOrderConf -t Ordered -m get
! updateOrderConf -t Ordered -m put
x updateOrderConf -n {x} -t Ordered -m get
+ allocateMQ -t Orders -i 10.0.0.1,10.0.0.2
! allocateMQ -t Missing -i 10.0.0.1
x allocateMQ -n {x} -t Orders -i 10.0.0.1
+ queryMsgByKey -t Orders -k key1
+ queryMsgByKey -t Orders -k red -p T
! queryMsgByKey -t Orders -k missing
x queryMsgByKey -n {x} -t Orders -k key1
+ queryMsgByUniqueKey -t Orders -i {id}
+ queryMsgByUniqueKey -t Orders -i {id} -a
! queryMsgByUniqueKey -t Orders -i 7F00000100002A139A5500000000FFFF
x queryMsgByUniqueKey -n {x} -t Orders -i {id}
+ queryMsgByOffset -t Orders -b broker-a -i 0 -o 1
! queryMsgByOffset -t Orders -b broker-a -i 0 -o 99
! queryMsgByOffset -t Orders -b broker-a -i 99 -o 0
x queryMsgByOffset -n {x} -t Orders -b broker-a -i 0 -o 0
+ queryMsgById -t Orders -i {id}
+ queryMsgById -t Orders -i {offset}
! queryMsgById -t Orders -i 7F00000100002A9F00000000FFFFFFFF
x queryMsgById -n {x} -t Orders -i {id}
+ printMsg -t Orders -d true
+ printMsg -t Orders -d true -s red
! printMsg -t Missing
x printMsg -n {x} -t Orders
+ printMsgByQueue -t Orders -a broker-a -i 0 -p true -d true
+ printMsgByQueue -t Orders -a broker-a -i 0 -f true
! printMsgByQueue -t Orders -a broker-z -i 0 -p true
x printMsgByQueue -n {x} -t Orders -a broker-a -i 0 -p true
+ consumeMessage -t Orders -c 3
+ consumeMessage -t Orders -b broker-a -i 0 -o 1 -c 1
! consumeMessage -t Missing
! consumeMessage -t Orders -i 0
x consumeMessage -n {x} -t Orders
. member Orders readers
. seller Orders sellers
. commit
+ consumerProgress -g readers -t Orders ?? Consume Diff Total: 0
+ consumerProgress -g readers
+ consumerProgress
! consumerProgress -g missing
x consumerProgress -n {x} -g readers
+ consumerConnection -g readers
! consumerConnection -g missing
! consumerConnection -g slow
x consumerConnection -n {x} -g readers
+ consumerStatus -g readers ?? Rebalance OK
+ consumerStatus -g readers -i {client}
! consumerStatus -g missing
! consumerStatus -g readers -i nobody
x consumerStatus -n {x} -g readers
+ queryMsgById -t Orders -i {id}
+ queryMsgById -t Orders -i {id} -g readers -d {client}
! queryMsgById -t Orders -i {id} -g readers -d nobody
+ queryMsgByUniqueKey -t Orders -i {id} -g readers -d {client}
+ producerConnection -g sellers -t Orders
! producerConnection -g missing -t Orders
x producerConnection -n {x} -g sellers -t Orders
+ producer -b {b}
x producer -b {x}
. commit
+ topicList -c
+ brokerConsumeStats -b {b}
+ brokerConsumeStats -b {b} -l 1 -o true
x brokerConsumeStats -b {x}
+ statsAll -t Orders
+ statsAll -t Missing
x statsAll -n {x} -t Orders
+ setConsumeMode -b {b} -t Orders -g slow -m POP -q 2
+ setConsumeMode -c DefaultCluster -t Orders -g slow -m PULL
! setConsumeMode -b {b} -t Missing -g slow -m POP
! setConsumeMode -b {b} -t %RETRY%slow -g slow -m POP
x setConsumeMode -b {x} -t Orders -g slow -m POP
+ resetOffsetByTime -g slow -t Orders -s 0
+ resetOffsetByTime -g slow -t Orders -s now
+ resetOffsetByTime -g slow -t Orders -s 0 -b {b} -q 0 -o 1
! resetOffsetByTime -g slow -t Orders -s 0 -b {b} -q 0 -o 99
! resetOffsetByTime -g slow -t Missing -s 0
! resetOffsetByTime -g missing -t Orders -s 0
x resetOffsetByTime -n {x} -g slow -t Orders -s 0
+ skipAccumulatedMessage -g slow -t Orders
! skipAccumulatedMessage -g missing -t Orders
x skipAccumulatedMessage -n {x} -g slow -t Orders
+ cloneGroupOffset -s readers -d listed -t Orders
+ consumerProgress -g listed -t Orders
! cloneGroupOffset -s readers -d missing -t Orders
x cloneGroupOffset -n {x} -s readers -d listed -t Orders
. traced Listed
+ queryMsgTraceById -i {traced} ?? Pub
! queryMsgTraceById -i 7F00000100002A139A5500000000FFFF
x queryMsgTraceById -n {x} -i {traced}
+ clusterList
+ clusterList -m
+ clusterList -c DefaultCluster
! clusterList -c Nowhere
x clusterList -n {x}
+ brokerStatus -b {b}
+ brokerStatus -c DefaultCluster
x brokerStatus -b {x}
+ getBrokerConfig -b {b}
+ getBrokerConfig -c DefaultCluster
x getBrokerConfig -b {x}
+ updateBrokerConfig -b {b} -k fileReservedTime -v 48
+ updateBrokerConfig -c DefaultCluster -k sendMessageThreadPoolNums -v 4
! updateBrokerConfig -b {b} -k brokerConfigPath -v /tmp
! updateBrokerConfig -b {b} -k fileReservedTime -v soon
x updateBrokerConfig -b {x} -k fileReservedTime -v 48
+ clusterRT -a 2 -s 16 -i 60 !! broker-a
x clusterRT -n {x}
+ cleanExpiredCQ -b {b}
+ cleanExpiredCQ -c DefaultCluster
x cleanExpiredCQ -b {x}
+ deleteExpiredCommitLog -b {b}
x deleteExpiredCommitLog -b {x}
+ cleanUnusedTopic -b {b}
+ cleanUnusedTopic -c DefaultCluster
x cleanUnusedTopic -b {x}
+ haStatus -b {b}
+ haStatus -c DefaultCluster
x haStatus -b {x}
+ resetMasterFlushOffset -b {b} -o 0
x resetMasterFlushOffset -b {x} -o 0
+ setCommitLogReadAheadMode -b {b} -m 0
! setCommitLogReadAheadMode -b {b} -m 7
x setCommitLogReadAheadMode -b {x} -m 0
+ getColdDataFlowCtrInfo -b {b}
x getColdDataFlowCtrInfo -b {x}
+ updateColdDataFlowCtrGroupConfig -b {b} -g slow -v 1024
x updateColdDataFlowCtrGroupConfig -b {x} -g slow -v 1024
+ removeColdDataFlowCtrGroupConfig -b {b} -g slow
x removeColdDataFlowCtrGroupConfig -b {x} -g slow
! getBrokerEpoch -b broker-a
x getBrokerEpoch -n {x} -b broker-a
! addBroker -c {b} -b {f}/broker.conf
x addBroker -c {x} -b {f}/broker.conf
! removeBroker -c {b} -b DefaultCluster:broker-z:1
x removeBroker -c {x} -b DefaultCluster:broker-z:1
+ exportConfigs -c DefaultCluster -f {f}
x exportConfigs -n {x} -c DefaultCluster -f {f}
+ exportMetadata -b {b} -f {f}
+ exportMetadata -c DefaultCluster -f {f}
x exportMetadata -b {x} -f {f}
+ exportMetrics -c DefaultCluster -f {f}
x exportMetrics -n {x} -c DefaultCluster -f {f}
! exportMetadataInRocksDB -p {f}/nothing -t topics
! rocksDBConfigToJson -p {f}/nothing -t topics
! rocksDBConfigToJson -b {b} -t topics
x rocksDBConfigToJson -b {x} -t topics
! checkRocksdbCqWriteProgress -n {n} -c DefaultCluster -t Orders -cf 0
x checkRocksdbCqWriteProgress -n {x} -c DefaultCluster
! exportPopRecord -b {b} -d true
x exportPopRecord -b {x} -d true
+ switchTimerEngine -b {b} -e F
! switchTimerEngine -b {b} -e R
! switchTimerEngine -b {b} -e Q
x switchTimerEngine -b {x} -e F
+ queryCq -t Orders -q 0 -i 0 -c 2 -b {b}
+ queryCq -t Orders -q 0 -i 0 -c 2 -b {b} -g readers
! queryCq -t Orders -q 99 -i 0 -b {b}
! queryCq -t Missing -q 0 -i 0
x queryCq -b {x} -t Orders -q 0 -i 0
+ getNamesrvConfig
x getNamesrvConfig -n {x}
+ updateNamesrvConfig -k orderMessageEnable -v true
! updateNamesrvConfig -k kvConfigPath -v /tmp
x updateNamesrvConfig -n {x} -k orderMessageEnable -v true
+ updateKvConfig -s mine -k a -v b
x updateKvConfig -n {x} -s mine -k a -v b
+ deleteKvConfig -s mine -k a
+ deleteKvConfig -s mine -k a
x deleteKvConfig -n {x} -s mine -k a
+ wipeWritePerm -b broker-a
+ topicRoute -t Listed
+ addWritePerm -b broker-a
+ topicRoute -t Listed
! wipeWritePerm -b broker-z
! addWritePerm -b broker-z
x wipeWritePerm -n {x} -b broker-a
x addWritePerm -n {x} -b broker-a
+ createUser -b {b} -u alice -p secret1 -t Normal
+ createUser -c DefaultCluster -u root -p secret2 -t Super
! createUser -b {b} -u alice -p secret1 -t Super
x createUser -b {x} -u alice -p secret1
+ updateUser -b {b} -u alice -s disable
! updateUser -b {b} -u nobody -s disable
x updateUser -b {x} -u alice -s disable
+ getUser -b {b} -u alice
! getUser -b {b} -u nobody
x getUser -b {x} -u alice
+ listUser -b {b}
+ listUser -c DefaultCluster -f ali
x listUser -b {x}
+ createAcl -b {b} -s User:alice -r Topic:Orders,Group:readers -a Pub,Sub -d Allow -i 10.0.0.0/24
! createAcl -b {b} -s User:nobody -r Topic:Orders -a Pub -d Allow
! createAcl -b {b} -s User:alice -r Nothing:Orders -a Pub -d Allow
x createAcl -b {x} -s User:alice -r Topic:Orders -a Pub -d Allow
+ updateAcl -b {b} -s User:alice -r Topic:Orders -a Pub -d Deny
! updateAcl -b {b} -s User:nobody -r Topic:Orders -a Pub -d Deny
x updateAcl -b {x} -s User:alice -r Topic:Orders -a Pub -d Deny
+ getAcl -b {b} -s User:alice
! getAcl -b {b} -s User:nobody
x getAcl -b {x} -s User:alice
+ listAcl -b {b}
+ listAcl -b {b} -s alice -r Group
x listAcl -b {x}
+ copyUser -f {b} -t {b} -u alice
! copyUser -f {b} -t {b} -u nobody
x copyUser -f {x} -t {b} -u alice
+ copyAcl -f {b} -t {b} -s User:alice
! copyAcl -f {b} -t {b} -s User:nobody
x copyAcl -f {x} -t {b} -s User:alice
+ deleteAcl -b {b} -s User:alice -r Topic:Orders
! deleteAcl -b {b} -s User:nobody
+ listAcl -c DefaultCluster
x deleteAcl -b {x} -s User:alice
+ deleteUser -b {b} -u alice
+ deleteUser -b {b} -u alice
+ listUser -b {b}
x deleteUser -b {x} -u alice
! getControllerMetaData -a {b}
x getControllerMetaData -a {x}
! getControllerConfig -a {b}
x getControllerConfig -a {x}
! updateControllerConfig -a {b} -k a -v b
x updateControllerConfig -a {x} -k a -v b
! electMaster -a {b} -b 1 -bn broker-a -c DefaultCluster
x electMaster -a {x} -b 1 -bn broker-a -c DefaultCluster
! getSyncStateSet -a {b} -b broker-a
x getSyncStateSet -a {x} -b broker-a
! cleanBrokerMetadata -a {b} -bn broker-a -c DefaultCluster
x cleanBrokerMetadata -a {x} -bn broker-a -c DefaultCluster
! dumpCompactionLog -f {f}/missing
+ getBrokerLiteInfo -b {b}
x getBrokerLiteInfo -b {x}
! getParentTopicInfo -p Orders
x getParentTopicInfo -n {x} -p Orders
! getLiteTopicInfo -p Orders -l one
x getLiteTopicInfo -n {x} -p Orders -l one
! getLiteClientInfo -p Orders -g readers -c {client}
x getLiteClientInfo -n {x} -p Orders -g readers -c {client}
! getLiteGroupInfo -p Orders -g readers
x getLiteGroupInfo -n {x} -p Orders -g readers
! triggerLiteDispatch -p Orders -g readers
x triggerLiteDispatch -n {x} -p Orders -g readers
+ updateStaticTopic -t Fixed -qn 2 -b broker-a
+ remappingStaticTopic -t Fixed -b broker-a
! remappingStaticTopic -t Orders -b broker-a
x updateStaticTopic -n {x} -t Fixed -qn 2 -b broker-a
x remappingStaticTopic -n {x} -t Fixed -b broker-a
+ queryMsgById -t Orders -i {id} -s true
+ deleteSubGroup -b {b} -g slow -r true
+ deleteSubGroup -c DefaultCluster -g listed
+ deleteSubGroup -b {b} -g missing
x deleteSubGroup -b {x} -g slow
+ deleteTopic -c DefaultCluster -t Listed
+ deleteTopic -c DefaultCluster -t Missing
! deleteTopic -c DefaultCluster -t SCHEDULE_TOPIC_XXXX
! topicRoute -t Listed
x deleteTopic -n {x} -c DefaultCluster -t Listed
+ startMonitoring
"""


_COLD = "cold-data control is not served: reads from the device are bounded always"
_ROCKS = "there is no RocksDB: the store has plain files"
_USERS = "the code of the refusal: 3001 (no such user) or 29 (a wrong value), where RocketMQ says 16 of everything"
_STATIC = "static topics are not served"
_OWN = "rmq_sys_STATE and rmq_sys_EPOCH, topics of ours, are there too"
DIFFERENT: Final = {  # the line of a step that prints something else than RocketMQ: why
    "topicList": _OWN,
    "topicList -c": _OWN,
    "wipeWritePerm -b broker-a": _OWN,
    "addWritePerm -b broker-a": _OWN,
    "consumerStatus -g readers -i {client}": "an empty queue has offset 0, not -1: a new group misses nothing",
    "resetOffsetByTime -g slow -t Orders -s 0 -b {b} -q 0 -o 99": "the code of the refusal: 29 (a wrong value), not 1",
    "getBrokerConfig -b {b}": "metricsPromExporterHost has an address",
    "getBrokerConfig -c DefaultCluster": "metricsPromExporterHost has an address",
    "updateBrokerConfig -b {b} -k fileReservedTime -v soon": "a wrong value is refused, not taken and forgotten",
    "setCommitLogReadAheadMode -b {b} -m 0": _COLD,
    "getColdDataFlowCtrInfo -b {b}": _COLD,
    "updateColdDataFlowCtrGroupConfig -b {b} -g slow -v 1024": _COLD,
    "removeColdDataFlowCtrGroupConfig -b {b} -g slow": _COLD,
    "getBrokerEpoch -b broker-a": "a broker that stands alone tells its epochs, too",
    "rocksDBConfigToJson -b {b} -t topics": _ROCKS,
    "checkRocksdbCqWriteProgress -n {n} -c DefaultCluster -t Orders -cf 0": _ROCKS,
    "exportPopRecord -b {b} -d true": _ROCKS,
    "queryCq -t Orders -q 0 -i 0 -c 2 -b {b} -g readers": "`eval` tells whether the group wants the message",
    "createUser -b {b} -u alice -p secret1 -t Super": _USERS,
    "updateUser -b {b} -u nobody -s disable": _USERS,
    "createAcl -b {b} -s User:nobody -r Topic:Orders -a Pub -d Allow": _USERS,
    "createAcl -b {b} -s User:alice -r Nothing:Orders -a Pub -d Allow": _USERS,
    "updateAcl -b {b} -s User:nobody -r Topic:Orders -a Pub -d Deny": _USERS,
    "getAcl -b {b} -s User:alice": "no source addresses are shown as [], not null",
    "getAcl -b {b} -s User:nobody": _USERS,
    "listAcl -b {b}": "no source addresses are shown as [], not null",
    "copyAcl -f {b} -t {b} -s User:nobody": _USERS,
    "deleteAcl -b {b} -s User:nobody": _USERS,
    "getBrokerLiteInfo -b {b}": "one offset more is kept",
    "updateStaticTopic -t Fixed -qn 2 -b broker-a": _STATIC,
    "remappingStaticTopic -t Fixed -b broker-a": _STATIC,
}


class Step(NamedTuple):
    """`kind`: the sign. `until`: repeat it until that is printed; `stop_at`: it goes on, and is stopped when that is printed."""

    line: str
    kind: str
    until: str = ""
    stop_at: str = ""

    @property
    def command(self) -> str:
        return self.line.split()[0]


def _step(line: str) -> Step:
    words, _, until = line[2:].partition(" ?? ")
    words, _, stop_at = words.partition(" !! ")
    return Step(words, line[0], until, stop_at)


STEPS: Final = [_step(line) for line in _STEPS.strip().splitlines()]
