"""The rogue store: an adversary inside the trust of the peer plane, with every number at hand.

Theory of operation. Some worlds have a rogue. It is either a *stranger*: a store with a certificate
of the peers' authority that is in no membership; or a *member*: one of the stores was taken over,
its honest process goes on working, and beside it the adversary sends whatever it likes in the
store's name (its `PeerIdentity`, which TLS proves), and sometimes answers in its place. The
adversary sees everything that all replicas know, which a real one could only guess. A world draws
some kinds of attacks (`attacks.ATTACKS`) and how many a second; a burst takes one kind.

What must hold (`watch`): nothing at all happens to shards that it has no replica of. In its own,
honest replicas keep every safety checker among themselves, none of them halts, and appends go on
within a bounded number of elections. No honest process ends. HAKeeper believes of others what is
true. What clients were told is read back at the end. It never stops, not even at the end.

What it does not do, because no protocol of 2f + 1 replicas stands it (`limits` holds exactly this
back, in shards of which it is a member, at the moment of delivery):

- acknowledge what its disk does not have. A majority of disks is all that a commit means (G1), so
  the one honest disk of two may be lost with what was acknowledged;
- vote for two in a term, or vote against what its log says, where that elects somebody: two
  majorities of honest and lying votes need share no honest voter;
- what a leader may do, in a term in which a majority may have voted for it. A vote that it gets for
  a log that it does not have is the same: what counts is that it then does not lead;
- take a read's confirmation back: it does not echo a context of a leader that it no longer follows,
  and worlds with a member have no lease reads, which rest on such promises alone;
- answer for HAKeeper, if it is a member of shard 0: stores believe those.

One in nine is a *traitor*: a member that holds nothing back in log shards, and so may ruin its own.
Even there no honest process ends, and nothing happens to other shards.

Its draws are its own: worlds without a rogue are what they would be without this package.

Reference: DESIGN section 21 (Trust).
"""

from __future__ import annotations

from logservice.sim.rogue.life import Rogue
from logservice.sim.rogue.worlds import Worlds, make_rogue

__all__ = ["Rogue", "Worlds", "make_rogue"]
