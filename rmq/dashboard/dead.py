"""Dead letters of a consumer group: shown, delivered to the group once more, exported."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import xlsxwriter
from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client, MessageQueue, ReceivedMessage
from rmq.client.admin import again, calls, lookups, tracks
from rmq.client.admin.lookups import FOREVER_MS
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import ask, ask_all
from rmq.dashboard.formats import body, field_time, moment, sent_body, to_ms
from rmq.dashboard.messages import Listed, listed, place
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument, Refusal, RmqError, Unknown, Unreachable
from rmq.model import DLQ_PREFIX

MOST_EXPORTED, MOST_CHARACTERS = 10_000, 64 << 20  # held in memory until the file is whole
_LONGEST_CELL = 32_000  # a cell of a sheet takes 32 767 characters
COLUMNS = ("message id", "topic", "broker", "queue", "offset", "stored", "born", "tags", "keys", "tries", "properties", "body")
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


class DeadLetterPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/dead", self.dead),
            page.view("/dead/export", self.export),
            page.action("/dead/again", self.again),
        ]

    async def dead(self, visit: Visit) -> Response:
        group, begin_ms, end_ms = visit.text("group"), to_ms(visit.text("from")), to_ms(visit.text("until"))
        found, why, groups = Listed([], "", {}), "", []
        since: Mapping[tuple[MessageQueue, int], tracks.Track | None] = {}
        if group:
            try:
                found = await listed(visit, self._client, DLQ_PREFIX + group, begin_ms, end_ms)
            except Refusal as refusal:
                why = "" if "TOPIC_NOT_EXIST" in str(refusal) else str(refusal)
            since = await self._since(visit, group, found.messages)
        else:
            groups = await self._groups(visit)
        return visit.show(
            "dead.html",
            group=group,
            begin=field_time(begin_ms),
            end=field_time(end_ms),
            found=found,
            why=why,
            groups=groups,
            place=place,
            since=since,
        )

    async def _since(
        self, visit: Visit, group: str, letters: Sequence[ReceivedMessage]
    ) -> Mapping[tuple[MessageQueue, int], tracks.Track | None]:
        """What became of each letter that was given again; those of which that is not known in time are missing."""
        seconds = visit.left_s()
        asked = {
            (letter.queue, letter.queue_offset): tracks.since_death(self._client, letter, group, seconds * 0.7)
            for letter in letters
        }
        return (await ask_all(asked, seconds))[0]

    async def again(self, visit: Visit) -> Response:
        """Sends all ticked messages again; the page names those that were refused."""
        group, ticked = visit.needed("group"), visit.ticked("letter")
        if not ticked:
            raise InvalidArgument("tick the messages that are to be consumed again")
        topic, back = DLQ_PREFIX + group, link("/dead", group=group)
        done, failed, still = 0, list[str](), dict[str, RmqError]()
        for text in ticked:
            broker, queue, offset = (*text.rsplit(":", 2), "", "")[:3]
            try:
                if broker in still:  # each further question might wait as long
                    raise still[broker]
                message = await lookups.at(self._client, MessageQueue(topic, broker, int(queue)), int(offset))
                await again.consume_again(self._client, group, message)
                done += 1
            except (RmqError, ValueError) as error:
                failed.append(f"{text}: {error}")
                if isinstance(error, Unreachable | Unknown):
                    still[broker] = error
        if failed:
            return visit.go(back, f"{done} sent, {len(failed)} not: {'; '.join(failed[:3])}", "bad")
        what = "1 message sent: a member of {} gets it" if done == 1 else f"{done} messages sent: members of {{}} get them"
        return visit.go(back, f"{what.format(group)} once more.")

    async def export(self, visit: Visit) -> Response:
        group = visit.needed("group")
        begin_ms, end_ms = to_ms(visit.text("from")) or 0, to_ms(visit.text("until"))
        rows, characters, silent = list[tuple[str, ...]](), 0, calls.Silent()
        until = FOREVER_MS if end_ms is None else end_ms
        async for message in lookups.between(self._client, DLQ_PREFIX + group, begin_ms=begin_ms, end_ms=until, silent=silent):
            if len(rows) == MOST_EXPORTED or characters >= MOST_CHARACTERS:
                rows.append((f"only the first {len(rows)}: there are more, export them by shorter times",))
                break
            rows.append(row := _row(message))
            characters += sum(map(len, row))
        rows += [(f"without what {broker} has: {why}",) for broker, why in silent.items()]
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in group)
        if visit.text("form") == "xlsx":
            return _file(as_xlsx(rows), _XLSX, f"dead-letters-{name}.xlsx")
        return _file(as_csv(rows), "text/csv; charset=utf-8", f"dead-letters-{name}.csv")

    async def _groups(self, visit: Visit) -> list[tuple[str, int]]:
        """Groups that have a dead-letter topic, and how many messages it holds (-1: not known); the largest first."""
        topics = [topic for topic in await ask(calls.topic_list(self._client)) if topic.startswith(DLQ_PREFIX)]
        stats, _ = await ask_all({topic: calls.topic_stats(self._client, topic) for topic in topics}, visit.left_s())
        counts = {topic: sum(row.max_offset - row.min_offset for row in one.queues) for topic, one in stats.items()}
        return sorted(
            ((topic.removeprefix(DLQ_PREFIX), counts.get(topic, -1)) for topic in topics), key=lambda row: (-row[1], row[0])
        )


def _row(message: ReceivedMessage) -> tuple[str, ...]:
    queue = message.queue
    properties = " ".join(f"{name}={value}" for name, value in sorted(message.properties.items()))
    return (
        message.message_id,
        message.topic,
        queue.broker_name,
        str(queue.queue_id),
        str(message.queue_offset),
        moment(message.store_timestamp),
        moment(message.born_timestamp),
        message.tags,
        " ".join(message.keys),
        str(message.reconsume_times),
        properties,
        body(sent_body(message)),
    )


def as_csv(rows: Iterable[tuple[str, ...]]) -> bytes:
    """For spreadsheets: begins with the byte order mark that tells them UTF-8, and no cell looks like a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_no_formula(cell) for cell in row] for row in rows)
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def _no_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and cell != "-" else cell


def as_xlsx(rows: Iterable[tuple[str, ...]]) -> bytes:
    """Every cell is text."""
    data = io.BytesIO()
    with xlsxwriter.Workbook(data, {"in_memory": True}) as book:
        sheet = book.add_worksheet("dead letters")
        for number, row in enumerate([COLUMNS, *rows]):
            for column, cell in enumerate(row):
                sheet.write_string(number, column, cell[:_LONGEST_CELL])
    return data.getvalue()


def _file(data: bytes, kind: str, name: str) -> Response:
    return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
