"""What a handler returns that answers later."""

from enum import Enum
from typing import Final


class Later(Enum):
    """Type of `LATER`."""

    LATER = "later"


LATER: Final = Later.LATER
"""A handler returns it to say: I keep the call and answer through `call.answer` or `call.refuse`."""
