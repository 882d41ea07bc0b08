"""What an archived object opens to, known before any of it is opened.

Theory of operation. A Parquet file is untrusted: its footer says sizes, but a reader believes the
header of each page instead, and allocates what that says. A page of a few bytes may open to 2 GiB,
and a column in a dictionary repeats one large value for each row at the cost of some bits. So the
headers are walked, over the same bytes that a reader reads, and nothing is decompressed for it.
A reader allocates for a page what its header says, and no more. Texts and bytes have to be plain:
each value is then a part of its page, and opens to no more than the page does. Columns of a fixed
width open to that width for each row, and rows are read in batches, or counted before.

A header is judged strictly: a field that is there twice, or is of another type than the format has,
could be read otherwise by someone else.

INV-ARCHIVE-BOMB: behind `check_pages`, the columns `plain` open to at most `bytes_max` a row group,
beside a fixed number of bytes a row.

References: Apache Parquet, parquet.thrift (PageHeader); Thrift's compact protocol.
"""

from __future__ import annotations

import os
from collections.abc import Set
from typing import Any, BinaryIO, Final

from logservice_wire.bounds import (
    ARCHIVE_FOOTER_BYTES_MAX,
    ARCHIVE_PAGE_HEADER_BYTES_MAX,
    ARCHIVE_PAGES_MAX,
)

PLAIN: Final = frozenset({"record", "block"})
"""Columns of an object that hold bytes: without a dictionary, and no value is told by another."""

_MAGIC: Final = b"PAR1"
_CREATED_BY: Final = "parquet-cpp-arrow version "
"""Of older writers a reader reads some bytes behind a column, too, which are not walked here."""

_PLAIN: Final = 0
_IN_DICTIONARY: Final = 8
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS: Final = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}
"""By the type of a page: the field that has the rest of its header, and there the encoding's."""

_TYPE, _OPENED, _STORED = 1, 2, 3
_I32: Final = 5
_STRUCT: Final = 12
_DEPTH_MAX: Final = 8
_FIELD_MAX: Final = 100


class PagesRefused(ValueError):
    """A Parquet file that opens to more than it may, or is not of the form that is ours."""


def check_footer(file: BinaryIO) -> None:
    """Whether the end of a file is that of a Parquet file with a footer of a bounded size. Raises
    PagesRefused.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    if len(end) != 8 or end[4:] != _MAGIC:
        raise PagesRefused("it does not end as a Parquet file")
    length = int.from_bytes(end[:4], "little")
    if length > min(ARCHIVE_FOOTER_BYTES_MAX, size):
        raise PagesRefused(f"a footer of {length} bytes")


def check_pages(file: BinaryIO, metadata: Any, *, plain: Set[str], bytes_max: int) -> int:
    """The bytes that all pages open to. `metadata`: pyarrow's, of this file. Raises PagesRefused
    when a row group opens to more than `bytes_max`, or a column of `plain` is not plain.
    """
    if not str(metadata.created_by).startswith(_CREATED_BY):
        raise PagesRefused(f"it was written by {metadata.created_by!r}")
    pages = whole = 0
    for number in range(metadata.num_row_groups):
        group, opened = metadata.row_group(number), 0
        for column in range(group.num_columns):
            chunk = group.column(column)
            name = chunk.path_in_schema
            for stored, encoding in _headers(file, chunk):
                pages, opened = pages + 1, opened + stored
                if opened > bytes_max or pages > ARCHIVE_PAGES_MAX:
                    raise PagesRefused(f"a row group of more than {bytes_max} bytes, or many pages")
                if name in plain and encoding not in (None, _PLAIN):
                    raise PagesRefused(f"column {name} is not plain: encoding {encoding}")
        whole += opened
    return whole


def _headers(file: BinaryIO, chunk: Any) -> Any:
    """Of each page of a column: the bytes that it opens to, and its encoding; None: it has none."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    if chunk.file_path or not 0 < at <= end:
        raise PagesRefused(f"column {chunk.path_in_schema} lies at {at} to {end}")
    while at < end:
        file.seek(at)
        header, length = _read_struct(file.read(min(ARCHIVE_PAGE_HEADER_BYTES_MAX, end - at)), 0, 0)
        kind, opened, stored = (_number(header, field) for field in (_TYPE, _OPENED, _STORED))
        at += length + stored
        if at > end:
            raise PagesRefused(f"a page of column {chunk.path_in_schema} ends behind it")
        encoding = None
        if kind in _HEADERS:
            field, inner = _HEADERS[kind]
            encoding = _number(header.get(field, (_STRUCT, {}))[1], inner)
            if kind == _DICTIONARY:
                encoding = _IN_DICTIONARY  # the page is plain, and the rows point into it
        yield opened, encoding


def _number(header: Any, field: int) -> int:
    kind, value = header.get(field, (0, 0)) if isinstance(header, dict) else (0, 0)
    if kind != _I32 or not 0 <= value < 1 << 31:
        raise PagesRefused(f"field {field} of a page's header is missing or of no use")
    return int(value)


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, tuple[int, Any]], int]:
    """Thrift's compact protocol: the fields by their numbers, each with its type; and the end."""
    found: dict[int, tuple[int, Any]] = {}
    field = 0
    try:
        while (head := data[at]) != 0:
            at += 1
            kind, step = head & 15, head >> 4
            if step:
                field += step
            else:
                field, at = _varint(data, at)
                field = (field >> 1) ^ -(field & 1)
            if field in found or not 0 < field <= _FIELD_MAX or depth > _DEPTH_MAX:
                raise PagesRefused(f"field {field} of a page's header has no place there")
            value, at = _read_value(data, at, kind, depth)
            found[field] = kind, value
    except IndexError as error:
        raise PagesRefused("a page's header has no end") from error
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # a boolean field's value is its type
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            value, at = _varint(data, at)
            return (value >> 1) ^ -(value & 1), at
        case 7:
            return None, _within(data, at + 8)
        case 8:
            length, at = _varint(data, at)
            return None, _within(data, at + length)
        case 12:
            return _read_struct(data, at, depth + 1)
    raise PagesRefused(f"a page's header has a field of type {kind}")


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise PagesRefused("a number of a page's header has no end")
