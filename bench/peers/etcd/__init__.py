"""etcd: a Raft group with an fsync on a majority before the ack, and gRPC.

``wire`` encodes its requests, ``members`` starts a cluster, ``etcd`` is the peer: Debian's package,
and a current release that go.mod pins.
"""
