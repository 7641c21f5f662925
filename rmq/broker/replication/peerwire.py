"""Translates the state machine's messages (`rmq.raft.messages`) to commands and back (`rmq.net.commands.peers`). Pure."""

from rmq.net.commands import peers as c
from rmq.raft import messages as m


def to_command(group: str, request: m.Request) -> c.FetchLog | c.AckLog | c.AskVote | c.AnnounceLeader | c.ResignLeader:
    if isinstance(request, m.Fetch):
        return c.FetchLog._make(request)
    if isinstance(request, m.Ack):
        return c.AckLog(group, *request)
    if isinstance(request, m.Vote):
        return c.AskVote(group, *request)
    if isinstance(request, m.Announce):
        return c.AnnounceLeader(group, request.epoch, request.leader, request.address, list(request.voters))
    return c.ResignLeader(group, request.epoch, list(request.successors))


def to_request(command: c.FetchLog | c.AckLog | c.AskVote | c.AnnounceLeader | c.ResignLeader) -> m.Request:
    if isinstance(command, c.FetchLog):
        return m.Fetch._make(command)
    if isinstance(command, c.AckLog):
        return m.Ack(*command[1:])
    if isinstance(command, c.AskVote):
        return m.Vote(*command[1:])
    if isinstance(command, c.AnnounceLeader):
        return m.Announce(command.epoch, command.leader, command.address, tuple(command.voters))
    return m.Resign(command.epoch, tuple(command.successors))


def encode_answer(answer: m.Answer, request: str = "") -> c.FetchLogAnswer | c.AskVoteAnswer | c.EpochAnswer:
    if isinstance(answer, m.FetchOk):
        return c.FetchLogAnswer(
            c.OK, answer.epoch, answer.leader, answer.from_, answer.data, answer.hw, answer.epoch_start_end, answer.log_start,
            answer.stamp, place=answer.place, request=request,
        )  # fmt: skip
    if isinstance(answer, m.Diverged):
        return c.FetchLogAnswer(
            c.DIVERGED, answer.epoch, parted_epoch=answer.parted_epoch, end=answer.end, writer=answer.writer, lossy=answer.lossy
        )
    if isinstance(answer, m.NeedsSnapshot):
        return c.FetchLogAnswer(c.NEEDS_SNAPSHOT, answer.epoch, log_start=answer.log_start, s0=answer.s0, s1=answer.s1)
    if isinstance(answer, m.NotLeader):
        return c.FetchLogAnswer(c.NOT_LEADER, answer.epoch, hint=answer.hint)
    if isinstance(answer, m.Fenced):
        return c.FetchLogAnswer(c.FENCED, answer.epoch, reason=answer.reason)
    if isinstance(answer, m.VoteAnswer):
        return c.AskVoteAnswer(*answer)
    return c.EpochAnswer(*answer)


def read_answer(request: m.Request, answer: object) -> m.Answer:
    """`request` is what was asked; a fetch's number goes into its answer."""
    if isinstance(answer, c.AskVoteAnswer):
        return m.VoteAnswer(*answer)
    if isinstance(answer, c.EpochAnswer):
        return m.EpochAnswer(*answer)
    assert isinstance(answer, c.FetchLogAnswer)
    assert isinstance(request, m.Fetch)
    if answer.kind == c.OK:
        return m.FetchOk(
            request.id, answer.epoch, answer.leader, answer.from_offset, answer.data, answer.hw, answer.epoch_start_end,
            answer.log_start, answer.stamp, answer.place,
        )  # fmt: skip
    if answer.kind == c.DIVERGED:
        return m.Diverged(request.id, answer.epoch, answer.parted_epoch, answer.end, answer.writer, answer.lossy)
    if answer.kind == c.NEEDS_SNAPSHOT:
        return m.NeedsSnapshot(request.id, answer.epoch, answer.s0, answer.s1, answer.log_start)
    if answer.kind == c.NOT_LEADER:
        return m.NotLeader(answer.epoch, answer.hint)
    return m.Fenced(answer.epoch, answer.reason or f"an answer of unknown kind {answer.kind}")
