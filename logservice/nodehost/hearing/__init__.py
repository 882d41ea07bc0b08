"""Hearing: which Raft messages of its peers a replica believes enough to hand them to its core.

Theory of operation. Raft trusts its members: whoever writes a higher term into a message deposes
the leader, whoever says that it leads is followed. A certificate of the peer CA proves the name of
a store and nothing else. So this package stands between the transport and the core. It is in the
shell, because the core is the published algorithm and stays that. Each file has one rule:

| file | rule |
|---|---|
| `members` | only members are heard, as the store and data directory they are bound to |
| `term_budget` | a term rises by bounded steps, and only so often by messages of one member |
| `leadership` | what only a leader says is heard from a member whom a majority elected |
| `transfers` | a candidate passes by leader stickiness only where the leader asked for it |
| `asking` | a question of a replica is answered for a member that the peer speaks for |
| `vouching` | replicas ask each other whom they stand behind, and announce a hand-over |
| `contents` | what is inside a snapshot or an append fits its header and what is committed |
| `strangers` | HAKeeper is asked who the members are, when somebody unknown speaks |
| `refusals` | what is not heard is counted by reason and logged once |
| `hearing` | the rules are asked in their order |

A message that is not heard is dropped, as a network may drop it; Raft repeats what it needs. None
of the rules weakens Raft: each only turns "heard" into "lost".

There are members that the rules cannot stop: Raft does not survive a member that wins an election
and lies as a leader, that votes twice, or that acknowledges what its disk does not have. Such a
member harms the shards that it is a member of; the comparison of replicas and the invariants find
it.

Start at `hearing.py`. Replicas, NodeHost, the first start and whoever answers a replica import this
package. It knows a replica only by what `asking` and `vouching` need of one, and imports `peers`
and `transport` of this layer.

References: THREAT_MODEL.md; Raft thesis sections 3.6 and 4.2.3.
"""
