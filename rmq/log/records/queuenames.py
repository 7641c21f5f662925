"""The directory of a topic's queues: RocketMQ's, which is the topic's own name, wherever that can be one. Pure.

What a record in the log names was checked when it was stored, by us or by RocketMQ, which was laxer at times. So nothing
is refused here; but no name leaves its directory (S9).
"""

from hashlib import sha256

MAX_FILE_NAME_BYTES = 255
STRANGE = "~"  # begins the directories of topics whose names cannot be one; no topic that clients may make begins so


def directory_of(topic: str) -> str:
    """One file name for each topic, never a path."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > MAX_FILE_NAME_BYTES:
        return STRANGE + sha256(topic.encode()).hexdigest()
    return topic


def word_of(topic: str) -> str:
    """The topic as one word of a text line; as it is wherever it is one."""
    if topic.isprintable() and " " not in topic and topic[:1] not in ("", STRANGE):
        return topic
    return STRANGE + topic.encode().hex()


def topic_of(word: str) -> str:
    """The topic that `word_of` wrote. Raises ValueError."""
    return bytes.fromhex(word[1:]).decode() if word.startswith(STRANGE) else word
