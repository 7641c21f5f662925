"""`rmq admin` for lite topics, under mqadmin's names."""

import click

from rmq.client.admin import lites
from rmq.client.admin.calls import Silent
from rmq.commands.shared import asking, options, output
from rmq.commands.views.adminviews import moment

_parent = click.option("-p", "--parent-topic", "topic", required=True, metavar="NAME", help="The topic of type LITE.")
_group = click.option("-g", "--group", required=True, metavar="NAME")


@click.command("getBrokerLiteInfo")
@options.namesrv
@click.option("-c", "--cluster", default="", metavar="NAME", help="Every broker of this cluster.")
@click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="One broker.")
@click.option("-d", "--show-detail", "detail", is_flag=True, help="Show topics of type LITE and the groups bound to them.")
@options.timeout
@options.output
def broker_info(namesrv: str, cluster: str, broker: str, detail: bool, timeout_s: float, form: str) -> int:
    """Show how many lite topics, clients and subscriptions brokers have."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: lites.brokers(client, cluster=cluster, broker=broker, silent=silent))
    columns = {
        "broker": "Broker", "light_queues": "Light queues", "most": "Most", "subscriptions": "Subscriptions",
        "clients": "Clients", "handed_out": "Handed out", "offsets": "Offsets", "topics": "Topics", "groups": "Groups",
    }  # fmt: skip
    rows = []
    for address, one in found.items():
        counts = (one.current_lmq_num, one.max_lmq_num, one.lite_subscription_count, one.event_map_size, one.order_info_count)
        bound = sum(map(len, one.group_meta.values()))
        rows.append((address, *counts, one.offset_table_size, len(one.topic_meta), bound))
    output.show(output.Table(columns, rows), form)
    if detail and form != "json":
        for address, one in found.items():
            for topic, minutes in one.topic_meta.items():
                lives = "for ever" if minutes < 0 else f"for {minutes} minutes"
                groups = ", ".join(one.group_meta.get(topic, [])) or "none"
                click.echo(f"{address}: {topic}: its lite topics live {lives}; groups: {groups}")
    return asking.incomplete(silent)


@click.command("getParentTopicInfo")
@options.namesrv
@_parent
@options.timeout
@options.output
def parent_info(namesrv: str, topic: str, timeout_s: float, form: str) -> int:
    """Show the lite topics of a topic: how many there are, how long they live, which groups are bound to it."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: lites.parent_topic(client, topic, silent))
    columns = {"broker": "Broker Name", "ttl_minutes": "Minutes", "lite_topics": "Lite topics", "groups": "Groups"}
    rows = [(name, one.ttl, one.lite_topic_count, ", ".join(one.groups)) for name, one in found.items()]
    output.show(output.Table(columns, rows), form)
    return asking.incomplete(silent)


@click.command("getLiteTopicInfo")
@options.namesrv
@_parent
@click.option("-l", "--lite-topic", "lite", required=True, metavar="NAME")
@click.option("-s", "--show-client-id", "who", is_flag=True, help="Show the clients that want it.")
@options.timeout
@options.output
def topic_info(namesrv: str, topic: str, lite: str, who: bool, timeout_s: float, form: str) -> int:
    """Show the offsets of a lite topic, and how many clients want it."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: lites.lite_topic(client, topic, lite, silent))
    columns = {"broker": "Broker Name", "min": "Min", "max": "Max", "last_update": "Last Updated", "here": "Belongs here"}
    columns |= {"clients": "Clients"}
    rows = [
        (name, one.min_offset, one.max_offset, moment(one.last_update_timestamp), one.sharding_to_broker, len(one.subscriber))
        for name, one in found.items()
    ]
    output.show(output.Table(columns, rows), form)
    if who and form != "json":
        for name, one in found.items():
            for each in one.subscriber:
                click.echo(f"{name}: {each.client_id} of {each.group}")
    return asking.incomplete(silent)


@click.command("getLiteClientInfo")
@options.namesrv
@_parent
@_group
@click.option("-c", "--client-id", required=True, metavar="ID")
@click.option("-s", "--show-detail", "detail", is_flag=True, help="Show its lite topics.")
@options.timeout
@options.output
def client_info(namesrv: str, topic: str, group: str, client_id: str, detail: bool, timeout_s: float, form: str) -> int:
    """Show which lite topics a client wants, and when it popped last."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: lites.lite_client(client, topic, group, client_id, silent))
    columns = {"broker": "Broker Name", "lite_topics": "Lite topics", "last_access": "Last Popped", "last_consume": "Last Got"}
    rows = [
        (name, max(one.lite_topic_count, 0), moment(max(one.last_access_time, 0)), moment(one.last_consume_time))
        for name, one in found.items()
    ]
    output.show(output.Table(columns, rows), form)
    if detail and form != "json":
        for name in sorted({queue for one in found.values() for queue in one.lite_topic_set}):
            click.echo(name)
    return asking.incomplete(silent)


@click.command("getLiteGroupInfo")
@options.namesrv
@_parent
@_group
@click.option("-l", "--lite-topic", "lite", default="", metavar="NAME", help="Only this one.")
@click.option("-k", "--top-k", "most", type=click.IntRange(1, 1000), default=20, show_default=True, help="Of each broker.")
@options.timeout
@options.output
def group_info(namesrv: str, topic: str, group: str, lite: str, most: int, timeout_s: float, form: str) -> int:
    """Show how far a group is in a lite topic, or in which ones it is furthest behind."""
    silent: Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: lites.lite_group(client, topic, group, lite, most, silent))
    total: dict[str, tuple[str, output.Cell]] = {"lag": ("Lag", sum(max(one.total_lag_count, 0) for one in found.values()))}
    if lite:
        columns = {"broker": "Broker Name", "broker_offset": "Broker Offset", "consumer_offset": "Consumer Offset", "lag": "Lag"}
        known = [(name, one) for name, one in found.items() if one.broker_offset >= 0]
        rows = [(name, one.broker_offset, one.consumer_offset, one.total_lag_count) for name, one in known]
        output.show(output.Table(columns, rows, total), form)
        return asking.incomplete(silent)
    lags = sorted(((one.lag_count, name, one) for name, info in found.items() for one in info.lag_count_top_k), reverse=True)
    columns = {"broker": "Broker Name", "lite_topic": "Lite topic", "lag": "Lag", "first_waits_since": "First Waits Since"}
    worst = [(name, one.lite_topic, count, moment(one.earliest_unconsumed_timestamp)) for count, name, one in lags]
    output.show(output.Table(columns, worst, total), form)
    return asking.incomplete(silent)


@click.command("triggerLiteDispatch")
@options.namesrv
@_parent
@_group
@click.option("-c", "--client-id", default="", metavar="ID", help="Only this client.")
@click.option("-b", "--broker-name", "broker", default="", metavar="NAME", help="Only at this broker.")
@options.timeout
@options.output
def trigger(namesrv: str, topic: str, group: str, client_id: str, broker: str, timeout_s: float, form: str) -> None:
    """Have the clients of a group look for messages that they should have heard of."""
    names = asking.run(namesrv, timeout_s, lambda client: lites.trigger(client, topic, group, client_id, broker))
    output.report("dispatched", names, form)


COMMANDS = (broker_info, parent_info, topic_info, client_info, group_info, trigger)
