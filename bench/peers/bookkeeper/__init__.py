"""Apache BookKeeper: a log service of ensembles and quorums, without a leader of its own.

``src/`` is a program with three bookies, a ZooKeeper and the callers in one JVM, which ``pom.xml``
builds; ``bookkeeper`` is the peer.
"""
