"""examples: the ones at the end of every command's ``--help``, in one place.

`attach` gives them to a command and every command below it when it is loaded. A test checks that
every command has some, and that each of them is a command line that the program takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "logctl append": (
        "logctl append 1 'first record' 'second record'",
        "logctl append 1 --batch 1000 < lines.txt",
        "logctl append 1 --epoch 7 --expected-lsn 4711 'only if nobody else wrote'",
    ),
    "logctl read": (
        "logctl read 1",
        "logctl read 1 --from 4711 --count 10 -o json",
        "logctl read 1 --raw --until 100 > first-hundred",
    ),
    "logctl follow": ("logctl follow 1", "logctl follow 1 --from 4711 -o json"),
    "logctl truncate": (
        "logctl truncate 1 4711",
        "logctl truncate 1 4711 --epoch 7",
    ),
    "logctl writer acquire": (
        "logctl writer acquire 1 db-primary",
        "logctl writer acquire 1 db-standby --takeover",
    ),
    "logctl writer release": ("logctl writer release 1 7",),
    "logctl hold set": (
        "logctl hold set 1 nightly-backup 4711",
        "logctl hold set 1 nightly-backup 4711 --ttl 3600",
    ),
    "logctl hold renew": ("logctl hold renew 1 nightly-backup",),
    "logctl hold list": ("logctl hold list 1", "logctl hold list 1 -o json"),
    "logctl session list": (
        "logctl session list 2",
        "logctl session list 2 'spark-stream/*' --unused-for 30d",
    ),
    "logctl session forget": (
        "logctl session forget 2 'spark-stream/0b7c*' --unused-for 7d",
        "logctl session forget 2 spark-write/nightly/0 --owner URI --override",
    ),
    "logctl hold release": (
        "logctl hold release 1 nightly-backup",
        "logctl hold release 1 nightly-backup --override",
    ),
    "logctl lsn-at": (
        "logctl lsn-at 1 2026-11-25T16:40:00Z",
        "logctl lsn-at 1 1795624800 -o json",
    ),
    "logservice archive run": (
        "logservice archive run -c archive.toml",
        "logservice archive run -c archive.toml --once",
    ),
    "logservice archive status": ("logservice archive status -c archive.toml --live",),
    "logservice archive restore": (
        "logservice archive restore -c archive.toml shop-orders --check",
        "logservice archive restore -c archive.toml shop-orders --as shop-orders-2 --to-lsn 4711",
        "logservice archive restore -c archive.toml shop-orders --as shop-orders-2 "
        "--to 2026-11-25T16:40:00Z",
        "logservice archive restore -c archive.toml shop-orders --as shop-orders-2 --give-up",
    ),
    "logservice archive restore-all": (
        "logservice archive restore-all -c archive.toml --check",
        "logservice archive restore-all -c archive.toml --grants -o json",
        "logservice archive restore-all -c archive.toml --to 2026-11-25T16:40:00Z",
    ),
    "logservice mirror run": ("logservice mirror run -c mirror.toml",),
    "logservice mirror status": (
        "logservice mirror status -c mirror.toml",
        "logservice mirror status -c mirror.toml -o json",
    ),
    "logservice mirror promote": (
        "logservice mirror promote -c mirror.toml shop-orders --check",
        "logservice mirror promote -c mirror.toml shop-orders",
        "logservice mirror promote -c mirror.toml shop-orders "
        "--source-is-not-fenced-and-lsns-may-be-missing shop-orders",
    ),
    "logservice archive verify": (
        "logservice archive verify -c archive.toml",
        "logservice archive verify -c archive.toml --live -o json",
    ),
    "logctl digest": (
        "logctl digest 1 1 50001",
        "logctl digest 1 1 50001 --all-replicas -o json",
    ),
    "logctl timestamps": ("logctl timestamps 1", "logctl timestamps 1 1000 -o json"),
    "logctl admit": ("logctl admit store-4", "logctl admit store-4 --hakeeper"),
    "logctl joining": ("logctl joining by-verb", "logctl joining automatic"),
    "logctl upgrade status": ("logctl upgrade status", "logctl upgrade status -o json"),
    "logctl upgrade raise": ("logctl upgrade raise --wait",),
    "logctl transfer": ("logctl transfer 1", "logctl transfer 1 store-2"),
    "logctl shard create": (
        "logctl shard create",
        "logctl shard create orders --replicas 3",
        "logctl shard create orders --protect --label team=shop --request-id orders-1",
    ),
    "logctl shard show": ("logctl shard show 7", "logctl shard show 7 --stale -o json"),
    "logctl shard resolve": ("logctl shard resolve orders",),
    "logctl shard set": (
        "logctl shard set 7 --replicas 5",
        "logctl shard set 7 --name old-orders --no-protect --label team=attic",
        "logctl shard set 7 --retention-age 7d --retention-bytes 0",
    ),
    "logctl shard close": ("logctl shard close 7",),
    "logctl shard delete": (
        "logctl shard delete 7 --name old-orders",
        "logctl shard delete 7 --name old-orders --force",
    ),
    "logctl shards": (
        "logctl shards",
        "logctl shards --state closed --label team=shop -o json",
        "logctl shards --truncation --stuck -o json",
    ),
    "logctl stores list": ("logctl stores list", "logctl stores list -o json"),
    "logctl stores drain": (
        "logctl stores drain store-3 --wait 1h",
        "logctl stores drain store-3 --reason 'a new board'",
    ),
    "logctl stores undrain": ("logctl stores undrain store-3",),
    "logctl stores read-only": ("logctl stores read-only store-3",),
    "logctl stores read-write": ("logctl stores read-write store-3",),
    "logctl stores forget": (
        "logctl stores forget store-3",
        "logctl stores forget store-3 --lost",
    ),
    "logctl stores impact": ("logctl stores impact store-1 store-2 -o json",),
    "logctl operators list": ("logctl operators list -o json",),
    "logctl operators cancel": ("logctl operators cancel 4711",),
    "logctl cluster settings": ("logctl cluster settings -o json",),
    "logctl cluster set": (
        "logctl cluster set --store-timeout 600",
        "logctl cluster set --replicas 5 --joining by-verb",
        "logctl cluster set --replica-balance on",
    ),
    "logctl cluster zones": ("logctl cluster zones", "logctl cluster zones -o json"),
    "logctl cluster rebalance": (
        "logctl cluster rebalance --dry-run",
        "logctl cluster rebalance --replicas --wait 1h",
        "logctl cluster rebalance --stop",
    ),
    "logctl cluster phase": (
        "logctl cluster phase",
        "logctl cluster phase commands_received",
    ),
    "logctl cluster repair-off": (
        "logctl cluster repair-off store-3 --for 1h --reason 'a new board'",
    ),
    "logctl cluster repair-on": ("logctl cluster repair-on store-3",),
    "logctl shard branch": (
        "logctl shard branch 7 orders-trial --check",
        "logctl shard branch 7 orders-trial --to-lsn 4711",
        "logctl shard branch 7 orders --into b1:7401,b2:7401 --into-tls-ca b-ca.pem "
        "--into-tls-cert b.pem --into-tls-key b.key",
        "logctl shard branch 7 orders-trial --give-up",
    ),
    "logctl shard adopt": ("logctl shard adopt data/RECOVERED --i-know-records-may-be-lost ann",),
    "logctl shard move": ("logctl shard move 7 store-1 store-4 --wait 1h",),
    "logctl shard add-replica": ("logctl shard add-replica 7 store-4",),
    "logctl shard remove-replica": ("logctl shard remove-replica 7 store-1",),
    "logctl shard wishes": ("logctl shard wishes -o json",),
    "logctl shard cancel": ("logctl shard cancel 12",),
    "logctl shard pin": (
        "logctl shard pin 7 store-2 --for 1h --reason 'near its writers'",
        "logctl shard pin 7 --for 1h --reason 'a measurement'",
    ),
    "logctl shard unpin": ("logctl shard unpin 7",),
    "logctl store": (
        "logctl store store-2",
        "logctl store 10.0.0.1:7401 -o json",
        "logctl store store-2 log-level debug --for 10m",
        "logctl store store-2 reload --dry-run",
        "logctl store store-2 directory add /mnt/disk-2/log",
        "logctl store store-2 directory drain /mnt/disk-1/log --wait 1h",
    ),
    "logctl repairs": ("logctl repairs", "logctl repairs -o json"),
    "logctl services list": ("logctl services list -o json",),
    "logctl services replayed": (
        "logctl services replayed",
        "logctl services replayed cn-1 -o json",
    ),
    "logctl services drain": ("logctl services drain cn-1",),
    "logctl services undrain": ("logctl services undrain cn-1",),
    "logctl services order": ("logctl services order cn-1 reload",),
    "logctl tn list": ("logctl tn list -o json",),
    "logctl tn create": ("logctl tn create 1", "logctl tn create 1 --identity tn"),
    "logctl tn delete": ("logctl tn delete 1",),
    "logctl events": (
        "logctl events",
        "logctl events --follow --kind store-down",
    ),
    "logctl ids": ("logctl ids", "logctl ids 100 --key orders"),
    "logctl diff": ("logctl diff cluster.toml", "logctl diff - --prune -o json < cluster.toml"),
    "logctl apply": (
        "logctl apply cluster.toml",
        "logctl apply cluster.toml --prune --yes -o json",
    ),
    "logctl export": ("logctl export > cluster.toml", "logctl export --ids"),
    "logctl acl grant": (
        "logctl acl grant spiffe://logservice.internal/cluster/c/client/db shard/7 append read",
        "logctl acl grant spiffe://logservice.internal/cluster/c/client/ops cluster read",
    ),
    "logctl acl revoke": (
        "logctl acl revoke spiffe://logservice.internal/cluster/c/client/db shard/7 append",
    ),
    "logctl acl deny": (
        "logctl acl deny spiffe://logservice.internal/cluster/c/client/etl '*' all --wait",
        "logctl acl deny 'spiffe://logservice.internal/cluster/c/client/test-*' shard/7 append",
    ),
    "logctl acl undeny": (
        "logctl acl undeny spiffe://logservice.internal/cluster/c/client/etl '*' all",
    ),
    "logctl acl check": (
        "logctl acl check spiffe://logservice.internal/cluster/c/client/etl 7 append",
        "logctl acl check spiffe://logservice.internal/cluster/c/client/ops 0 admin",
    ),
    "logctl identities": (
        "logctl identities",
        "logctl identities --denied",
        "logctl identities --unused-for 30d -o json",
        "logctl identities spiffe://logservice.internal/cluster/c/client/etl --each-store",
    ),
    "logctl quota set": (
        "logctl quota set --requests-per-s 5000 --connections 200",
        "logctl quota set spiffe://logservice.internal/cluster/c/client/etl --bytes-per-s 10000000",
    ),
    "logctl quota show": (
        "logctl quota show",
        "logctl quota show spiffe://logservice.internal/cluster/c/client/etl",
    ),
    "logctl quota clear": (
        "logctl quota clear --only connections",
        "logctl quota clear spiffe://logservice.internal/cluster/c/client/etl",
    ),
    "logctl acl list": ("logctl acl list", "logctl acl list -o json"),
    "logctl top": (
        "logctl top",
        "logctl top --sort lag --interval 1",
        "logctl top -o json",
    ),
    "logctl self-test": (
        "logctl self-test",
        "logctl self-test store-2 --no-network -o json",
    ),
    "logctl doctor": (
        "logctl doctor",
        "logctl --endpoints 10.0.0.1:7401,10.0.0.2:7401 doctor",
        "logctl doctor --fail-on danger -o json",
    ),
    "logservice store run": (
        "logservice store run -c /etc/logservice/store.toml",
        "logservice store run -c shared.toml --set store.store_id=store-2",
    ),
    "logservice store probe": (
        "logservice store probe",
        "logservice store probe 127.0.0.1:7601 --ready",
    ),
    "logservice store check-config": (
        "logservice store check-config -c /etc/logservice/store.toml",
    ),
    "logservice cluster up": (
        "logservice cluster up",
        "logservice cluster up --dir demo --stores 5 --shards 8 --tls",
    ),
    "logservice cluster env": ("logservice cluster env --dir demo",),
    "logservice cluster down": (
        "logservice cluster down --dir demo",
        "logservice cluster down --dir demo --kill",
    ),
    "logservice cluster status": ("logservice cluster status --dir demo -o json",),
    "logservice cluster start": ("logservice cluster start --dir demo store-2",),
    "logservice cluster stop": ("logservice cluster stop --dir demo store-2",),
    "logservice cluster kill": ("logservice cluster kill --dir demo store-2",),
    "logservice cluster add-store": (
        "logservice cluster add-store --dir demo",
        "logservice cluster add-store --dir demo spare",
    ),
    "logservice certs init": ("logservice certs init --dir certs --cluster production",),
    "logservice certs issue store": (
        "logservice certs issue store --dir certs store-1 --host store-1.example --host 10.0.0.1",
    ),
    "logservice certs issue client": ("logservice certs issue client --dir certs database",),
    "logservice certs rotate": (
        "logservice certs rotate --dir certs",
        "logservice certs rotate --dir certs store-1 --days 30",
    ),
    "logservice certs revoke": (
        "logservice certs revoke --dir certs client database",
        "logservice certs revoke --dir certs store store-1",
    ),
    "logservice certs lists": ("logservice certs lists --dir certs",),
    "logservice certs show": (
        "logservice certs show --dir certs",
        "logservice certs show --dir certs --within-days 14 -o json",
    ),
    "logservice audit verify": (
        "logservice audit verify data/audit",
        "logservice audit verify data/audit -o json",
    ),
    "logservice logdb check": (
        "logservice logdb check data",
        "logservice logdb check --live --headers-only data -o json",
    ),
    "logservice logdb dump": ("logservice logdb dump data -o json",),
    "logservice logdb records": (
        "logservice logdb records data 3 --from 1000 --until 2000",
        "logservice logdb records data 3 --live --raw",
    ),
    "logservice logdb stats": ("logservice logdb stats --live data",),
    "logservice recover inspect": ("logservice recover inspect data -o json",),
    "logservice recover write": (
        "logservice recover write --all --from data --to new-data --i-know-records-may-be-lost ann",
    ),
    "logservice logdb rebuild-index": ("logservice logdb rebuild-index data",),
}


def attach(command: click.Command, path: str) -> None:
    """Put the examples of `path` and of every command below it into their help."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            attach(child, f"{path} {name}")
    elif path in EXAMPLES:
        lines = "\n".join(f"  {line}" for line in EXAMPLES[path])
        command.epilog = f"\b\nExamples:\n{lines}"
