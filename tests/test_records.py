"""Tables and records: what is refused when reading, and that writing leaves a whole file or nothing."""

from pathlib import Path

import pyarrow as pa
import pytest

from jagg.errors import InputError
from jagg.records import atomic_path, read_table, write_json, write_table

SCHEMA = pa.schema([("name", pa.string()), ("number", pa.int64()), ("value", pa.float64())])


def test_a_binary_file_is_no_csv_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00\x01,\n\x80,2\n")
    with pytest.raises(InputError, match="cannot read a table"):
        read_table(tmp_path / "t.csv", SCHEMA)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name,number,value\na,1,0.5\n", None),
        ("name,number,value\n007,1,0.5\n", None),
        ("", "cannot read a table"),
        ("name,number\na,1\n", "no value"),
        ("name;number;value\na;1;0.5\n", "no name, number, value"),
        ("name,number,value\na,1,0.5\nb,2\n", "cannot read a table"),
        ("name,number,value\na,1,x\n", "value"),
        ("name,number,value\na,1.5,0.5\n", "number"),
        ("name,number,value\na,2020-01-01,0.5\n", "number"),
        ("name,number,value,value\na,1,0.5,0.6\n", "columns stand twice"),
        ("name,number,value,more,more\na,1,0.5,x,y\n", "columns stand twice"),
    ],
)
def test_csv_tables_that_are_read_and_refused(tmp_path: Path, text: str, named: str | None) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    if named is None:
        assert read_table(path, SCHEMA).to_pylist()[0]["name"] == text.splitlines()[1].split(",")[0]
    else:
        with pytest.raises(InputError, match=named) as caught:
            read_table(path, SCHEMA)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["table.parquet", "table.csv"])
def test_a_table_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    table = pa.table({"name": ["007", "b"], "number": [1, 2], "value": [0.5, None]}, schema=SCHEMA)
    write_table(tmp_path / name, table)
    assert read_table(tmp_path / name, SCHEMA).equals(table)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"a": 1})
    before = path.read_bytes()

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for place in ("file/record.json", "file/deeper/record.json", "folder"):
        with pytest.raises(InputError, match="cannot write a file"):
            write_json(tmp_path / place, {})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]
