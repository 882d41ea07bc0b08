"""The commands of `logctl`: records, shards, the cluster, access, `top` and the doctor.

`client_session.py` is what they share. `outside_view.py` asks the stores from outside; what the
doctor says about it is decided where the page gets it from, too (`server.monitor.cluster`). Start
with `records.py`. Only `processes/` imports from here.
"""
