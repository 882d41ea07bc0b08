"""The replicas of a store: each is the shell around a core of `raft`, with the requests made of it.

`replica.py` is where to start: it takes what the core has ready to the disk, the network and the
state machine. A request waits in `intake.py` until it is in the log, in `pending.py` until it is
applied, in `reads.py` for a read index; `log_reading.py` serves ranges of the log. `catch_up.py`
is the rate at which members that are far behind get what they lack.
`replica_table.py` starts, stops, removes, halts and looks up replicas (`start.py`: from what);
`quiesce.py` says which of them are ticked, `role_log.py` logs who leads.

NodeHost, `routing`, `integrity`, `truncation` and `assembly` may import it; it imports `disks`,
`hearing`, `peers` and `transport` of this layer.
"""
