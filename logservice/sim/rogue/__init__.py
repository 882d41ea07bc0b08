"""The rogue store: an adversary inside the trust of the peer plane, with every number at hand.

Theory of operation. Some worlds have a rogue. A *stranger* is a store with a certificate of the
peers' authority that is in no membership. A *member* is one of the stores, taken over: its honest
process goes on working, and beside it the adversary sends whatever it likes in the store's name
(its `PeerIdentity`, which TLS proves), and sometimes answers in its place. The adversary sees
everything that any replica knows, which a real one could only guess. A world draws some kinds of
attacks (`attacks.ATTACKS`) and how many come a second; a burst is of one kind. The rogue never
stops, not even at the end.

What must hold (`watch`): nothing at all happens to shards that the rogue has no replica of. In its
own shards, honest replicas keep every safety rule among themselves, none of them halts, and appends
go on within a bounded number of elections. No honest process ends. What HAKeeper believes of others
is true. What clients were told is read back at the end. A change of membership may stay unfinished
while the rogue leads the shard, because HAKeeper waits for the leader's report.

What the rogue does not do, because no protocol of 2f + 1 replicas stands it (`limits` holds exactly
this back, in shards of which the rogue is a member, at the moment of delivery):

- acknowledge what its disk does not have. A majority of disks is all that a commit means (G1), so
  the one honest disk of two may be lost with what was acknowledged;
- vote for two in a term, or vote against what its log says, where that elects somebody: two
  majorities of honest and lying votes need share no honest voter;
- act as a leader in a term in which a majority may have voted for it. It may get votes for a log
  that it does not have; what counts is that it then does not lead;
- take a read's confirmation back: it does not echo a context of a leader that it no longer follows,
  and worlds with a member have no lease reads, which rest on such promises alone;
- answer for HAKeeper if it is a member of shard 0, because stores believe those members.

One in nine is a *traitor*: a member that holds nothing back in log shards, and so may ruin its own.
Even then no honest process ends, and nothing happens to other shards.

The rogue has a source of chance of its own, so a world without one is as if this package did not
exist. `world` alone imports the package, and `campaign` its draws. Start with `life.py` (when it
attacks), then `adversary.py` (how), `attacks.py`, `limits.py` and `watch.py`.

Reference: THREAT_MODEL.md.
"""

from __future__ import annotations

from logservice.sim.rogue.life import Rogue
from logservice.sim.rogue.worlds import Worlds, make_rogue

__all__ = ["Rogue", "Worlds", "make_rogue"]
