"""`logservice store` and `logservice cluster`: one store process, and a whole cluster of them here.

Start with `local_cluster.py`; `store_process.py` starts and stops one store. Tests, stories and
benchmarks import both.
"""
