"""How one configuration becomes another, on every replica alike.

`change.py` decides a committed change against the membership; start there. `changer.py` is the
arithmetic of joint consensus. `core` applies changes here, `leading/proposing.py` asks beforehand.
What a change is, as data, is layer 0: `logservice.config_change`.
"""
