"""Real Kafka and ClickHouse on a bare machine, and the supervisor that runs the whole stack.

kafka.py        one Apache Kafka broker in KRaft mode (`python -m infra.local.kafka`)
kafka_jars.py   where its jars come from
java.py         which Java runs it
clickhouse/     ClickHouse's HTTP interface in front of chDB
supervisor.py   starts, watches, restarts and ends child processes
stack.py        the list of children that makes headrace
control.py      the socket that `down`, `status` and `replay` speak to
"""
