"""Why a server does not serve what came."""

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import CODES, DraftedSend, Send


def why_unserved(thing: object, draining: bool) -> Refusal | None:
    """Of content that was refused while decoding, or a code nobody serves here; None for an answer to a request of ours."""
    asked = Send if type(thing) is DraftedSend else type(thing)
    if isinstance(thing, Refusal):
        return thing
    if asked not in CODES:
        return None
    if draining:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this node is stopping; ask another one")
    return Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {int(CODES[asked])} not supported")
