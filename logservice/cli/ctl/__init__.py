"""The commands of `logctl`: records, shards, the cluster, access, `top` and the doctor.

`client_session.py` is what they share. `cluster_look.py` looks at a cluster from outside, and
`diagnosis.py` decides what the doctor says about it. Start with `records.py`. Only `processes/`
imports from here.
"""
