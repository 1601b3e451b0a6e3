"""The journal on disk: one JSON object a line, each with its own checksum, in segment files named by their first line.

    {"seq":42,"kind":"usage","row":{...},"crc":"1c291ca3"}

Writes a line and reads lines back. Zeros after the last line and a torn end (power loss, kill, full disk) are normal
and skipped. A damaged line in the middle is reported and its file kept, because an acknowledged row may be in it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from tollgate.ledger.durable_files import keep_aside

log = logging.getLogger("tollgate.ledger")

SUFFIX = ".jsonl"
_TAIL = len(b',"crc":"00000000"}')


class Entry(NamedTuple):
    """One durable event; `line` is the JSON text without its newline."""

    seq: int
    kind: str
    line: bytes


def write_line(seq: int, kind: str, row: bytes) -> bytes:
    """The line of one event, newline included; `row` is JSON already."""
    head = b'{"seq":%d,"kind":"%b","row":' % (seq, kind.encode())
    return b'%b%b,"crc":"%08x"}\n' % (head, row, zlib.crc32(row, zlib.crc32(head)))


def read_line(line: bytes) -> Entry | None:
    """The event in a line (without newline), or None when it is torn or damaged."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    head = orjson.loads(line)
    return Entry(head["seq"], head["kind"], line)


def segment_path(directory: Path, first_seq: int) -> Path:
    """The file of the segment that starts with this event."""
    return directory / f"{first_seq:020d}{SUFFIX}"


def segments(directory: Path) -> list[Path]:
    """All segments, oldest first."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def read_segment(path: Path, after: int) -> Iterator[Entry]:
    """The events of one file with a `seq` above `after`, in order.

    A retry after a failed write begins a new segment with the same events, so the same `seq` may be in two files.
    """
    lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    entries = [read_line(line) for line in lines]
    end = max((number for number, entry in enumerate(entries, start=1) if entry), default=0)
    for entry in entries[:end]:
        if entry is not None and entry.seq > after:
            after = entry.seq
            yield entry
    damaged = entries[:end].count(None)
    torn = sum(1 for line in lines[end:] if line)
    if torn:
        log.warning(
            "journal %s: its end is torn (an interrupted write), %d unacknowledged line(s) skipped", path.name, torn
        )
    if damaged:
        kept = path.with_suffix(".damaged")
        if not kept.exists():
            keep_aside(path, kept)
        log.error(
            "journal %s: %d damaged line(s) before intact ones; the file is kept as %s", path.name, damaged, kept.name
        )


def read_all(directory: Path, after: int) -> Iterator[Entry]:
    """Every event with a `seq` above `after`, each once."""
    for path in segments(directory):
        for entry in read_segment(path, after):
            after = entry.seq
            yield entry
