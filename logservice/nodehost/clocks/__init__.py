"""What a store makes of its own clock.

Start at `clock_watch.py`: it asks the stores beside this one what time it is, and says which time a
leader may stamp. `agreement.py` is the pure half: what a majority agrees on. A store whose clock is
wrong gives its leaderships away in `routing/clock_leaving.py`.
"""
