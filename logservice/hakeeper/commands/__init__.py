"""What is proposed to shard 0 and what goes back to stores, with its bounds and its byte form.

Plain data that knows nothing of the state: everything in `hakeeper/` and above may import it.
Start with `proposals.py`; `store_commands.py` is what HAKeeper tells a store to do.
"""
