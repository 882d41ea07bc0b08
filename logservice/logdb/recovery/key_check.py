"""Key check: at the opening, before anything else, whether the ring has the keys of all segments.

Theory of operation. A label in its header says which key a segment is under, and its check, whether
the ring's key of that id is the same. A segment whose header does not verify says nothing: there
the first entry whose record verifies is tried with every key. Its checksum says that it is as it
was written; so if no key opens it, the key is missing. Where no such entry is left nothing needs a
key.

This comes first because a store that lacks a key would find no entry that it can read, and have its
replicas replaced one after the other (INV-ENC-3). Nothing is written here. A directory of cluster
version 1 has only plain segments, and is not looked at.
"""

from __future__ import annotations

from logservice.logdb.format.record import (
    ASSOCIATED_BYTES,
    SEGMENT_HEADER_BYTES,
    RecordCorrupt,
    decode_header,
    payload_view,
)
from logservice.logdb.format.segment import decode_segment_header, segment_name
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.io.segment_keys import UNKNOWN, KeysMissing
from logservice.logdb.io.survey import Survey


def check_keys(survey: Survey) -> None:
    """Find out which key each segment is under. Raises KeysMissing, SegmentVersionError, OSError
    (the disk is lost).
    """
    if problems := find_keys(survey):
        raise KeysMissing("; ".join(problems))


def find_keys(survey: Survey) -> list[str]:
    """The same for tools, which open what they can: returns what is missing."""
    keys, incarnation = survey.files.keys, survey.files.incarnation
    missing: set[str] = set()
    wrong: set[str] = set()
    lost: list[str] = []
    for segment in survey.files.ids():
        head = survey.read(segment, 0, SEGMENT_HEADER_BYTES)
        header = decode_segment_header(head, segment, incarnation)
        if header is None:
            if not _try_all(survey, segment):
                lost.append(segment_name(segment))
            continue
        keys.tags[segment] = header.label.tag
        cipher = keys.cipher(incarnation, segment)
        if cipher is not None and cipher.label != header.label:
            wrong.add(keys.name(header.label.tag))
            keys.refuse(segment)
        elif cipher is None and header.label.tag:
            missing.add(keys.name(header.label.tag))
    problems = [f"the key is not in the ring: {name}" for name in sorted(missing)]
    problems += [f"the ring has another key under the same id: {name}" for name in sorted(wrong)]
    return problems + [f"no key of the ring opens {name}, whose header is damaged" for name in lost]


def _try_all(survey: Survey, segment: int) -> bool:
    """Find out the key of a segment by its first entry; False when no key fits."""
    files = survey.files
    view, seed = survey.read_from(segment, 0), files.seed(segment)
    offset = _first_entry(view, segment, seed)
    files.keys.tags[segment] = 0
    if offset is None:
        return True
    header = decode_header(view, offset, seed)
    if not header.encrypted:
        return True
    payload = payload_view(view, offset, header, seed)
    for cipher in files.keys.candidates(files.incarnation, segment):
        try:
            cipher.open(payload, view[offset : offset + ASSOCIATED_BYTES])
        except RecordCorrupt:
            continue
        files.keys.begun(segment, cipher)
        return True
    files.keys.tags[segment] = UNKNOWN
    return False


def _first_entry(view: memoryview, segment: int, seed: int) -> int | None:
    for group in scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed).groups():
        for run in group.runs:
            if run.columns is not None:
                return run.columns.offsets[0]
    return None
