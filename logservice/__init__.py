"""A replicated write-ahead log as a service: the server distribution.

Start with ARCHITECTURE.md, then `ids.py` and `entry.py`. The layers are `cli, server -> nodehost ->
{hakeeper, rsm, raft, logdb}` and the layer-0 modules of this folder, which import nothing of ours
but `logservice_wire`'s error table.
"""
