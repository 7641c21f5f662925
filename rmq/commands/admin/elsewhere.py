"""Commands of mqadmin that `rmq admin` does not have, and what to use in their place."""

_LOCAL = "there is no RocksDB: `rmq store` looks into a store's plain files"
_COLD = "reads from the device are bounded always, nothing has to be set (docs/limits.md)"
_STATIC = "queues do not move between brokers (docs/decisions/static-topics-are-refused.md); `rmq admin addPeer` changes machines"
_CONTROLLER = "brokers elect their leader themselves, there is no controller"

INSTEAD = {
    "addBroker": "`rmq node --processes N` runs several brokers on one host",
    "checkRocksdbCqWriteProgress": _LOCAL,
    "cleanBrokerMetadata": f"{_CONTROLLER}; `rmq admin removePeer` removes a node from its group",
    "consumeMessage": "use `rmq consume`, or `rmq msg print` to leave all offsets alone",
    "dumpCompactionLog": "compacted topics have no files of their own: `rmq msg print TOPIC` reads one",
    "electMaster": f"{_CONTROLLER}; `rmq admin transferLeader` hands over",
    "exportMetadataInRocksDB": _LOCAL,
    "exportPopRecord": _LOCAL,
    "getColdDataFlowCtrInfo": _COLD,
    "getControllerConfig": f"{_CONTROLLER}; use `rmq admin getBrokerConfig`",
    "getControllerMetaData": f"{_CONTROLLER}; use `rmq admin haStatus`",
    "getSyncStateSet": f"{_CONTROLLER}; use `rmq admin haStatus`",
    "printMsg": "use `rmq msg print TOPIC`",
    "printMsgByQueue": "use `rmq msg print TOPIC -q QUEUE`",
    "remappingStaticTopic": _STATIC,
    "removeBroker": "stop the node; `rmq admin removePeer` removes it from its group",
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "resetMasterFlushOffset": "nodes agree on their logs themselves; `rmq admin haStatus` shows how far they are",
    "resetOffsetByTime": "use `rmq admin resetOffset -g GROUP -t TOPIC --to TIME`",
    "rocksDBConfigToJson": _LOCAL,
    "sendMessage": "use `rmq send TOPIC BODY`",
    "setCommitLogReadAheadMode": _COLD,
    "switchTimerEngine": "there is one engine for timed messages",
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "updateControllerConfig": f"{_CONTROLLER}; use `rmq admin updateBrokerConfig`",
    "updateStaticTopic": _STATIC,
}
