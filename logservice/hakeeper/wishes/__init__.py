"""Verbs: how what people and controllers ask for becomes a wish in the replicated state.

A verb is judged once, when it is applied: by `impact.py`, and by what fits. From then on `repair/`
works for the wish. Only `rsm.py` imports this. Start with `verbs.py`.
"""
