"""Keys of RocketMQ's broker.conf and namesrv.conf that are no settings of ours, and what we say about each.

There are three sorts: keys that ask for something we would not do (refused), keys of features that are not served yet (a
warning), and keys that tune Java's threads and buffers (a warning: no effect). This file reads no files.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from rmq.errors import InvalidArgument


class Written(Protocol):
    """A `key = value` with its place."""

    @property
    def raw(self) -> object: ...
    @property
    def key(self) -> str: ...
    @property
    def origin(self) -> str: ...


class Promise(NamedTuple):
    """A key that can ask for more than we do. `kept`: the values that we can honour; `why`: what to do about any other."""

    kept: Callable[[str], bool]
    why: str


def _false(value: str) -> bool:
    return value.lower() == "false"


def _at_most_one(value: str) -> bool:
    return value.strip() in ("0", "1")


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COPIES = (
    "a majority keeps each message where enableDLegerCommitLog=true, inSyncReplicas nodes where brokerRole=SYNC_MASTER; "
    "remove the key, or stay with RocketMQ"
)
_OPEN = "ACL 1.0 is not served; use authenticationEnabled and authorizationEnabled, as RocketMQ from 5.3 on does"
_PROMISES = {
    "enableControllerMode": Promise(_false, f"controllers are not served: {_COPIES}"),
    "minInSyncReplicas": Promise(_at_most_one, f"it has no meaning here: {_COPIES}"),
    "allAckInSyncStateSet": Promise(_false, f"it has no meaning here: {_COPIES}"),
    "aclEnable": Promise(_false, _OPEN),
    "tls.server.keyPassword": Promise(lambda value: not value.strip(),
                                      "no secret stands in this file; name one of mode 0600: tls_key_password_file"),
    "tls.client.authServer": Promise(lambda value: value.lower() == "true",
                                     "nodes always check whom they dial; remove the key, and name the authority in tls_ca"),
    "readOnlyCommitLogStorePaths": Promise(lambda value: not value.strip(),
                                           "the log is one directory; move those files into commitlog/"),
    "timerPrecisionMs": Promise(lambda value: value == "1000", "timed messages are due to the second"),
    "enableCompaction": Promise(lambda value: value.lower() == "true", "compacted topics are always served"),
    "timerWheelEnable": Promise(lambda value: value.lower() == "true", "timed messages are always served"),
    "storeType": Promise(lambda value: value == "default", "only RocketMQ's plain files are served; use storeType=default"),
}  # fmt: skip

PATHS = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}  # fixed places below storePathRootDir

_LATER = _keys("""
    flushIntervalCommitLog syncFlushTimeout registerNameServerPeriod
    isEnableBatchPush haMasterAddress
    brokerIP2 slaveTimeout enableAutoInSyncReplicas enableSlaveActingMaster enableRemoteEscape controllerAddr
    enableScheduleMessageStats
    enableCalcFilterBitMap enableDetailStat
    messageIndexSafe enableConsumeQueueExt
    mappedFileSizeConsumeQueueExt popPollingSize
    enablePopLog storeReplyMessageEnable regionId
    autoDeleteUnusedStats autoDeleteUnusedTopic brokerTopicEnable clusterTopicEnable
    disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold
    kvConfigPath configStorePath configStoreInRocksDB returnOrderTopicConfigToBroker supportActingMaster
    enableControllerInNamesrv notifyMinBrokerIdChanged
    enableRetryTopicV2 retrieveMessageFromPopRetryTopicV1
    forceRegister brokerHeartbeatInterval brokerNotActiveTimeoutMillis fetchNamesrvAddrByAddressServer rmqAddressServerDomain
    startAcceptSendRequestTimeStamp checkCRCOnRecover commercialEnable isBrokerContainer isInBrokerContainer timerStopDequeue
    allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey asyncLearner broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerElectionPriority cgColdReadThreshold channelExpiredTimeout cleanSwapedMapInterval
    clearRetryTopicWhenDeleteTopic coldCtrStrategyEnable combineAssignOffsetCQType combineCQLoadingCQTypes
    combineCQPreferCQType defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum disappearTimeAfterStart
    enableAcceleratedRecovery enableAllTopicList enableBatchPush enableBroadcastOffsetStore enableCleanExpiredOffset
    enableCreateSysGroup enableMixedMessageType enableNetWorkFlowControl
    enablePopMessageThreshold enableRegisterProducer enableRunningFlagsInFlush enableTopicList enabledAppendPropCRC
    filterSupportRetry forceVerifyPropCRC globalColdReadThreshold haFlowControlEnable haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup inBrokerContainer indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
    initPopOffsetByCheckMsgInMem litePullMessageEnable lockInStrictMode
    logicalDiskSpaceCleanForciblyThreshold maxConsumeQueueScan maxFilterMessageSize
    maxHaTransferByteInSecond maxTopicLength messageStorePlugIn
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel migrateAuthFromV1Enabled
    needWaitForService popConsumerKVServiceEnable popInflightMessageThreshold popResponseReturnActualRetryTopic
    popReviveMaxAttemptTimes popReviveSkipIfGroupAbsent readUnCommitted realTimeNotifyConsumerChange
    rejectPullConsumerEnable replicasPerDiskPartition rocksdbCQDoubleWriteEnable serverLoadBalancerEnable
    skipWhenCKRePutReachMaxTimes socksProxyConfig storePathBrokerIdentity storePathDLedgerCommitLog storePathEpochFile
    subscriptionExpiredTimeout syncMasterFlushOffsetWhenStartup timerCongestNumEachSlot timerEnableRetryUntilSuccess
    timerInterceptDelayLevel timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerRocksDBEnable
    timerRocksDBStopScan timerRollWindowSlot timerSkipUnknownError timerStopEnqueue transRocksDBEnable
    transWriteOriginTransHalfEnable travelCqFileNumWhenGetMessage usePIDColdCtrStrategy useSingleRocksDBForAllConfigs
    useStaticSubscription validateSystemTopicWhenUpdateTopic waitSecondsForService
