"""The bytes between stores, and what may be held of those that are not whole.

From the inside out: `codec.py` (Raft messages), `control.py` (handshake, requests, answers),
`chunks.py` (large snapshots), `frame.py` (framing and checksums; start there),
`receive_budget.py` (how much unfinished input this process holds). Imported by the transports only;
it imports the seam.
"""
