"""What shows whether something is looked up, or looked for."""


class Name(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__
