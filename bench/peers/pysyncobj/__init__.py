"""PySyncObj: Raft in Python, as a library; the only one of those that is kept up.

``node`` is a process with a replica and, where it leads, the callers; ``nodes`` starts three of
them and is the peer.
"""
