"""One replica of one shard: the shell around a core of `raft`, and the requests made of it.

`replica.py` is where to start: it takes what the core has ready to the disk, the network and the
state machine. A request waits in `intake.py` until it is in the log, in `pending.py` until it is
applied, in `reads.py` for a read index; `log_reading.py` serves ranges of the log. `start.py` says
what a replica starts from, `role_log.py` logs who leads.

NodeHost, its routing and quiesce, and the passes of `integrity` may import it; it imports `disks`,
`hearing` and `transport` of this layer.
"""
