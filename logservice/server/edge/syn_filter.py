"""syn_filter: the kernel drops most of the connections that a flood begins, before they are there.

Theory of operation. gRPC accepts whatever the kernel has connected, so a bound that is kept by
looking (`connections`) is exceeded by what comes between two looks. A filter on the listening
socket (``SO_ATTACH_FILTER``, which needs no privilege) sees the first packet of each connection,
its SYN. Of the SYNs of an address in a flood it lets one in 2, 4, 8 and so on through, by a die
that the kernel throws. So fewer come between two looks. Whoever sits behind the same address has
the same chance with every SYN, and the kernel sends another one after 1, 3 and 7 s. With every SYN
dropped it would have none while the flood lasts. Other addresses are not touched.

Which addresses are in a flood, and how small their share is, follows from their *excess*: how many
of their connections were cut for a bound and are still open. Below FLOOD_EXCESS_MAX nothing
happens, so a client that connects now and then is never dropped. Above it the share shrinks with
each look, by as much as the excess is too large. It grows again when the excess is half as large or
less, until the address leaves the filter.

INV-SYN-1: the filter drops nothing but a SYN without ACK of an address in it. An accepted
connection inherits the filter and keeps it after the listening socket has lost it, so whatever
belongs to a connection passes.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from logservice import bounds

_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")
"""The last number is that of dropped packets."""

_INSTRUCTION: Final = struct.Struct("=HBBI")
_PROGRAM: Final = struct.Struct("@HP")

# Instructions of classic BPF: code, and how many to skip when the comparison holds or not.
_LOAD_WORD: Final = 0x20
_LOAD_BYTE: Final = 0x30
_AND: Final = 0x54
_JUMP: Final = 0x05
_IF_EQUAL: Final = 0x15
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_IP_HEADER: Final = 0xFFF00000
"""SKF_NET_OFF: offsets from here are into the IP header; others are into the TCP header."""
_RANDOM: Final = 0xFFFFF000 + 56
"""SKF_AD_RANDOM: loads a random word."""

_FLAGS_AT: Final = 13
_SYN: Final = 0x02
_ACK: Final = 0x10
_SOURCE_AT: Final = {4: 12, 6: 8}

_DROP: Final = (_RETURN, 0, 0, 0)
_PASS: Final = (_RETURN, 0, 0, 0xFFFFFFFF)

_Instruction = tuple[int, int, int, int]


class Floods:
    """Which addresses are in a flood."""

    def __init__(self) -> None:
        self.halvings: dict[str, int] = {}
        """How often the share of an address was halved: of n, one SYN in 2 ** n passes."""

    def look(self, excess: Mapping[str, int]) -> bool:
        """Take in the excess of every address that has any; True: `halvings` is another one now."""
        before = dict(self.halvings)
        for address in list(self.halvings):
            if excess.get(address, 0) <= bounds.FLOOD_EXCESS_MAX // 2:
                self.halvings[address] -= 1
                if not self.halvings[address]:
                    del self.halvings[address]
        for address, count in sorted(excess.items(), key=lambda one: one[1], reverse=True):
            known = self.halvings.get(address)
            if count <= bounds.FLOOD_EXCESS_MAX or (
                known is None and len(self.halvings) >= bounds.FLOOD_ADDRESSES_MAX
            ):
                continue
            more = (count // bounds.FLOOD_EXCESS_MAX).bit_length()
            self.halvings[address] = min((known or 0) + more, bounds.FLOOD_HALVINGS_MAX)
        return self.halvings != before


def program(halvings: Mapping[str, int]) -> list[_Instruction]:
    """The filter that lets one SYN in 2 ** n of each address through, and everything else."""
    parts: dict[int, list[_Instruction]] = {4: [], 6: []}
    for text, count in halvings.items():
        address = ipaddress.ip_address(text)
        parts[address.version] += _of_address(address.packed, _SOURCE_AT[address.version], count)
    return [
        (_LOAD_BYTE, 0, 0, _FLAGS_AT),
        (_AND, 0, 0, _SYN | _ACK),
        (_IF_EQUAL, 1, 0, _SYN),
        _PASS,
        (_LOAD_BYTE, 0, 0, _IP_HEADER),
        (_AND, 0, 0, 0xF0),
        (_IF_EQUAL, 1, 0, 4 << 4),
        (_JUMP, 0, 0, len(parts[4]) + 1),
        *parts[4],
        _PASS,
        *parts[6],
        _PASS,
    ]


def _of_address(packed: bytes, source_at: int, count: int) -> Iterator[_Instruction]:
    """The lines for one address: they fall through to the next one when it is another."""
    end = [
        (_LOAD_WORD, 0, 0, _RANDOM),
        (_IF_ANY_BIT, 1, 0, (1 << count) - 1),
        _PASS,
        _DROP,
    ]
    words = [word for (word,) in struct.iter_unpack("!I", packed)]
    for at, word in enumerate(words):
        skipped = 2 * (len(words) - at - 1) + len(end)
        yield _LOAD_WORD, 0, 0, _IP_HEADER + source_at + 4 * at
        yield _IF_EQUAL, 0, skipped, word
    yield from end


def attach(listening: socket.socket, halvings: Mapping[str, int]) -> None:
    """Put the filter in the place of the one that is there. Raises OSError: the kernel refuses."""
    lines = program(halvings)
    held = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*line) for line in lines))
    option = _PROGRAM.pack(len(lines), ctypes.addressof(held))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


def detach(listening: socket.socket) -> None:
    """Take the filter away. Raises OSError: there is none."""
    listening.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def dropped(listening: socket.socket) -> int:
    """How many packets for this socket the kernel has dropped. Raises OSError."""
    counted: int = _MEMINFO.unpack(
        listening.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    )[-1]
    return counted
