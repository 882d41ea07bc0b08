"""What a leader knows of every member, and when that is a quorum.

Data and arithmetic without a view of the log or of `State`; the rules in `raft` read and change it.
Start with `tracker.py` (majorities: commit index, votes, activity); then `progress.py` (one
member), `read_rounds.py` (who confirmed a read), `room.py` (what the disks take).
"""
