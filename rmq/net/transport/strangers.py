"""What the log says of strangers who are not taken: it must not grow by what they repeat."""

from typing import Final

_PERIOD_S: Final = 10.0
_MOST_REASONS: Final = 8


class Told:
    """The reasons that were told lately: each once in ten seconds, and eight of them."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._forget_at = 0.0

    def is_new(self, why: str, now: float) -> bool:
        """Whether that is to be told; then it counts as told. `now`: seconds of the loop's clock."""
        if now >= self._forget_at:
            self._reasons.clear()
            self._forget_at = now + _PERIOD_S
        if why in self._reasons or len(self._reasons) >= _MOST_REASONS:
            return False
        self._reasons.add(why)
        return True
