"""What is recognised of each client's work, and the test that shows it: in docs/connect.md."""

_NEW_CONTEXT = "branch `context-…`, gap `context_begun_anew`"
#: An OpenCode subagent's own subagents name it, not the agent, so they are a trajectory of its id.
_NEW_CONVERSATION = "a trajectory of its own, gap `steps_before_not_captured`"
_RECORDED = "tests/unit/redaction_processor/test_recorded_clients.py"
_CONTEXTS = "tests/unit/redaction_processor/test_contexts.py"
_LIVE = "tests/integration/gateway/test_agent_programs.py"
_SDKS = "tests/integration/gateway/test_sdks.py"

#: Files of tests by the letter that the table uses.
TESTS = {"A": _RECORDED, "B": _CONTEXTS, "C": _LIVE, "D": _SDKS}

RECOGNISED = (
    (
        "client", "runs by", "subagent", "context compacted or cleared", "resumed run",
        "call asked again", "tests",
    ),
    (
        "Claude Code, its Agent SDK", "session id (header or `metadata.user_id`)",
        "branch, by its agent id", _NEW_CONTEXT, "goes on", "attempt",
        "A `claude-code-…`, `claude-agent-sdk`; B; C",
    ),
    (
        "Codex", "session id", "branch, by its thread id", "branch `context-<n>`, as it counts",
        "goes on where it keeps its session id", "attempt", "A `codex-…`; B; C",
    ),
    (
        "OpenCode", "session id", "branch, by its own session id", _NEW_CONTEXT,
        "goes on where it keeps its session id", "attempt", "A `opencode-…`; B; C",
    ),
    (
        "Hermes Agent", "messages", "a trajectory of its own", _NEW_CONVERSATION, "goes on",
        "attempt", "A `hermes-agent-…`; B; C",
    ),
    (
        "Qwen Code", "messages", "a trajectory of its own", _NEW_CONVERSATION, "goes on", "attempt",
        "A `qwen-code…`; B",
    ),
    (
        "mini-swe-agent", "messages", "has none", "has none", "has none", "attempt",
        "A `mini-swe-agent`; C",
    ),
    (
        "smolagents", "messages, its own answers rewritten", "a trajectory of its own",
        _NEW_CONVERSATION, "goes on", "attempt", "A `smolagents`",
    ),
    (
        "OpenAI Agents SDK", "messages, or `previous_response_id`", "a trajectory of its own",
        _NEW_CONVERSATION, "goes on", "attempt", "A `openai-agents`; D",
    ),
    (
        "LangChain", "messages", "a trajectory of its own", _NEW_CONVERSATION, "goes on", "attempt",
        "D `langchain_chat`",
    ),
    (
        "pydantic-ai", "messages", "a trajectory of its own", _NEW_CONVERSATION, "goes on",
        "attempt", "D `pydantic_ai_…`",
    ),
    (
        "OpenAI and Anthropic SDKs, LiteLLM", "messages, or `previous_response_id`",
        "a trajectory of its own", _NEW_CONVERSATION, "goes on", "attempt",
        "A `openai-python`, `anthropic-python`, `litellm`; D",
    ),
)  # fmt: skip
