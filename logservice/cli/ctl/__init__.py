"""The commands of `logctl`: records, shards, the cluster, access, `top` and the doctor.

`client_session.py` is what they share; `cluster_look.py` is how a cluster is seen from outside, and
`diagnosis.py` what the doctor makes of it. Start with `records.py`; only `processes/` imports from
here.
"""
