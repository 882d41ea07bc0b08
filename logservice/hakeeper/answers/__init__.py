"""What can be looked up in shard 0: `queries.py` has the questions, `views.py` the answers.

An answer is a copy of a part of the state and changes nothing. `rsm.py`, `nodehost/` and the edge
import it. Start reading with `views.py`.
"""
