"""The messages of RocketMQ's gRPC protocol, version 2 [package apache.rocketmq.v2]: what the door serves of them.

`_SCHEMA` has a message or an enumeration in each paragraph: name, number and kind of each field. Kinds: those of protobuf, other
names of this list, `Timestamp`, `Duration`; `*`: repeated; `?`: whether it is there is told; `one/`: one of the fields with that
name before the slash; `map`: of strings. Classes are made of it at the start, so nothing is generated, and no compiler is needed.
"""

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

PACKAGE = "apache.rocketmq.v2"
_SCHEMA = """
enum TransactionResolution: TRANSACTION_RESOLUTION_UNSPECIFIED 0, COMMIT 1, ROLLBACK 2
enum TransactionSource: SOURCE_UNSPECIFIED 0, SOURCE_CLIENT 1, SOURCE_SERVER_CHECK 2
enum Permission: PERMISSION_UNSPECIFIED 0, NONE 1, READ 2, WRITE 3, READ_WRITE 4
enum FilterType: FILTER_TYPE_UNSPECIFIED 0, TAG 1, SQL 2
enum AddressScheme: ADDRESS_SCHEME_UNSPECIFIED 0, IPv4 1, IPv6 2, DOMAIN_NAME 3
enum MessageType: MESSAGE_TYPE_UNSPECIFIED 0, NORMAL 1, FIFO 2, DELAY 3, TRANSACTION 4, LITE 5, PRIORITY 6
enum DigestType: DIGEST_TYPE_UNSPECIFIED 0, CRC32 1, MD5 2, SHA1 3
enum ClientType: CLIENT_TYPE_UNSPECIFIED 0, PRODUCER 1, PUSH_CONSUMER 2, SIMPLE_CONSUMER 3, PULL_CONSUMER 4, LITE_PUSH_CONSUMER
  5, LITE_SIMPLE_CONSUMER 6
enum Encoding: ENCODING_UNSPECIFIED 0, IDENTITY 1, GZIP 2
enum Code: CODE_UNSPECIFIED 0, OK 20000, MULTIPLE_RESULTS 30000, BAD_REQUEST 40000, ILLEGAL_ACCESS_POINT 40001, ILLEGAL_TOPIC
  40002, ILLEGAL_CONSUMER_GROUP 40003, ILLEGAL_MESSAGE_TAG 40004, ILLEGAL_MESSAGE_KEY 40005, ILLEGAL_MESSAGE_GROUP 40006,
  ILLEGAL_MESSAGE_PROPERTY_KEY 40007, INVALID_TRANSACTION_ID 40008, ILLEGAL_MESSAGE_ID 40009, ILLEGAL_FILTER_EXPRESSION 40010,
  ILLEGAL_INVISIBLE_TIME 40011, ILLEGAL_DELIVERY_TIME 40012, INVALID_RECEIPT_HANDLE 40013, MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
  40014, UNRECOGNIZED_CLIENT_TYPE 40015, MESSAGE_CORRUPTED 40016, CLIENT_ID_REQUIRED 40017, ILLEGAL_POLLING_TIME 40018,
  ILLEGAL_OFFSET 40019, ILLEGAL_LITE_TOPIC 40020, UNAUTHORIZED 40100, PAYMENT_REQUIRED 40200, FORBIDDEN 40300, NOT_FOUND 40400,
  MESSAGE_NOT_FOUND 40401, TOPIC_NOT_FOUND 40402, CONSUMER_GROUP_NOT_FOUND 40403, OFFSET_NOT_FOUND 40404, REQUEST_TIMEOUT 40800,
  PAYLOAD_TOO_LARGE 41300, MESSAGE_BODY_TOO_LARGE 41301, MESSAGE_BODY_EMPTY 41302, PRECONDITION_FAILED 42800, TOO_MANY_REQUESTS
  42900, LITE_TOPIC_QUOTA_EXCEEDED 42901, LITE_SUBSCRIPTION_QUOTA_EXCEEDED 42902, REQUEST_HEADER_FIELDS_TOO_LARGE 43100,
  MESSAGE_PROPERTIES_TOO_LARGE 43101, INTERNAL_ERROR 50000, INTERNAL_SERVER_ERROR 50001, HA_NOT_AVAILABLE 50002, NOT_IMPLEMENTED
  50100, PROXY_TIMEOUT 50400, MASTER_PERSISTENCE_TIMEOUT 50401, SLAVE_PERSISTENCE_TIMEOUT 50402, UNSUPPORTED 50500,
  VERSION_UNSUPPORTED 50501, VERIFY_FIFO_MESSAGE_UNSUPPORTED 50502, FAILED_TO_CONSUME_MESSAGE 60000
enum LiteSubscriptionAction: PARTIAL_ADD 0, PARTIAL_REMOVE 1, COMPLETE_ADD 2, COMPLETE_REMOVE 3
enum OffsetPolicy: LAST 0, MIN 1, MAX 2
enum Language: LANGUAGE_UNSPECIFIED 0, JAVA 1, CPP 2, DOT_NET 3, GOLANG 4, RUST 5, PYTHON 6, PHP 7, NODE_JS 8, RUBY 9,
  OBJECTIVE_C 10, DART 11, KOTLIN 12
FilterExpression: type 1 FilterType, expression 2 string
RetryPolicy: max_attempts 1 int32, exponential_backoff 2 strategy/ExponentialBackoff, customized_backoff 3
  strategy/CustomizedBackoff
ExponentialBackoff: initial 1 Duration, max 2 Duration, multiplier 3 float
CustomizedBackoff: next 1 *Duration
Resource: resource_namespace 1 string, name 2 string
SubscriptionEntry: topic 1 Resource, expression 2 FilterExpression
Address: host 1 string, port 2 int32
Endpoints: scheme 1 AddressScheme, addresses 2 *Address
Broker: name 1 string, id 2 int32, endpoints 3 Endpoints
MessageQueue: topic 1 Resource, id 2 int32, permission 3 Permission, broker 4 Broker, accept_message_types 5 *MessageType
Digest: type 1 DigestType, checksum 2 string
SystemProperties: tag 1 ?string, keys 2 *string, message_id 3 string, body_digest 4 Digest, body_encoding 5 Encoding,
  message_type 6 MessageType, born_timestamp 7 Timestamp, born_host 8 string, store_timestamp 9 ?Timestamp, store_host 10
  string, delivery_timestamp 11 ?Timestamp, receipt_handle 12 ?string, queue_id 13 int32, queue_offset 14 ?int64,
  invisible_duration 15 ?Duration, delivery_attempt 16 ?int32, message_group 17 ?string, trace_context 18 ?string,
  orphaned_transaction_recovery_duration 19 ?Duration, dead_letter_queue 20 ?DeadLetterQueue, lite_topic 21 ?string, priority 22
  ?int32
DeadLetterQueue: topic 1 string, message_id 2 string
Message: topic 1 Resource, user_properties 2 map, system_properties 3 SystemProperties, body 4 bytes
Assignment: message_queue 1 MessageQueue
Status: code 1 Code, message 2 string
UA: language 1 Language, version 2 string, platform 3 string, hostname 4 string
Settings: client_type 1 ?ClientType, access_point 2 ?Endpoints, backoff_policy 3 ?RetryPolicy, request_timeout 4 ?Duration,
  publishing 5 pub_sub/Publishing, subscription 6 pub_sub/Subscription, user_agent 7 UA, metric 8 Metric
Publishing: topics 1 *Resource, max_body_size 2 int32, validate_message_type 3 bool
Subscription: group 1 ?Resource, subscriptions 2 *SubscriptionEntry, fifo 3 ?bool, receive_batch_size 4 ?int32,
  long_polling_timeout 5 ?Duration, lite_subscription_quota 6 ?int32, max_lite_topic_size 7 ?int32
Metric: on 1 bool, endpoints 2 ?Endpoints
QueryRouteRequest: topic 1 Resource, endpoints 2 Endpoints
QueryRouteResponse: status 1 Status, message_queues 2 *MessageQueue
SendMessageRequest: messages 1 *Message
SendResultEntry: status 1 Status, message_id 2 string, transaction_id 3 string, offset 4 int64, recall_handle 5 string
SendMessageResponse: status 1 Status, entries 2 *SendResultEntry
QueryAssignmentRequest: topic 1 Resource, group 2 Resource, endpoints 3 Endpoints
QueryAssignmentResponse: status 1 Status, assignments 2 *Assignment
ReceiveMessageRequest: group 1 Resource, message_queue 2 MessageQueue, filter_expression 3 FilterExpression, batch_size 4 int32,
  invisible_duration 5 ?Duration, auto_renew 6 bool, long_polling_timeout 7 ?Duration, attempt_id 8 ?string
ReceiveMessageResponse: status 1 content/Status, message 2 content/Message, delivery_timestamp 3 content/Timestamp
AckMessageEntry: message_id 1 string, receipt_handle 2 string, lite_topic 3 ?string
AckMessageRequest: group 1 Resource, topic 2 Resource, entries 3 *AckMessageEntry
AckMessageResultEntry: message_id 1 string, receipt_handle 2 string, status 3 Status
AckMessageResponse: status 1 Status, entries 2 *AckMessageResultEntry
ForwardMessageToDeadLetterQueueRequest: group 1 Resource, topic 2 Resource, receipt_handle 3 string, message_id 4 string,
  delivery_attempt 5 int32, max_delivery_attempts 6 int32, lite_topic 7 ?string
ForwardMessageToDeadLetterQueueResponse: status 1 Status
HeartbeatRequest: group 1 ?Resource, client_type 2 ClientType
HeartbeatResponse: status 1 Status
EndTransactionRequest: topic 1 Resource, message_id 2 string, transaction_id 3 string, resolution 4 TransactionResolution,
  source 5 TransactionSource, trace_context 6 string
EndTransactionResponse: status 1 Status
RecoverOrphanedTransactionCommand: message 1 Message, transaction_id 2 string
TelemetryCommand: status 1 ?Status, settings 2 command/Settings, recover_orphaned_transaction_command 5
  command/RecoverOrphanedTransactionCommand, notify_unsubscribe_lite_command 9 command/NotifyUnsubscribeLiteCommand
NotifyClientTerminationRequest: group 1 ?Resource
NotifyClientTerminationResponse: status 1 Status
ChangeInvisibleDurationRequest: group 1 Resource, topic 2 Resource, receipt_handle 3 string, invisible_duration 4 Duration,
  message_id 5 string, lite_topic 6 ?string, suspend 7 ?bool
ChangeInvisibleDurationResponse: status 1 Status, receipt_handle 2 string
OffsetOption: policy 1 offset_type/OffsetPolicy, offset 2 offset_type/int64, tail_n 3 offset_type/int64, timestamp 4
  offset_type/int64
SyncLiteSubscriptionRequest: action 1 LiteSubscriptionAction, topic 2 Resource, group 3 Resource, lite_topic_set 4 *string,
  version 5 ?int64, offset_option 6 ?OffsetOption
SyncLiteSubscriptionResponse: status 1 Status
NotifyUnsubscribeLiteCommand: lite_topic 1 string
RecallMessageRequest: topic 1 Resource, recall_handle 2 string
RecallMessageResponse: status 1 Status, message_id 2 string
"""
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: getattr(_Field, f"TYPE_{name.upper()}") for name in ("string", "int32", "int64", "float", "bool", "bytes")}
_KNOWN = {"Duration": duration_pb2.DESCRIPTOR, "Timestamp": timestamp_pb2.DESCRIPTOR}


