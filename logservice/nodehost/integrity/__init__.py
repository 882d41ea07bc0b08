"""Finding and mending what no checksum or no single store shows.

`scrub.py` reads sealed segments again. `comparison.py` (start there) holds replicas against each
other from the leader's side, `comparison_answers.py` is the member's side, `digests.py` says what
is compared and asked, `divergence.py` who is wrong. `repair.py` restores a damaged replica from its
peers. Imported by `assembly/`; it reads replicas and asks other stores through `peers/`.
"""
