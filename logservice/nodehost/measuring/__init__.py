"""What a store measures of its machine when a person asks: its disks and the ways to other stores.

`server.measuring` lets one measurement in at a time and ends each. `disk.py` and `network.py`
measure, `figure.py` judges. Nothing here runs unless somebody asks. Start reading with `disk.py`.
"""
