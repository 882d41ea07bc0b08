"""The archive: logs as Parquet objects with a manifest, made by a process beside the cluster.

It uses the client's public interface and nothing else of the service, so what it may do is what its
identity was granted: read and truncate (for its hold) over the logs, read over the cluster.

`manifest.py` is the place to start: what is true of an archive, whoever was killed when.
`shipping.py` brings one log there, `running.py` all the chosen ones. `range_file.py` is a range of
a log as Parquet. `folder.py` says what a place for files has to promise, and is a folder;
`bucket.py` is a bucket of S3. `sealing.py` encrypts objects. `verifying.py` reads everything again.
`cluster_document.py` is what an archive knows of the cluster besides records. `restore_plan.py`
says what can be restored, `restore_source.py` and `archived_blocks.py` read it, `restoring.py`
brings one log into a cluster, `copying.py` is how blocks get there, `restore_target.py` finds or
makes that log, and `restore_all.py` does all of them. `branching.py` and `living_blocks.py` do it
from a log that lives. `settings.py` is the configuration (`cluster_section.py` names a cluster),
`lag.py` the metrics.
"""
