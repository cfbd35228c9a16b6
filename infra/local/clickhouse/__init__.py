"""ClickHouse's HTTP interface in front of chDB, which is the same engine in this process.

    app.py          routes, authentication, streaming of results
    request.py      what an HTTP request asks for (pure)
    statement.py    where a statement ends and its data begins (pure)
    body.py         bodies on the way in: decompressed, bounded, kept aside on disk
    encoding.py     compression in both directions (pure)
    engine.py       handles on the engine, sessions, execution
    errors.py       the engine's errors as HTTP answers (pure)

One process owns a data directory. Queries, parameters, settings, sessions, inserts and errors
work as clickhouse-connect, curl and BI tools expect. Not there: external data tables,
ClickHouse's own block compression (`compress=1`), roles, quotas, TLS.
"""
