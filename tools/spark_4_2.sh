#!/usr/bin/env bash
# spark_4_2.sh COMMAND...: runs it with Spark 4.2 in the place of the environment's Spark, and with Delta's jars for it
# (LOGSERVICE_DELTA_JARS).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/need_program.sh mvn maven
programs=$(.venv/bin/python -m tools.own_environment spark-4.2)
export LOGSERVICE_DELTA_JARS=$PWD/.venv-spark-4.2/jars
mvn -q -B -f tests/spark/delta_jars.xml dependency:copy-dependencies -DoutputDirectory="$LOGSERVICE_DELTA_JARS"
PYTHONPATH=$(echo "${programs%/bin}"/lib/python*/site-packages)
export PYTHONPATH
exec "$@"
