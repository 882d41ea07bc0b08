"""What HAKeeper knows from others: who belongs to the cluster, who lives, and what is believed.

It changes the state by reports, and by what people decide about stores and access. It plans
nothing. `repair/`, `answers/` and `rsm.py` import it. Start with `heartbeats.py`; `health.py` says
who is alive.
"""
