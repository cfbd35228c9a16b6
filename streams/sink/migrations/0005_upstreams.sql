-- Which of several upstreams answered.

ALTER TABLE steps_log ADD COLUMN IF NOT EXISTS
    upstream LowCardinality(Nullable(String)) COMMENT 'name of the configured upstream, or id of the worker of a ring, that answered or was tried last'
    AFTER engine_version;

CREATE OR REPLACE VIEW steps AS
SELECT * EXCEPT (row_version)
FROM steps_log FINAL
COMMENT 'One decision of an agent';
