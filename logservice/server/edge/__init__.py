"""What stands between a socket and a service: every connection, call and answer passes here.

It imports `audit` and nothing of `services`, which import it. Start with `guard.py`, which puts the
checks of a call in order. `gate.py` decides who may call what. `connections.py` and
`undelivered.py` bound what a connection costs before there is a call, and `answers.py` bounds what
an answer costs. `call.py` says how long a call may take
and how it ends.
"""