""")

NO_EFFECT = _keys("""
    authenticationProvider authenticationMetadataProvider authenticationStrategy authorizationProvider
    authorizationMetadataProvider authorizationStrategy authConfigPath userCacheMaxNum aclCacheMaxNum
    rocketmqHome productEnvName clusterTest
    deleteCommitLogFilesInterval redeleteHangedFileInterval cleanResourceInterval destroyMapedFileIntervalForcibly
    deleteConsumeQueueFilesInterval deleteFileBatchMax
    sendMessageThreadPoolNums pullMessageThreadPoolNums putMessageFutureThreadPoolNums processReplyMessageThreadPoolNums
    queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
    heartbeatThreadPoolNums endTransactionThreadPoolNums ackMessageThreadPoolNums litePullMessageThreadPoolNums
    sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
    clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity
    endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity ackThreadPoolQueueCapacity
    waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue
    brokerFastFailureEnable osPageCacheBusyTimeOutMills useReentrantLockWhenPutMessage transientStorePoolEnable
    transientStorePoolSize fastFailIfNoBufferInStorePool warmMapedFileEnable mmapEnable flushCommitLogTimed
    flushCommitLogLeastPages flushCommitLogThoroughInterval flushIntervalConsumeQueue flushConsumeQueueLeastPages
    flushConsumeQueueThoroughInterval commitIntervalCommitLog commitCommitLogLeastPages flushLeastPagesWhenWarmMapedFile
    accessMessageInMemoryMaxRatio 
    transferMsgByHeap serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
    serverAsyncSemaphoreValue serverChannelMaxIdleTimeSeconds serverSocketSndBufSize serverSocketRcvBufSize
    serverPooledByteBufAllocatorEnable serverSocketBacklog useEpollNativeSelector clientWorkerThreads
    clientAsyncSemaphoreValue clientOnewaySemaphoreValue clientSocketSndBufSize clientSocketRcvBufSize
    flushConsumerOffsetInterval flushConsumerOffsetHistoryInterval registerBrokerTimeoutMills sendHeartbeatTimeoutMillis
    compressedRegister debugLockEnable offsetCheckInSlave duplicationEnable coldDataFlowControlEnable
    defaultThreadPoolNums clientRequestThreadPoolNums brokerDivideThreadPoolNums maxMsgsNumBatch
    enableSplitRegistration splitRegistrationSize enableSingleTopicRegister
    enablePopBufferMerge popCkStayBufferTime popCkStayBufferTimeOut popCkMaxBufferSize
    enablePopBatchAck reviveInterval reviveMaxSlow reviveScanTime reviveQueueNum enableSkipLongAwaitingAck
    unRegisterBrokerQueueCapacity tls.config.file tls.test.mode.enable tls.server.authClient
    isScanAvailableNameSrv timerCheckMetricsWhen timerEnableDisruptor timerWarmEnable
    accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues aclCacheExpiredSecond
    aclCacheRefreshSecond appendAckAsync appendCkAsync asyncSendEnable autoMessageVersionOnTopicLen
    batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
    channelNotActiveInterval checkCommitLogOffsetOnRecover checkSyncStateSetPeriod cleanOfflineBrokerInterval
    cleanRocksDBDirtyCQIntervalMin clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
    clientCloseSocketIfTimeout clientPooledByteBufAllocatorEnable clientRequestThreadPoolQueueCapacity coldDataScanEnable
    combineCQEnableCheckSelf combineCQMaxExtraSearchCommitLogFiles combineCQUseRocksdbForLmq commercialBaseCount
    commercialSizePerMsg commitCommitLogThoroughInterval commitLogForceSwapMapInterval commitLogRecoverMaxNum
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
    compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv configManagerVersion connectTimeoutMillis
    consumerOffsetUpdateVersionStep controllerHeartBeatTimeoutMills correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval dataReadAheadEnable defaultThreadPoolQueueCapacity delayOffsetUpdateVersionStep
    disableCallbackExecutor disableNettyWorkerGroup diskFallRecorded dispatchCqCacheNum dispatchCqThreads
    dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently enableConnectionMetrics
    enableFastChannelEventProcess enableLagAndDlqMetrics enableLitePopLog enableLmqStats
    enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enableNotifyAfterPopOrderLockRelease
    enableNotifyBeforePopCalculateLag enablePopMetrics enableReconnectForGoAway enableRemotingMetrics enableRequestMetrics
    enableRocksDBLog enableScheduleAsyncDeliver enableShutdownGracefully enableSplitMetadata enableStatsMetrics
    enableTransactionMetrics expectConsumerNumUseFilter fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
    fetchNamesrvAddrInterval filterDataCleanTimeSpan flushDelayOffsetInterval forwardTimeout haHousekeepingInterval
    haSendHeartbeatInterval haTransferBatchSize highSpeedMode isolateLogEnable iteratorWhenUseRocksdbConsumeQueue
    liteEventCheckInterval liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
    liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable
    maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
    maxErrorRateOfBloomFilter maxMessageFilterNumForNotification maxOffsetMapSize maxPopPollingSize
    maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays maxSlaveResendLength
    maxStatsIdleTimeInMinutes memTableFlushIntervalMs metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsOtelCardinalityLimit
    persistConsumerOffsetIncrementally popCkOffsetMaxQueueSize popConsumerFSServiceInit popConsumerKVServiceInit
    popConsumerKVServiceLog popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popReviveConcurrency popReviveMaxReturnSizePerRead printChannelGroups printChannelGroupsMinNum
    pullBatchMaxMessageCount putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater
    putThreadPoolQueueCapacity realTimePersistRocksDBConfig recheckReputOffsetFromCq recoverConcurrently
    recoverThreadPoolNums reviveAckWaitMs rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
    sampleCountThreshold sampleSteps scanAvailableNameSrv scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable serverNettyWorkerGroupEnable sharedByteBufferNum
    shutdownWaitTimeSeconds skipPreOnline spinLockCollisionRetreatOptimalDegree splitMetadataSize statRocksDBCQIntervalSec
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
    statefulAuthorizationCacheMaxNum syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
    syncFromLastFile timerColdDataCheckIntervalMs timerEnableCheckMetrics timerFlushIntervalMs timerGetMessageThreadNum
    timerMetricSmallThreshold timerProgressLogIntervalMs timerPutMessageThreadNum timerReputServiceCorePoolSize
    timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
    timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBTimeExpiredMaxTps timerWheelSnapshotFlush
    timerWheelSnapshotIntervalMs topicQueueLockNum transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
    transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    updateNameServerAddrPeriod useABSLock useMessageFilterForNotification useSeparateStorePathForRocksdbCQ
    userCacheExpiredSecond userCacheRefreshSecond waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    waitTimeMillsInLitePullQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage writeBufferHighWaterMark
    writeBufferLowWaterMark writeWithoutMmap
    enableLmqQuota enableLiteEventMode maxClientEventCount
