"""The sink: what the clean topics say, as rows that people query.

rows.py        event → row, pure; which of several rows with one id counts
writer.py      rows → store: one insert a table and batch, refused rows found by halving
store.py       the ClickHouse client, its errors translated
migrate.py     `migrations/NNNN_name.sql`, the only DDL, applied in order
tables_doc.py  docs/tables.md from the DDL
agent.py       the processor `streams.sink`: take, insert, acknowledge
"""
