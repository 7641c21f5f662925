"""Settings about what a node tells of itself and of messages: metrics, logs, slow requests, the topic of message traces."""

from dataclasses import dataclass

from rmq.config.access import AccessSettings
from rmq.config.kinds import choice, flag, host, identifier, integer, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservingSettings(AccessSettings):
    """Rows of `NodeSettings`."""

    metrics: str = setting(
        "off", choice("off", "prom", DISABLE="off"), "prom: Prometheus may ask for metrics, by http", "metricsExporterType"
    )
    metrics_host: str = setting("127.0.0.1", host(), "address of the metrics", "metricsPromExporterHost")
    metrics_port: int = setting(5557, integer(0, 65535), "port of the metrics; 0: any free one", "metricsPromExporterPort")
    trace_topic: bool = setting(False, flag(), "the broker has a topic for message traces", "traceTopicEnable")
    trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", identifier(), "what that topic is called", "msgTraceTopicName")
    trace_messages: bool = setting(True, flag(), "false: clients that trace write no traces of this broker's messages", "traceOn")
    slow_request_ms: int = setting(500, integer(0, 86_400_000), "requests that take longer are logged with their stages; 0: none")
    log_level: str = setting("info", choice("debug", "info", "warning", "error"), "least weight that is logged")
    log_format: str = setting("auto", choice("auto", "human", "json"), "auto: human on a terminal, else JSON lines")
