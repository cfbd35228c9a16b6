-- What becomes of samples: the micro-batches they are in, and why others are not.

ALTER TABLE samples_log ADD COLUMN IF NOT EXISTS
    step_refs Array(Tuple(partition Int32, `offset` Int64)) COMMENT 'where the steps lie, in the order of step_ids; empty where not all are known'
    AFTER replayed;

ALTER TABLE samples_log ADD COLUMN IF NOT EXISTS
    step_outcomes Array(LowCardinality(String)) COMMENT 'how the steps ended, each once, sorted'
    AFTER step_refs;

CREATE TABLE IF NOT EXISTS sample_decisions_log
(
    sample_id String COMMENT 'the sample',
    tenant_id String COMMENT 'owner',
    trajectory_id String COMMENT 'the trajectory',
    revision Int64 COMMENT 'revision of its branch\'s reward',
    policy LowCardinality(Nullable(String)) COMMENT 'policy line of its steps',
    decision LowCardinality(String) COMMENT 'what became of it',
    decision_reason LowCardinality(Nullable(String)) COMMENT 'why, from the closed list in docs/learning.md',
    outcome LowCardinality(String) COMMENT 'what it came to',
    batch_id Nullable(String) COMMENT 'micro-batch that it is in',
    num_trained_tokens Int64 COMMENT 'tokens of it that are trained',
    staleness Nullable(Int64) COMMENT 'versions between its oldest trained token and the newest version',
    decided_at DateTime64(6, 'UTC') COMMENT 'when',
    replay_epoch Int64 COMMENT 'number of the processing that decided',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (tenant_id, sample_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'What became of one sample, and why';

CREATE VIEW IF NOT EXISTS sample_decisions AS
SELECT * EXCEPT (row_version)
FROM sample_decisions_log FINAL
COMMENT 'What became of one sample, and why';

CREATE TABLE IF NOT EXISTS microbatches_log
(
    batch_id String COMMENT 'hash of policy, samples and revisions',
    policy LowCardinality(String) COMMENT 'policy line',
    created_at DateTime64(6, 'UTC') COMMENT 'when it was put together',
    sequences_uri Nullable(String) COMMENT 'claim check of the whole record when the sequences are large',
    num_sequences Int64 COMMENT 'number of sequences',
    num_tokens Int64 COMMENT 'tokens of all sequences',
    num_trained_tokens Int64 COMMENT 'tokens that are trained',
    sample_ids Array(String) COMMENT 'samples in it, each once',
    tenant_ids Array(LowCardinality(String)) COMMENT 'owners of the samples, each once',
    oldest_version Nullable(Int64) COMMENT 'oldest version among the trained spans',
    newest_version Nullable(Int64) COMMENT 'newest version among the trained spans',
    policy_version Nullable(Int64) COMMENT 'newest version of the policy known then',
    replay_epoch Int64 COMMENT 'number of the processing that made it',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY batch_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'Sequences that are learned from together, without their tokens';

CREATE VIEW IF NOT EXISTS microbatches AS
SELECT * EXCEPT (row_version)
FROM microbatches_log FINAL
COMMENT 'Sequences that are learned from together, without their tokens';

-- A sample without a decision has none yet: no batching has read it.
CREATE OR REPLACE VIEW samples AS
SELECT s.* EXCEPT (row_version), d.decision AS decision, d.decision_reason AS decision_reason
FROM (SELECT * FROM samples_log FINAL) AS s
LEFT JOIN
(
    SELECT tenant_id, sample_id, toNullable(toString(decision)) AS decision, CAST(decision_reason AS Nullable(String)) AS decision_reason
    FROM sample_decisions_log FINAL
) AS d
ON d.tenant_id = s.tenant_id AND d.sample_id = s.sample_id
COMMENT 'One closed trajectory with its reward, ready to be learned from';
