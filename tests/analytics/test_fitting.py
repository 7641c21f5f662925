"""Which JSON bodies the columns of a schema hold all of."""

import json

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from analytics.landing.fitting import ALL, PART, SEVERAL, held


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


SCHEMA = struct(
    id=LongType(),
    price=DecimalType(10, 2),
    at=TimestampType(),
    day=DateType(),
    place=struct(lat=DoubleType()),
    part=FloatType(),
    names=ArrayType(StringType()),
    counts=MapType(StringType(), IntegerType()),
    on=BooleanType(),
    any=StringType(),
)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ('{"id": 1, "price": 1.50, "at": "2026-11-21T10:00:00.123456Z", "day": "2026-11-21", "on": true}', ALL),
        ('{"place": {"lat": 0.1}, "names": ["a", null], "counts": {"x": 1}, "id": null} \n', ALL),
        ('{"any": "é"}', ALL),
        ('{"any": {"x": [1, true]}}', ALL),
        ("{}", ALL),
        ('{"id": 1, "more": 2}', PART),
        ('{"ID": 1}', PART),
        ('{"place": {"lat": 0.1, "lon": 5}}', PART),
        ('{"price": 1.239}', PART),
        ('{"price": "1.239"}', PART),
        ('{"price": "1.230"}', ALL),
        ('{"at": "2026-11-21T10:00:00.123456789Z"}', PART),
        ('{"day": "2026-11-21T10:00:00Z"}', PART),
        ('{"place": {"lat": 0.12345678901234567890}}', PART),
        ('{"place": {"lat": 9007199254740993}}', PART),
        ('{"place": {"lat": 1152921504606846976}}', ALL),
        ('{"place": {"lat": "NaN"}}', ALL),
        ('{"place": {"lat": 1e400}}', PART),
        (f'{{"place": {{"lat": {10**400}}}}}', PART),
        ('{"part": 0.1}', ALL),
        ('{"part": 0.123456789}', PART),
        ('{"part": 16777217}', PART),
        ('{"part": 1e39}', PART),
        ('{"at": 1795262400}', ALL),
        ('{"at": 1795262400000000000}', PART),
        ('{"any": 5.10}', PART),
        ('{"any": "\\ud800"}', PART),
        ('{"id": 1, "id": 2}', PART),
        ("{'id': 1}", PART),
        ("[" * 100_000, PART),
        ('{"id": 1}{"id": 2}', SEVERAL),
        ('{"id": 1}\n{"id": 2}\n', SEVERAL),
        ('{"id": 1} and more', SEVERAL),
    ],
)
def test_what_columns_hold(body: str, fits: int) -> None:
    assert held(body.encode(), SCHEMA) == fits


def test_what_is_no_text() -> None:
    assert held(b'{"any": "\xff"}', SCHEMA) == held(None, SCHEMA) == PART
    assert held(json.dumps({"any": "x" * 100_000}).encode(), SCHEMA) == ALL
