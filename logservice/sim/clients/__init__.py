"""What users of the simulated cluster do, and how it is judged when the run is over.

May be imported by `world` and by the rogue, whose pulse is a client. Start with `client.py` (one
client and what it remembers), then `workload.py` (appends, reads, everything else), `neighbour.py`
(a client that must not succeed), `holder.py` (one that holds a log and dies),
`holding_reader.py` (one that reads what it holds), `job.py` (work that is done again, twice and too
late), `forker.py` (whoever has a log go on as another history), `restorer.py` (one that restores a
log), `loud.py` (one that appends more than the disks take) and `final_checks.py`.
"""
