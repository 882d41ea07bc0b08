# One entry point per chore. Every target brings the environment up to date first; when it is, that
# costs a hash of a few files.
# Some environments forbid to keep bytecode. Then each process compiles the whole tree at its start, which is
# half of the time that a store or `logctl` needs to start. Tests and stories start thousands of them.
export PYTHONDONTWRITEBYTECODE =
PYTHON ?= python3
BIN := .venv/bin
KILLS ?= 30
MINUTES ?= 120
ROUNDS ?= 5
BUSY ?= --one-core --busy 2
SEEDS ?= 300
FIRST ?= 1
JOBS ?= 2
NIGHTLY_SEEDS ?= 10000
LEDGER ?= artifacts/sim-ledger.jsonl
LEDGERS ?= $(LEDGER)
STATES ?= 200000
CRASH_MINIMUM ?= 20000
FAULT_STRIDE ?= 1
BIT_STEP ?= 1
ROT_STRIDE ?= 4
RANDOM_STATES ?= 20000
CRASH_LEDGER ?= artifacts/crash-ledger.jsonl
SOAK_SECONDS ?= 7200
HOSTILE_SECONDS ?= 3600
POSTGRES := /usr/lib/postgresql/*/bin/initdb
ROTATION_LEDGER ?= artifacts/rotation-ledger.jsonl
# Files run in three processes, since tests of real processes often wait; a file's tests stay together. They run in the
# order of their names: the order of xdist, most tests first, leaves the files with one long test for the end. Six
# kinds of tests have lanes of their own.
# Tests marked `long` play many faults one after the other: a change runs what is short, `make test-long` the rest.
PYTEST_FLAGS ?= -n 3 --dist loadfile --no-loadscope-reorder -m "not long" --ignore=tests/ui --ignore=tests/docker --ignore=tests/surroundings --ignore=tests/hostile --ignore=tests/deploy/test_systemd.py --ignore=tests/deploy/test_runbooks.py --ignore=tests/deploy/test_prometheus.py --ignore=tests/deploy/test_schemas.py

.PHONY: help check test test-long test-busy coverage test-ui test-go test-java test-spark-4.2 test-prometheus test-s3 test-peers test-postgres test-runbooks test-surroundings test-hostile test-docker lint format types audit-dependencies lock imports proto proto-check protocol invariants limits commands settings rooms pictures moves sim random-states mutants nightly-sim nightly-rotation crash nightly-crash nightly-hostile strace demo demo-postgres demo-changes life recovery endurance demo-stream chaos upgrade bench bench-smoke bench-cost docs wheels image clean .venv

help: ## this list
	@grep -hE '^[a-z][a-z0-9.-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv: ## the environment, never built twice
	@$(PYTHON) tools/setup_environment.py

check: lint types imports test ## what a change must pass

test: .venv ## the tests that are not long; those for Spark when Java is there
	$(BIN)/python -m pytest $(PYTEST_FLAGS) $(TESTS)

test-long: .venv ## the long tests of all lanes: many faults one after the other, each a minute or more
	tools/need_program.sh faketime faketime
	tools/need_engine.sh
	LOGSERVICE_REQUIRE_FAKETIME=1 $(BIN)/python -m pytest -n 0 -m long tests

test-busy: .venv ## the tests on a machine that is made slow: make test-busy BUSY="--stand-still 3"
	$(BIN)/python -m tools.busy_machine $(BUSY) -- $(BIN)/python -m pytest $(PYTEST_FLAGS) $(TESTS)

coverage: .venv ## branch coverage of the consensus core by its own tests; less than all of it fails
	$(BIN)/python -m pytest -q tests/raft tests/paper tests/conformance --cov=logservice.raft \
	    --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

test-ui: .venv ## the page in a real Chromium (Debian's, installed when missing)
	tools/need_program.sh chromium chromium
	LOGSERVICE_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/ui

test-go: .venv ## the client of examples/go, built and run against a cluster
	LOGSERVICE_REQUIRE_GO=1 $(BIN)/python -m pytest -n 0 tests/examples/test_other_languages.py

test-java: .venv ## the client of examples/java, built and run against a cluster; as root Debian's JDK and Maven are installed when missing
	@tools/need_program.sh javac default-jdk-headless || echo "no javac: the tests will say so"
	@tools/need_program.sh mvn maven || echo "no mvn: the tests will say so"
	LOGSERVICE_REQUIRE_JAVA=1 $(BIN)/python -m pytest -n 0 tests/examples/test_other_languages.py

test-spark-4.2: .venv ## the tests for Spark on the oldest one that streams, with Delta; as root Debian's Maven is installed when missing
	tools/spark_4_2.sh $(BIN)/python -m pytest -n 0 $(or $(TESTS),tests/spark)

test-s3: .venv ## an archive in a bucket, on a server of S3's protocol in an environment of its own
	LOGSERVICE_REQUIRE_S3=1 $(BIN)/python -m pytest -n 0 tests/archive/test_bucket.py

test-peers: .venv ## the systems that the bench compares us with, each for real; what cannot be had here says so and is skipped
	LOGSERVICE_REQUIRE_PEERS=1 $(BIN)/python -m pytest -n 0 -rs tests/bench/test_peers.py

test-postgres: .venv ## the example of PostgreSQL against a real server (Debian's, installed when missing)
	tools/need_program.sh "$(POSTGRES)" postgresql
	LOGSERVICE_REQUIRE_POSTGRES=1 $(BIN)/python -m pytest -n 0 tests/examples/test_postgres_server.py tests/examples/test_postgres_tls.py tests/examples/test_postgres_keys.py

test-runbooks: .venv ## the commands of docs/operations/, run as they stand there; a third: LOGSERVICE_RUNBOOKS=1/3
	$(BIN)/python -m pytest tests/deploy/test_runbooks.py

test-surroundings: .venv ## clocks that jump, full pipes, cancelled tasks, forks, a hostile role, a forgotten store, on real processes
	tools/need_program.sh "$(POSTGRES)" postgresql
	tools/need_program.sh faketime faketime
	LOGSERVICE_REQUIRE_POSTGRES=1 LOGSERVICE_REQUIRE_FAKETIME=1 $(BIN)/python -m pytest -n 0 -m "not long" tests/surroundings

test-hostile: .venv ## attacks on real stores; they bound memory and stalls, so nothing else runs beside them
	$(BIN)/python -m pytest -n 0 -m "not long" tests/hostile

test-docker: .venv ## image, compose file, quick start, faults on a docker engine of its own; systemd's unit
	tools/need_engine.sh
	$(BIN)/python -m tests.docker -m "not long" tests/deploy/test_systemd.py

test-prometheus: .venv ## rules, alerts and dashboard with a real Prometheus (Debian's, installed when missing) and Grafana's types (npm)
	tools/need_program.sh promtool prometheus
	cd deploy/prometheus && promtool check config prometheus.yml && promtool test rules alerts_test.yml
	LOGSERVICE_REQUIRE_PROMETHEUS=1 $(BIN)/python -m pytest -n 0 tests/deploy/test_prometheus.py tests/deploy/test_schemas.py

lint: .venv ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv ## rewrite to the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv ## mypy --strict
	$(BIN)/mypy logservice client/logservice_wire client/logservice_client \
	    client/logservice_delta client/pyspark_logservice tools examples bench

audit-dependencies: ## known vulnerabilities of the pinned packages; says how many it looked up
	@$(PYTHON) -m tools.audit_dependencies $(AUDIT)

lock: ## hashes of everything that requirements/*.in pin
	@$(PYTHON) -m tools.lock_dependencies

imports: .venv ## the layers hold
	$(BIN)/lint-imports

proto: ## regenerate client/logservice_wire/v1
	tools/generate_proto.sh

proto-check: ## the committed generated code is what proto/ says
	tools/generate_proto.sh --check

protocol: .venv ## rewrite the tables of docs/protocol.md from the code
	$(BIN)/python -m tools.list_protocol --write

invariants: .venv ## rewrite docs/invariants.md from the code
	$(BIN)/python tools/list_invariants.py --write

moves: .venv ## files and moves of one Append, Read and Truncate
	@$(BIN)/python -m tools.count_moves

rooms: .venv ## the shape of the house: files, rooms, arrows, circles
	@$(BIN)/python -m tools.count_rooms

pictures: .venv ## those of README.md and ARCHITECTURE.md; the page's needs Chromium and a cluster
	$(BIN)/python -m tools.make_pictures
	tools/need_program.sh chromium chromium
	$(BIN)/python -m tools.take_screenshot

limits: .venv ## rewrite docs/limits.md from the code
	$(BIN)/python -m tools.list_limits --write

commands: .venv ## rewrite docs/commands.md from the programs
	$(BIN)/python -m tools.list_commands --write

settings: .venv ## rewrite docs/operations/configuration.md from the code
	$(BIN)/python -m tools.list_settings --write

sim: .venv ## clusters in virtual time with faults: make sim SEEDS=300 FIRST=1
	$(BIN)/python -m logservice.sim --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS) $(SIM_FLAGS)

mutants: .venv ## seeded bugs that the simulator must find
	$(BIN)/python -m logservice.sim.mutants --jobs $(JOBS)

nightly-sim: .venv ## thousands of short seeds; goes on where its ledger ends
	$(BIN)/python -m logservice.sim --short --seeds $(NIGHTLY_SEEDS) --first $(FIRST) --jobs $(JOBS) \
	    --ledger $(LEDGER) $(SIM_FLAGS)

random-states: .venv ## HAKeeper's rules on many random states: RANDOM_STATES=20000
	LOGSERVICE_RANDOM_STATES=$(RANDOM_STATES) $(BIN)/python -m pytest -n 0 tests/hakeeper

crash: .venv strace ## every disk that a crash can leave behind; I/O that fails; rot
	$(BIN)/python -m tests.crash --jobs $(JOBS) --minimum $(CRASH_MINIMUM) $(CRASH_FLAGS)
	$(BIN)/python -m tests.crash.faults --stride $(FAULT_STRIDE)
	$(BIN)/python -m tests.crash.every_bit --kib 8 --step $(BIT_STEP)
	$(BIN)/python -m tests.crash.unreadable
	$(BIN)/python -m tests.crash.rot --stride $(ROT_STRIDE)

nightly-crash: .venv strace ## the same and random scenarios, longer; its ledger goes on
	$(BIN)/python -m tests.crash --ledger $(CRASH_LEDGER) --states $(STATES) $(CRASH_FLAGS)
	$(BIN)/python -m tests.crash.faults
	$(BIN)/python -m tests.crash.every_bit --kib 64
	$(BIN)/python -m tests.crash.leveldb_faults
	for seed in 1 2 3; do $(BIN)/python -m tests.crash.rot --seed $$seed || exit 1; done

nightly-hostile: .venv ## the attacks of tests/hostile again and again: HOSTILE_SECONDS=3600
	$(BIN)/python -m tests.hostile --seconds $(HOSTILE_SECONDS)

strace: ## the recorder of `make crash`, from Debian; as root it is installed
	@tools/need_program.sh strace strace

nightly-rotation: .venv ## certificates replaced every 10 s under load: SOAK_SECONDS=7200
	$(BIN)/python -m tests.security.rotation --seconds $(SOAK_SECONDS) --every 10 \
	    --ledger $(ROTATION_LEDGER)

sim-sums: .venv ## figures of campaigns: make sim-sums LEDGERS="one.jsonl two.jsonl"
	$(BIN)/python -m logservice.sim.ledgers $(LEDGERS)

demo: .venv ## a database's WAL survives killed stores and is replayed on Spark
	$(BIN)/python -m examples.sqlite_wal

demo-postgres: .venv ## commits of PostgreSQL wait for the log; its machine is lost, restored, replaced: POSTGRES_FLAGS=--short
	tools/need_program.sh "$(POSTGRES)" postgresql
	$(BIN)/python -m examples.postgres_wal $(POSTGRES_FLAGS)

demo-changes: .venv ## tables that follow PostgreSQL, each change once, while all is killed: CHANGES_FLAGS=--short
	tools/need_program.sh "$(POSTGRES)" postgresql
	$(BIN)/python -m examples.postgres_changes $(CHANGES_FLAGS)

life: .venv ## a cluster lives: zones, the loss of one, drain, restarts, rebalance, replica counts, deletion
	$(BIN)/python -m tests.life $(LIFE_FLAGS)

recovery: .venv ## a majority's disks are lost, then all: a database goes on, from what is left and from its archive
	$(BIN)/python -m tests.recovery $(RECOVERY_FLAGS)

endurance: .venv ## truncations ten times a second, archive, mirror, kills: make endurance MINUTES=120
	$(BIN)/python -m tests.endurance --minutes $(MINUTES)

demo-stream: .venv ## a streaming read, a streaming write, a Delta table under SIGKILL: make demo-stream STREAM_FLAGS="--rounds 2"
	$(BIN)/python -m tests.streaming $(STREAM_FLAGS)

chaos: .venv ## SIGKILL of random stores under load: make chaos KILLS=30
	$(BIN)/python -m tests.chaos --kills $(KILLS)

upgrade: .venv ## a cluster of the last release becomes one of this tree under load, and back before the raise
	$(BIN)/python -m tests.upgrade

bench: .venv strace ## every target with its peers beside us: make bench ROW=one-caller,64-callers ROUNDS=5
	$(BIN)/python -m bench --rounds $(ROUNDS) --row "$(ROW)" $(BENCH_FLAGS)

bench-smoke: .venv ## has throughput collapsed? Ratios to the raw disk and to etcd, a minute and a half
	$(BIN)/python -m bench.smoke

bench-cost: .venv strace ## what an append costs in system calls, switches and bytes: make bench-cost COST_FLAGS=--check
	$(BIN)/python -m bench.cost $(COST_FLAGS)

docs: ## the site of the documents into artifacts/site, with every link checked
	@$(PYTHON) -m tools.make_site

wheels: .venv ## both distributions into dist/, for other machines, and their sizes
	rm -f dist/*.whl
	LOGSERVICE_WHEEL_CLIENT= $(BIN)/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist ./client .
	@du --apparent-size -h dist/*.whl

image: ## the image of a store, and its size; needs a container engine
	@tools/make_image.sh

clean: ## everything that was generated, but not the environment
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache artifacts spark-warehouse
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
