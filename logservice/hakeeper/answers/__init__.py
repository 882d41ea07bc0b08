"""What can be looked up in shard 0: `queries.py` is the question, `views.py` the answer.

An answer is a copy of a part of the state and changes nothing. `rsm.py`, `nodehost/` and the edge
import it.
"""
