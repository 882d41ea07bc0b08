"""What is wrong with the cluster, and how it is mended without making it worse.

`checkers.py` compares wish and reports, `operators.py` carries a repair out, `placement.py` says
where a replica goes, and `safety.py` is the gate that no command passes unchecked. Only `rsm.py`
imports it inside `hakeeper/`. Start with `check.py`, which runs the others in their order, and
first marks as expired what is silent for longer than the cluster's store timeout.
"""
