"""The clients that are known, and the exact setting of each. One list: the command and
docs/connect.md are made from it.

A base URL carries the key (`/k/<key>`), so one setting is enough and the client keeps its own
login with its provider, which passes through.
"""

from dataclasses import dataclass
from typing import Literal

Form = Literal["json", "toml", "env"]
#: What a client sends that tells its runs apart.
SESSION = "its session id; subagents are branches"
MESSAGES = "the messages themselves"


@dataclass(frozen=True, slots=True)
class File:
    """A settings file below the user's home, and the values that go into it."""

    path: str
    form: Form
    #: Where each value goes, and whether it is the root URL or the one that ends in /v1.
    values: tuple[tuple[tuple[str, ...], Literal["root", "v1"]], ...]


@dataclass(frozen=True, slots=True)
class Client:
    """A program or library. In `setting`, {root} and {v1} stand for the base URL."""

    name: str
    title: str
    dialects: str
    setting: str
    known_by: str
    file: File | None = None
    #: The environment variable that names the folder of the file's first part, if it is set.
    home_variable: str | None = None
    note: str = ""


_OPENAI = "export OPENAI_BASE_URL={v1}"

CLIENTS = (
    Client(
        "claude-code", "Claude Code", "Messages",
        "export ANTHROPIC_BASE_URL={root}", SESSION,
        File(".claude/settings.json", "json", ((("env", "ANTHROPIC_BASE_URL"), "root"),)),
        "CLAUDE_CONFIG_DIR",
        "Works with an API key and with a subscription's login. The Agent SDK takes the same "
        "variable. With the key in a header instead: "
        "`export ANTHROPIC_CUSTOM_HEADERS=\"x-headrace-key: <key>\"`.",
    ),
    Client(
        "codex", "Codex", "Responses", "codex -c openai_base_url={v1}", SESSION,
        File(".codex/config.toml", "toml", ((("openai_base_url",), "v1"),)),
        "CODEX_HOME",
        "For a login with an API key. Codex asks for a websocket first; the gateway answers 426 "
        "and Codex goes on over HTTP.",
    ),
    Client(
        "opencode", "OpenCode", "Chat Completions, Responses, Messages",
        "In opencode.json: {{\"provider\": {{\"openai\": {{\"options\": "
        "{{\"baseURL\": \"{v1}\"}}}}}}}}",
        SESSION,
        File(
            ".config/opencode/opencode.json", "json",
            ((("provider", "openai", "options", "baseURL"), "v1"),),
        ),
        note="For another provider of yours, set its `baseURL` in the same way; `anthropic` takes "
        "the same URL.",
    ),
    Client(
        "hermes", "Hermes Agent", "Chat Completions",
        "hermes config set model.provider custom && hermes config set model.base_url {v1}",
        MESSAGES,
        note="The list of models that it asks for below /api is answered with 404, which it takes "
        "for no list.",
    ),
    Client(
        "qwen-code", "Qwen Code", "Chat Completions", _OPENAI, MESSAGES,
        File(".qwen/.env", "env", ((("OPENAI_BASE_URL",), "v1"),)),
        note="The first call holds an answer that Qwen Code wrote itself, so its step has the gap "
        "`steps_before_not_captured`.",
    ),
    Client(
        "mini-swe-agent", "mini-swe-agent", "Chat Completions",
        "export OPENAI_API_BASE={v1}", MESSAGES,
        File(".config/mini-swe-agent/.env", "env", ((("OPENAI_API_BASE",), "v1"),)),
        "MSWEA_GLOBAL_CONFIG_DIR",
        "Its model class LiteLLM reads the variable for models named `openai/…`.",
    ),
    Client("openai", "OpenAI SDKs", "Chat Completions, Responses", _OPENAI, MESSAGES),
    Client("openai-agents", "OpenAI Agents SDK", "Responses, Chat Completions", _OPENAI,
           MESSAGES),
    Client("anthropic", "Anthropic SDKs", "Messages", "export ANTHROPIC_BASE_URL={root}",
           MESSAGES),
    Client(
        "langchain", "LangChain", "Chat Completions, Messages", "ChatOpenAI(base_url=\"{v1}\")",
        MESSAGES, note="`ChatAnthropic` takes `base_url=\"{root}\"`.",
    ),
    Client(
        "pydantic-ai", "pydantic-ai", "Chat Completions, Responses, Messages", _OPENAI, MESSAGES,
        note="Or `OpenAIProvider(base_url=\"{v1}\")`, `AnthropicProvider(base_url=\"{root}\")`.",
    ),
    Client(
        "smolagents", "smolagents", "Chat Completions",
        "OpenAIServerModel(model_id=…, api_base=\"{v1}\")", MESSAGES,
        note="It writes answers down in its own words; each step waits some seconds before it is "
        "placed and has the gap `answer_changed_by_client`. A base URL with `/t/<trajectory>` "
        "spares that for the trajectory, not for the parent.",
    ),
    Client("litellm", "LiteLLM", "Chat Completions, Responses, Messages",
           "export OPENAI_API_BASE={v1}", MESSAGES),
)  # fmt: skip


def find(name: str) -> Client | None:
    """The client of that name."""
    return next((client for client in CLIENTS if client.name == name), None)


def urls(gateway: str, key: str, trajectory: str | None = None) -> dict[str, str]:
    """The base URLs of a key: `root` for Anthropic's clients, `v1` for OpenAI's."""
    root = f"{gateway.rstrip('/')}/k/{key}"
    if trajectory is not None:
        root = f"{root}/t/{trajectory}"
    return {"root": root, "v1": f"{root}/v1"}


def setting(client: Client, bases: dict[str, str]) -> str:
    """The exact setting of a client."""
    return client.setting.format(**bases)


def note(client: Client, bases: dict[str, str]) -> str:
    """What else there is to know about a client."""
    text = client.note
    for name, url in bases.items():
        text = text.replace("{" + name + "}", url)
    return text