class Schema:
    """The class of each message and the numbers of each enumeration, by name: `Status`, `Code.OK`."""

    def __init__(self, text: str) -> None:
        file = descriptor_pb2.FileDescriptorProto(name="rmq/grpc/v2", package=PACKAGE, syntax="proto3")
        file.dependency.extend(known.name for known in _KNOWN.values())
        paragraphs = re.findall(r"^(enum )?(\w+): ((?:.|\n  )+)$", text, re.M)
        enums = {name for kind, name, _ in paragraphs if kind}
        for kind, name, listed in paragraphs:
            entries = [entry.split() for entry in listed.split(",")]
            if kind:
                enum = file.enum_type.add(name=name)
                for value, number in entries:
                    enum.value.add(name=value, number=int(number))
            else:
                _add_message(file, name, entries, enums)
        pool = descriptor_pool.DescriptorPool()
        for known in _KNOWN.values():
            pool.AddSerializedFile(known.serialized_pb)
        pool.Add(file)
        self._found: dict[str, Any] = {}
        for message in file.message_type:
            self._found[message.name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for enum in file.enum_type:
            self._found[enum.name] = type(enum.name, (), {value.name: value.number for value in enum.value})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._found[name]
        except KeyError:
            raise AttributeError(f"no message {name} in {PACKAGE}") from None


def _add_message(file: Any, name: str, entries: list[list[str]], enums: set[str]) -> None:
    message = file.message_type.add(name=name)
    choices: dict[str, int] = {}
    told: list[Any] = []
    for field_name, number, kind in entries:
        field = message.field.add(name=field_name, number=int(number), label=_Field.LABEL_OPTIONAL)
        choice, _, kind = kind.rpartition("/")
        if choice:
            if choice not in choices:
                choices[choice] = len(choices)
                message.oneof_decl.add(name=choice)
            field.oneof_index = choices[choice]
        if kind.startswith("*") or kind == "map":
            field.label = _Field.LABEL_REPEATED
        if kind.startswith("?"):
            told.append(field)
        kind = kind.lstrip("*?")
        if kind == "map":
            entry = message.nested_type.add(name=field_name.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            for part, place in (("key", 1), ("value", 2)):
                entry.field.add(name=part, number=place, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
            kind = f"{name}.{entry.name}"
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
            field.type_name = f".google.protobuf.{kind}" if kind in _KNOWN else f".{PACKAGE}.{kind}"
    for field in told:  # behind all others, as protobuf wants it
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")
        field.proto3_optional = True


v2 = Schema(_SCHEMA)
