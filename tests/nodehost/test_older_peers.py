"""A question that only the newer program knows, asked of a store with the older one."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument, NotReady

from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.nodehost.peers.question import NOTHING, Asker, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.transport.seam import PeerIdentity

ME = PeerIdentity(ClusterId("c"), StoreId("s1"), (Incarnation(1),), 1)
NEW = question("a.new.one", Asker.ENROLLED, NOTHING, NOTHING)


class OlderStore:
    """A store that answers as release 0.1.0 does."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        raise self.error


async def test_a_question_that_an_older_program_does_not_know_is_for_later() -> None:
    unknown = InvalidArgument("unknown peer method", field="method")
    requests = PeerRequests(ME, OlderStore(unknown), lambda *_: None)
    with pytest.raises(NotReady, match=r"program of s2 does not know the question a\.new\.one"):
        await requests.ask("s2", NEW, None, 1.0)


async def test_what_it_says_of_the_request_itself_stays_what_it_is() -> None:
    wrong = InvalidArgument("too long", field="body")
    requests = PeerRequests(ME, OlderStore(wrong), lambda *_: None)
    with pytest.raises(InvalidArgument, match="too long"):
        await requests.ask("s2", NEW, None, 1.0)
