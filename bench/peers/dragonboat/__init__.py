"""Dragonboat v4: many Raft groups in a process, in Go; nearest to this service in what it does.

``main.go`` is three NodeHosts and their callers in one process, ``dragonboat`` the peer, once for
each of its log engines.
"""
