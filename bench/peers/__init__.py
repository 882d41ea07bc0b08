"""The systems that the bench compares us with, each as its users run it, with its safe settings.

``peer`` is the one interface that all of them have, ``catalogue`` the list of them in the order of
the report. Each other module is one peer. ``python -m bench.peers`` tries them all.
"""
