"""Whether the columns of a schema hold all of a JSON body that Spark could read. No Spark but its types.

Spark's reader passes over fields that the schema does not have and over everything behind the first value, rounds decimals and
other fractions, and cuts times.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

ALL, PART, SEVERAL = 0, 1, 2
_FINER = re.compile(r"\.\d{6}\d*[1-9]")  # than a microsecond
_HALF = re.compile("[\ud800-\udfff]")  # of a character
_MOST_S = 9_223_372_036_854  # from 1970 on, which Spark counts in microseconds of 64 bits
_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z")


def _named_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("a name comes twice")
    return found


_decode = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_named_once).raw_decode


def held(body: bytes | None, schema: StructType) -> int:
    """ALL or PART of the body, which Spark has read with that schema; SEVERAL: it is more than one value."""
    try:
        text = (body or b"").decode().strip()
        value, end = _decode(text)
    except (ValueError, RecursionError):
        return PART  # Spark is more lenient, and takes the last field of a name
    if end < len(text):
        return SEVERAL
    return ALL if _holds(schema, value) else PART


def _holds(kind: DataType, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(kind, StructType):
        kinds = {field.name: field.dataType for field in kind.fields}
        return isinstance(value, dict) and all(name in kinds and _holds(kinds[name], each) for name, each in value.items())
    if isinstance(kind, ArrayType):
        return isinstance(value, list) and all(_holds(kind.elementType, each) for each in value)
    if isinstance(kind, MapType):
        return isinstance(value, dict) and all(_holds(kind.valueType, each) for each in value.values())
    if isinstance(kind, StringType | VariantType):
        return _is_text(value)
    if isinstance(kind, DecimalType):
        return _fits(kind, value)
    if isinstance(kind, DateType):
        return isinstance(value, str) and bool(_DAY.match(value))
    if isinstance(kind, TimestampType | TimestampNTZType):
        return abs(value) <= _MOST_S if isinstance(value, int) else isinstance(value, str) and not _FINER.search(value)
    if isinstance(kind, FloatType | DoubleType):
        return isinstance(value, str) or _is_near(np.float32 if isinstance(kind, FloatType) else np.float64, value)
    return not isinstance(value, Decimal)


def _is_text(value: Any) -> bool:
    """Whether Spark's text of it, which is JSON again for what is no text, is the same: not of fractions and half characters."""
    if isinstance(value, dict):
        return all(map(_is_text, value)) and all(map(_is_text, value.values()))
    if isinstance(value, list):
        return all(map(_is_text, value))
    return not (isinstance(value, Decimal) or (isinstance(value, str) and _HALF.search(value)))


def _is_near(kind: type[np.floating[Any]], value: Any) -> bool:
    """Whether the number of that kind is the value, or is written like it."""
    try:
        with np.errstate(over="ignore"):
            nearest = kind(float(value))
        return Decimal(value) in (Decimal(float(nearest)), Decimal(str(nearest)))
    except (OverflowError, TypeError, ValueError):
        return False


def _fits(kind: DecimalType, value: Any) -> bool:
    try:
        exponent = Decimal(value).normalize().as_tuple().exponent
    except (InvalidOperation, TypeError, ValueError):
        return False
    return isinstance(exponent, int) and -exponent <= kind.scale
