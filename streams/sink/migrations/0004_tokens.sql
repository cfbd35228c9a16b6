-- What of a redacted step can be learnt: tokens that redaction changed, and the share of the rest.

ALTER TABLE steps_log ADD COLUMN IF NOT EXISTS
    changed_tokens Array(Tuple(start UInt32, end UInt32)) COMMENT 'spans of token_ids that redaction changed: the policy did not sample them, and logprobs leaves them out'
    AFTER logprobs;

ALTER TABLE steps_log ADD COLUMN IF NOT EXISTS
    approximate_from Nullable(Int64) COMMENT 'index of the first of token_ids before which redaction changed text, absent where nothing changed'
    AFTER changed_tokens;

CREATE OR REPLACE VIEW steps AS
SELECT * EXCEPT (row_version)
FROM steps_log FINAL
COMMENT 'One decision of an agent';

CREATE VIEW IF NOT EXISTS trainable_shares AS
SELECT
    tenant_id,
    trajectory_id,
    count() AS num_steps,
    sum(sampled) AS sampled_tokens,
    sum(trainable) AS trainable_tokens,
    sum(approximate) AS approximate_tokens,
    if(sampled_tokens = 0, NULL, trainable_tokens / sampled_tokens) AS trainable_share,
    sumMap(if(lost = 0, map(), map(reason, lost))) AS lost_tokens
FROM
(
    SELECT
        tenant_id,
        trajectory_id,
        arraySum(arrayMap(span -> toInt64(span.end) - span.start, changed_tokens)) AS changed,
        arraySum(arrayMap(span -> if(span.start < ifNull(approximate_from, 0), 0, toInt64(span.end) - span.start), changed_tokens)) AS changed_behind,
        toInt64(length(token_ids)) AS num_tokens,
        if(empty(token_ids), greatest(ifNull(completion_tokens, 0), 0), num_tokens) AS sampled,
        training_eligible AND notEmpty(prompt_token_ids) AS may_train,
        if(may_train, num_tokens - changed, 0) AS trainable,
        if(may_train AND approximate_from IS NOT NULL, num_tokens - assumeNotNull(approximate_from) - changed_behind, 0) AS approximate,
        sampled - trainable AS lost,
        arrayFirst(gap -> gap.field = 'action_and_result.token_ids' AND gap.reason != 'shown_to_client', gaps).reason AS why_none,
        multiIf(
            NOT training_eligible, 'not_permitted',
            notEmpty(token_ids) AND empty(prompt_token_ids), 'prompt_not_said',
            notEmpty(token_ids), 'changed_by_redaction',
            why_none = '', 'not_said',
            why_none) AS reason
    FROM steps
    WHERE kind = 'model_call' AND attempt_of IS NULL AND trajectory_id != ''
)
GROUP BY tenant_id, trajectory_id
COMMENT 'How much of what a policy said in a trajectory can be trained, and why the rest cannot';
