-- Samples of signals without a number: demonstrations, preferences, critiques.

ALTER TABLE samples_log ADD COLUMN IF NOT EXISTS
    signal LowCardinality(Nullable(String)) COMMENT 'kind of the one of rewards that is learned from without a number, about the last step'
    AFTER step_outcomes;

ALTER TABLE samples_log ADD COLUMN IF NOT EXISTS
    signal_refs Array(Tuple(partition Int32, `offset` Int64)) COMMENT 'where the record of the signal lies on trajectory.rewards.v1; empty where not known'
    AFTER signal;

CREATE OR REPLACE VIEW samples AS
SELECT s.* EXCEPT (row_version), d.decision AS decision, d.decision_reason AS decision_reason
FROM (SELECT * FROM samples_log FINAL) AS s
LEFT JOIN
(
    SELECT tenant_id, sample_id, toNullable(toString(decision)) AS decision, CAST(decision_reason AS Nullable(String)) AS decision_reason
    FROM sample_decisions_log FINAL
) AS d
ON d.tenant_id = s.tenant_id AND d.sample_id = s.sample_id
COMMENT 'One closed trajectory with its reward, or a signal without a number, ready to be learned from';
