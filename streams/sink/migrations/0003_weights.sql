-- Versions of weights: what was published, proposed, decided, and what workers did with it.

CREATE TABLE IF NOT EXISTS policy_versions_log
(
    policy LowCardinality(String) COMMENT 'policy line',
    version Int64 COMMENT 'version, unique within the policy',
    kind LowCardinality(String) COMMENT 'what the payload is: delta, snapshot or adapter',
    epoch Int64 COMMENT 'number of the publisher',
    from_version Nullable(Int64) COMMENT 'version that a delta starts from',
    from_root Nullable(String) COMMENT 'root that a delta starts from, hex',
    root String COMMENT 'SHA-256 over the leaves of all tensors, hex',
    codec LowCardinality(String) COMMENT 'format of the payload',
    dtype LowCardinality(String) COMMENT 'number format of the tensors, or mixed',
    num_elements Int64 COMMENT 'elements of all tensors',
    num_changed Int64 COMMENT 'elements that a delta changes',
    density Float64 COMMENT 'share of the elements that a delta changes',
    num_bytes Int64 COMMENT 'bytes of the payload',
    sha256 String COMMENT 'SHA-256 of the payload, hex',
    trainer_step Nullable(Int64) COMMENT 'optimizer step that made it',
    data_watermark Array(Tuple(topic String, partition Int32, `offset` Int64)) COMMENT 'offsets up to which training data was used',
    statistics Array(Tuple(name String, value Float64)) COMMENT 'loss and the like',
    created_at DateTime64(6, 'UTC') COMMENT 'when it was published',
    signature Nullable(String) COMMENT 'HMAC-SHA256 over all other fields, hex',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (policy, version, kind, root)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One manifest of a version of weights';

CREATE VIEW IF NOT EXISTS policy_versions AS
SELECT * EXCEPT (row_version)
FROM policy_versions_log FINAL
COMMENT 'One manifest of a version of weights';

CREATE TABLE IF NOT EXISTS proposals_log
(
    proposal_id String COMMENT 'derived from its content',
    policy LowCardinality(String) COMMENT 'policy line',
    version Int64 COMMENT 'version that shall be served',
    root String COMMENT 'root of it, hex',
    proposed_by LowCardinality(String) COMMENT 'trainer, or who typed the command',
    reason String COMMENT 'why, in words',
    evidence String COMMENT 'JSON object without payload text',
    epoch Int64 COMMENT 'number of the publisher that made the version',
    ring LowCardinality(String) COMMENT 'ring that shall serve it',
    canary_share Nullable(Float64) COMMENT 'share of the trajectories that it gets on trial; all where absent',
    proposed_at DateTime64(6, 'UTC') COMMENT 'when',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY proposal_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One wish that a version be served';

CREATE VIEW IF NOT EXISTS proposals AS
SELECT * EXCEPT (row_version)
FROM proposals_log FINAL
COMMENT 'One wish that a version be served';

CREATE TABLE IF NOT EXISTS proposal_answers_log
(
    proposal_id String COMMENT 'derived from the content of the proposal',
    policy LowCardinality(String) COMMENT 'policy line',
    ring LowCardinality(String) COMMENT 'ring it was meant for',
    version Int64 COMMENT 'version that was proposed',
    status LowCardinality(String) COMMENT 'accepted, refused or held',
    reason String COMMENT 'why, in words',
    sequence Nullable(Int64) COMMENT 'sequence of the assignment that it led to',
    answered_at DateTime64(6, 'UTC') COMMENT 'when',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY proposal_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'What became of one proposal';

CREATE VIEW IF NOT EXISTS proposal_answers AS
SELECT * EXCEPT (row_version)
FROM proposal_answers_log FINAL
COMMENT 'What became of one proposal';

CREATE TABLE IF NOT EXISTS promotions_log
(
    policy LowCardinality(String) COMMENT 'policy line',
    ring LowCardinality(String) COMMENT 'name of the ring',
    stable_version Int64 COMMENT 'version of most traffic',
    stable_root String COMMENT 'root of it, hex',
    canary_version Nullable(Int64) COMMENT 'version on trial',
    canary_root Nullable(String) COMMENT 'root of it, hex',
    canary_share Float64 COMMENT 'share of the trajectories that the canary gets',
    canary_workers Array(String) COMMENT 'workers that serve the canary',
    served Array(Tuple(version Int64, root String)) COMMENT 'stable versions before this one, the latest first',
    acks_from Int64 COMMENT 'offset from which acks may be about this assignment',
    state LowCardinality(String) COMMENT 'what the ring is doing',
    decision_id String COMMENT 'the decision behind it',
    reason String COMMENT 'why, in words',
    evidence String COMMENT 'JSON object without payload text',
    epoch Int64 COMMENT 'number of the process that assigned',
    sequence Int64 COMMENT '1, then higher with each assignment of the ring',
    decided_at DateTime64(6, 'UTC') COMMENT 'when',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (policy, ring, sequence)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One assignment of a ring: what its workers serve from then on';

CREATE VIEW IF NOT EXISTS promotions AS
SELECT * EXCEPT (row_version)
FROM promotions_log FINAL
COMMENT 'One assignment of a ring: what its workers serve from then on';

CREATE TABLE IF NOT EXISTS acks_log
(
    ack_id String COMMENT 'derived from its content',
    worker_id String COMMENT 'the worker',
    policy LowCardinality(String) COMMENT 'policy line',
    version Int64 COMMENT 'version it is about',
    root Nullable(String) COMMENT 'root that the worker proved, hex',
    status LowCardinality(String) COMMENT 'what became of it: staged, applied, refused or quarantined',
    stage_ms Nullable(Float64) COMMENT 'milliseconds of fetching and staging',
    pause_ms Nullable(Float64) COMMENT 'milliseconds in which the engine stood still',
    apply_ms Nullable(Float64) COMMENT 'milliseconds from manifest to proof',
    error LowCardinality(Nullable(String)) COMMENT 'why not, from the closed list of refusals',
    occurred_at DateTime64(6, 'UTC') COMMENT 'when',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY ack_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'What one worker did with one version';

CREATE VIEW IF NOT EXISTS acks AS
SELECT * EXCEPT (row_version)
FROM acks_log FINAL
COMMENT 'What one worker did with one version';
