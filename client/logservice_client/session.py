"""Session: what OpenSession answered, as it goes with every append."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Session:
    """A session of this client's identity. The nonce is a secret: it is never shown or logged."""

    session_id: int
    nonce: bytes = field(repr=False)
