-- What the clean topics hold, one table an entity, and the views that people query.
-- Sorting keys are ids that never change: a date in a key would make two rows of one step, and so
-- would a tenant that a later version reads where an earlier one could not (dead letters).
-- A deduplication window lets a repeated insert (same token, same rows) leave one part.

CREATE TABLE IF NOT EXISTS steps_log
(
    step_id String COMMENT 'id, unique within the tenant',
    event_id String COMMENT 'id of the event that captured it',
    tenant_id String COMMENT 'owner',
    key_id Nullable(String) COMMENT 'encryption key of the trajectory, absent when not encrypted',
    trajectory_id String COMMENT 'trajectory, unique within the tenant',
    task_key Nullable(String) COMMENT 'what is being attempted',
    agent_id LowCardinality(Nullable(String)) COMMENT 'which agent',
    kind LowCardinality(String) COMMENT 'what was done',
    dialect LowCardinality(String) COMMENT 'wire dialect of the messages',
    started_at DateTime64(6, 'UTC') COMMENT 'when it began',
    ended_at Nullable(DateTime64(6, 'UTC')) COMMENT 'when it ended',
    outcome LowCardinality(String) COMMENT 'how it ended',
    response_id Nullable(String) COMMENT 'id the provider gave the response',
    parent_step_id Nullable(String) COMMENT 'the step whose messages this one extends',
    branch LowCardinality(Nullable(String)) COMMENT 'name of the branch, absent on the trunk',
    subagent_id Nullable(String) COMMENT 'which subagent decided',
    step_index Int64 COMMENT 'number of ancestors',
    attempt_of Nullable(String) COMMENT 'the step that this is a further attempt of',
    new_messages Array(String) COMMENT 'messages that the parent step did not hold, each as JSON text' CODEC(ZSTD(3)),
    new_message_roles Array(LowCardinality(String)) COMMENT 'role of each of new_messages',
    context_messages Int64 COMMENT 'number of messages in the whole context',
    context_digest Nullable(String) COMMENT 'HMAC over the chain of messages up to this call',
    retrieved_items Array(String) COMMENT 'retrieved documents, each as JSON text' CODEC(ZSTD(3)),
    tool_results Array(String) COMMENT 'tool results outside messages, each as JSON text' CODEC(ZSTD(3)),
    memory_reads Array(String) COMMENT 'memory items read, each as JSON text' CODEC(ZSTD(3)),
    reasoning Nullable(String) COMMENT 'the model\'s reasoning where it is visible' CODEC(ZSTD(3)),
    harness_name LowCardinality(Nullable(String)) COMMENT 'name of the agent program',
    harness_version LowCardinality(Nullable(String)) COMMENT 'version of the agent program',
    harness_fingerprint Nullable(String) COMMENT 'HMAC over all parts of this record that are known',
    system_prompt_fingerprint Nullable(String) COMMENT 'HMAC of the system prompt',
    tools Array(LowCardinality(String)) COMMENT 'names of the tools offered' CODEC(ZSTD(3)),
    tools_fingerprint Nullable(String) COMMENT 'HMAC of the tool schemas',
    sampling Nullable(String) COMMENT 'sampling parameters as a JSON object' CODEC(ZSTD(3)),
    memory_snapshot Nullable(String) COMMENT 'version or digest of the memory',
    chat_template_fingerprint Nullable(String) COMMENT 'digest of the chat template',
    retrieval_index_version LowCardinality(Nullable(String)) COMMENT 'version of the retrieval index',
    guardrail_version LowCardinality(Nullable(String)) COMMENT 'version of the guardrails',
    output Array(String) COMMENT 'output messages, one a choice, each as JSON text' CODEC(ZSTD(3)),
    output_roles Array(LowCardinality(String)) COMMENT 'role of each of output',
    prompt_token_ids Array(UInt32) COMMENT 'token ids of the prompt' CODEC(ZSTD(3)),
    token_ids Array(UInt32) COMMENT 'token ids of the first choice' CODEC(ZSTD(3)),
    logprobs Array(Float64) COMMENT 'log-probability of each token id, in nats' CODEC(ZSTD(3)),
    finish_reason LowCardinality(Nullable(String)) COMMENT 'why generation stopped, first choice',
    tool_result Nullable(String) COMMENT 'result of a tool call, as JSON text' CODEC(ZSTD(3)),
    error_class LowCardinality(Nullable(String)) COMMENT 'class of the error, from a closed list',
    http_status Nullable(Int64) COMMENT 'status the client received',
    latency_ms Nullable(Float64) COMMENT 'milliseconds from request to last byte',
    first_byte_ms Nullable(Float64) COMMENT 'milliseconds from request to first byte of the answer',
    attempts Int64 COMMENT 'number of tries the gateway made',
    prompt_tokens Nullable(Int64) COMMENT 'tokens in the prompt',
    completion_tokens Nullable(Int64) COMMENT 'tokens in the completion',
    cached_tokens Nullable(Int64) COMMENT 'prompt tokens read from a cache',
    reasoning_tokens Nullable(Int64) COMMENT 'completion tokens spent on reasoning',
    reward_signals Array(Tuple(name String, value Nullable(Float64), value_type String, label Nullable(String))) COMMENT 'signals present at capture',
    requested_model LowCardinality(Nullable(String)) COMMENT 'model named in the request',
    model LowCardinality(Nullable(String)) COMMENT 'model named in the response',
    policy LowCardinality(Nullable(String)) COMMENT 'policy line',
    policy_version Nullable(Int64) COMMENT 'proved version of the policy',
    policy_versions Array(Int64) COMMENT 'versions that produced the tokens, in the order of their first token',
    spans Array(Tuple(start UInt32, end UInt32, policy_version Int64)) COMMENT 'token spans per version',
    weights_root Nullable(String) COMMENT 'root digest of the weights',
    engine LowCardinality(Nullable(String)) COMMENT 'inference engine',
    engine_version LowCardinality(Nullable(String)) COMMENT 'version of the engine',
    data_classes Array(LowCardinality(String)) COMMENT 'kinds of private data found',
    redaction_status LowCardinality(String) COMMENT 'what redaction did',
    redaction_policy_version LowCardinality(Nullable(String)) COMMENT 'policy and detector version',
    redactions Array(Tuple(path String, kind String, start UInt32, end UInt32, placeholder String)) COMMENT 'spans replaced',
    consent LowCardinality(Nullable(String)) COMMENT 'consent under which the data was given',
    legal_basis LowCardinality(Nullable(String)) COMMENT 'legal basis of processing',
    retention_class LowCardinality(Nullable(String)) COMMENT 'how long it may be kept',
    human_review LowCardinality(Nullable(String)) COMMENT 'state of a human review',
    training_eligible Bool COMMENT 'whether a trainer may learn from it',
    visible_to Array(LowCardinality(String)) COMMENT 'roles that may read it, empty for the tenant',
    gaps Array(Tuple(field String, reason String)) COMMENT 'what was not captured, and why',
    replayability LowCardinality(String) COMMENT 'can it be run again',
    raw_digest Nullable(String) COMMENT 'HMAC of the original request and response',
    raw_topic LowCardinality(Nullable(String)) COMMENT 'topic of the raw record it was made from',
    raw_partition Nullable(Int32) COMMENT 'partition of the raw record it was made from',
    raw_offset Nullable(Int64) COMMENT 'offset of the raw record it was made from',
    replay_epoch Int64 COMMENT 'number of the processing that made it',
    replayed Bool COMMENT 'made again by a replay of records handled before',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest',
    INDEX by_trajectory trajectory_id TYPE bloom_filter GRANULARITY 4,
    INDEX by_response response_id TYPE bloom_filter GRANULARITY 4
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (tenant_id, step_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One decision of an agent';

CREATE VIEW IF NOT EXISTS steps AS
SELECT * EXCEPT (row_version)
FROM steps_log FINAL
COMMENT 'One decision of an agent';

CREATE TABLE IF NOT EXISTS rewards_log
(
    reward_id String COMMENT 'id, unique within the tenant',
    tenant_id String COMMENT 'owner',
    key_id Nullable(String) COMMENT 'encryption key of the trajectory',
    trajectory_id String COMMENT 'trajectory it rates',
    step_id Nullable(String) COMMENT 'step it rates, absent for the whole trajectory',
    name LowCardinality(String) COMMENT 'what is rated',
    kind LowCardinality(String) COMMENT 'form of the signal',
    value Nullable(Float64) COMMENT 'the number; true is 1, false is 0',
    value_type LowCardinality(String) COMMENT 'number, boolean or none',
    label Nullable(String) COMMENT 'the label',
    text Nullable(String) COMMENT 'critique, demonstration or preference, redacted' CODEC(ZSTD(3)),
    redactions Array(Tuple(path String, kind String, start UInt32, end UInt32, placeholder String)) COMMENT 'spans replaced in text or label',
    source String COMMENT 'explicit or implicit, and through which door',
    rater_id Nullable(String) COMMENT 'who rated, taken from the key',
    confidence Nullable(Float64) COMMENT '0 to 1',
    revision Int64 COMMENT '1, then higher for each correction',
    retracted Bool COMMENT 'true when it no longer counts',
    final Bool COMMENT 'true when no further reward is expected',
    task_key Nullable(String) COMMENT 'what was attempted',
    occurred_at DateTime64(6, 'UTC') COMMENT 'when the judgement was made',
    received_at DateTime64(6, 'UTC') COMMENT 'when the gateway or producer took it',
    digest String COMMENT 'HMAC of the content, breaks ties',
    raw_topic LowCardinality(Nullable(String)) COMMENT 'topic of the raw record it was made from',
    raw_partition Nullable(Int32) COMMENT 'partition of the raw record it was made from',
    raw_offset Nullable(Int64) COMMENT 'offset of the raw record it was made from',
    replay_epoch Int64 COMMENT 'number of the processing that made it',
    replayed Bool COMMENT 'made again by a replay of records handled before',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest',
    INDEX by_trajectory trajectory_id TYPE bloom_filter GRANULARITY 4
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (tenant_id, reward_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One learning signal at the revision that counts';

CREATE VIEW IF NOT EXISTS rewards AS
SELECT * EXCEPT (row_version)
FROM rewards_log FINAL
COMMENT 'One learning signal at the revision that counts';

CREATE TABLE IF NOT EXISTS trajectories_log
(
    trajectory_id String COMMENT 'the trajectory',
    tenant_id String COMMENT 'owner',
    task_key Nullable(String) COMMENT 'what is being attempted',
    agent_id LowCardinality(Nullable(String)) COMMENT 'which agent',
    num_steps Int64 COMMENT 'number of steps, further attempts not counted',
    num_rewards Int64 COMMENT 'number of rewards that are not retracted',
    started_at Nullable(DateTime64(6, 'UTC')) COMMENT 'start of the first step',
    last_step_at Nullable(DateTime64(6, 'UTC')) COMMENT 'end of the last step',
    reward Nullable(Float64) COMMENT 'the reward that counts',
    reward_status LowCardinality(String) COMMENT 'how settled it is',
    reward_policy LowCardinality(String) COMMENT 'name and version of the policy that chose it',
    outcome LowCardinality(Nullable(String)) COMMENT 'outcome of the last step',
    first_policy_version Nullable(Int64) COMMENT 'policy version of the first step',
    last_policy_version Nullable(Int64) COMMENT 'policy version of the last step',
    training_eligible Bool COMMENT 'every step may be learned from',
    closed_at Nullable(DateTime64(6, 'UTC')) COMMENT 'when it closed, in event time',
    close_reason LowCardinality(Nullable(String)) COMMENT 'event, final_reward or idle',
    replay_epoch Int64 COMMENT 'number of the processing that made it',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (tenant_id, trajectory_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One trajectory as far as its events are joined';

CREATE VIEW IF NOT EXISTS trajectories AS
SELECT * EXCEPT (row_version)
FROM trajectories_log FINAL
COMMENT 'One trajectory as far as its events are joined';

CREATE TABLE IF NOT EXISTS samples_log
(
    sample_id String COMMENT 'hash of step ids, effective reward revisions and reward policy',
    tenant_id String COMMENT 'owner',
    trajectory_id String COMMENT 'the trajectory',
    task_key Nullable(String) COMMENT 'what was attempted',
    step_ids Array(String) COMMENT 'steps in order',
    rewards Array(Tuple(reward_id String, revision Int64)) COMMENT 'rewards that count',
    reward Nullable(Float64) COMMENT 'the reward',
    reward_policy LowCardinality(String) COMMENT 'name and version of the policy that chose it',
    reward_status LowCardinality(String) COMMENT 'how settled it is',
    eligible Bool COMMENT 'may be trained on',
    reasons Array(LowCardinality(String)) COMMENT 'why it may not be trained on',
    oldest_policy_version Nullable(Int64) COMMENT 'oldest version among the steps',
    newest_policy_version Nullable(Int64) COMMENT 'newest version among the steps',
    closed_at DateTime64(6, 'UTC') COMMENT 'when the trajectory closed',
    replay_epoch Int64 COMMENT 'number of the processing that made it',
    replayed Bool COMMENT 'made again by a replay of records handled before',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest',
    INDEX by_trajectory trajectory_id TYPE bloom_filter GRANULARITY 4
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (tenant_id, sample_id)
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One closed trajectory with its reward, ready to be learned from';

CREATE VIEW IF NOT EXISTS samples AS
SELECT * EXCEPT (row_version)
FROM samples_log FINAL
COMMENT 'One closed trajectory with its reward, ready to be learned from';

CREATE TABLE IF NOT EXISTS dead_letters_log
(
    dead_letter_id String COMMENT 'hash of group and coordinates',
    `group` LowCardinality(String) COMMENT 'consumer group that gave up',
    source_topic LowCardinality(String) COMMENT 'topic of that record',
    source_partition Int32 COMMENT 'partition of that record',
    source_offset Int64 COMMENT 'offset of that record',
    reason LowCardinality(String) COMMENT 'from the closed list in schemas/errors',
    field LowCardinality(Nullable(String)) COMMENT 'name of the schema field, never a value',
    tenant_id Nullable(String) COMMENT 'owner, where it could be read',
    num_bytes Int64 COMMENT 'size of the record\'s value',
    occurred_at DateTime64(6, 'UTC') COMMENT 'when it was given up',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY dead_letter_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One record that can never be processed; holds no payload';

CREATE VIEW IF NOT EXISTS dead_letters AS
SELECT * EXCEPT (row_version)
FROM dead_letters_log FINAL
COMMENT 'One record that can never be processed; holds no payload';

CREATE TABLE IF NOT EXISTS quarantined_events_log
(
    quarantine_id String COMMENT 'hash of coordinates',
    tenant_id Nullable(String) COMMENT 'owner, where it could be read',
    source_topic LowCardinality(String) COMMENT 'topic of that record',
    source_partition Int32 COMMENT 'partition of that record',
    source_offset Int64 COMMENT 'offset of that record',
    reason LowCardinality(String) COMMENT 'from the closed list in schemas/errors',
    occurred_at DateTime64(6, 'UTC') COMMENT 'when it was set aside',
    num_bytes Int64 COMMENT 'size of the record\'s value',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY quarantine_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One record that redaction set aside; holds no text';

CREATE VIEW IF NOT EXISTS quarantined_events AS
SELECT * EXCEPT (row_version)
FROM quarantined_events_log FINAL
COMMENT 'One record that redaction set aside; holds no text';

CREATE TABLE IF NOT EXISTS audit_events_log
(
    audit_id String COMMENT 'id',
    actor String COMMENT 'who',
    action LowCardinality(String) COMMENT 'what, such as replay.started',
    subject String COMMENT 'to what',
    details String COMMENT 'JSON object without payload text' CODEC(ZSTD(3)),
    occurred_at DateTime64(6, 'UTC') COMMENT 'when',
    kafka_topic LowCardinality(String) COMMENT 'topic of the event this row holds',
    kafka_partition Int32 COMMENT 'partition of that event',
    kafka_offset Int64 COMMENT 'offset of that event',
    recorded_at DateTime64(6, 'UTC') COMMENT 'when the sink took the event',
    row_version UInt256 COMMENT 'which of several rows with one key counts: the highest'
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY audit_id
SETTINGS non_replicated_deduplication_window = 1000
COMMENT 'One act of somebody or something';

CREATE VIEW IF NOT EXISTS audit_events AS
SELECT * EXCEPT (row_version)
FROM audit_events_log FINAL
COMMENT 'One act of somebody or something';

CREATE VIEW IF NOT EXISTS unmatched_rewards AS
SELECT *
FROM rewards
WHERE if(step_id IS NULL,
    (tenant_id, trajectory_id) NOT IN (SELECT tenant_id, trajectory_id FROM steps_log),
    (tenant_id, assumeNotNull(step_id)) NOT IN (SELECT tenant_id, step_id FROM steps_log))
COMMENT 'Rewards whose step or trajectory has no step yet';

CREATE VIEW IF NOT EXISTS messages AS
SELECT
    tenant_id, trajectory_id, step_id, step_index, started_at, branch, attempt_of, dialect,
    entry.1 AS direction, entry.2 AS position, entry.3 AS role, entry.4 AS body
FROM steps
ARRAY JOIN arrayConcat(
    arrayMap((p, r, b) -> ('input', toUInt32(p - 1), toString(r), b), arrayEnumerate(new_messages), new_message_roles, new_messages),
    arrayMap((p, r, b) -> ('output', toUInt32(p - 1), toString(r), b), arrayEnumerate(output), output_roles, output)
) AS entry
COMMENT 'One message a row: what a step added to its parent\'s messages, and what was answered';
