"""The closed list of gaps: what a step can lack, and why. docs/gaps.md is this list in prose."""

from schemas.atdp.types import Gap

DIALECT_NOT_PARSED = Gap(field="observation", reason="dialect_not_parsed")
REQUEST_NOT_PARSED = Gap(field="observation", reason="request_not_parsed")
NO_DECISION = Gap(field="observation", reason="no_decision_asked")
RESPONSE_NOT_PARSED = Gap(field="action_and_result.output", reason="response_not_parsed")
RESPONSE_INCOMPLETE = Gap(field="action_and_result.output", reason="response_incomplete")
TOKENS_NOT_IN_RESPONSE = Gap(field="action_and_result.token_ids", reason="not_in_response")
TOKENS_WITHHELD = Gap(field="action_and_result.token_ids", reason="withheld_by_redaction")
TOKENS_NOT_ALIGNED = Gap(field="action_and_result.token_ids", reason="withheld_not_aligned")
TOKENS_CHANGED = Gap(field="action_and_result.token_ids", reason="changed_by_redaction")
TOKENS_SHOWN = Gap(field="action_and_result.token_ids", reason="shown_to_client")
SURROGATES_REPLACED = Gap(field="observation.new_messages", reason="surrogates_replaced")
LOGPROBS_NOT_IN_RESPONSE = Gap(field="action_and_result.logprobs", reason="not_in_response")
TOKENS_IN_MESSAGES_DROPPED = Gap(
    field="observation.new_messages", reason="token_data_in_messages_dropped"
)
TOO_LARGE = Gap(field="observation.new_messages", reason="too_large")
OTHER_CHOICES_WITHOUT_TOKENS = Gap(
    field="action_and_result.token_ids", reason="only_first_choice_kept"
)


def lineage(reason: str) -> Gap:
    """A gap in the lineage: the reason comes from `lineage.place`."""
    return Gap(field="lineage.parent_step_id", reason=reason)