""")
_WHY_NONE = {
    "enableLmqQuota": "light queues are always counted (maxLmqConsumeQueueNum)",
    "enableLiteEventMode": "clients hear of each message in a lite topic that they want",
    "maxClientEventCount": "its group says it: lite.sub.client.max.event.cnt",
}

_OF_RULES = _keys("""
    aclEnable authenticationProvider authenticationMetadataProvider authenticationStrategy authorizationProvider
    authorizationMetadataProvider authorizationStrategy authConfigPath userCacheMaxNum aclCacheMaxNum tls.config.file
    tls.test.mode.enable tls.server.authClient tls.server.keyPassword tls.client.authServer
""")
_BOTH_WAYS = _keys("tls.client.keyPath tls.client.keyPassword tls.client.certPath tls.client.trustCertPath")
BLACK_LIST = frozenset(
    [*PATHS, "configBlackList", "brokerConfigPath", "rocketmqHome", "kvConfigPath", "configStorePath", "rmqAddressServerDomain",
     *_OF_RULES, *_BOTH_WAYS]
)  # fmt: skip
"""Where things lie, and who may do what: never changed from afar."""
KNOWN = frozenset([*_PROMISES, *PATHS, *_LATER, *NO_EFFECT, *_BOTH_WAYS])


def judge(key: str, value: str) -> str | None:
    """What to warn about a key of RocketMQ: "" nothing, None if it is unknown. Raises InvalidArgument for a broken promise."""
    if promise := _PROMISES.get(key):
        if not promise.kept(value):
            told = key if key.endswith("Password") else f"{key}={value}"  # S12
            raise InvalidArgument(f"{told} is refused: {promise.why}")
        return ""
    if key in _LATER:
        return f"{key} is not served yet and has no effect"
    if key in _BOTH_WAYS:
        return f"{key} has no effect: a node shows tls_cert and trusts tls_ca in both directions"
    why = _WHY_NONE.get(key, "it tunes RocketMQ's threads and buffers")
    return f"{key} has no effect here ({why})" if key in NO_EFFECT else None


def judge_paths(rows: Iterable[Written], root: Path) -> None:
    """Raises InvalidArgument unless every named file or directory is the one that the store has below `root`."""
    for row in rows:
        place = root / PATHS[row.key]
        if Path(os.path.expanduser(str(row.raw))).absolute() != place.absolute():
            raise InvalidArgument(
                f"{row.origin}: {row.key}: the store keeps it at {place}, not at {row.raw}; "
                "remove the key, or mount the other disk there"
            )
