"""testing: a real cluster for the tests of a program that uses the log service.

`local_cluster` starts it, with the server that is installed beside the client or named by
LOGSERVICE_COMMAND (`server_command.py`). `keeper.py` is the process that ends it whatever becomes
of the tests. `fixtures.py` is for pytest.
"""

from logservice_client.testing.cluster import Cluster, local_cluster

__all__ = ["Cluster", "local_cluster"]
