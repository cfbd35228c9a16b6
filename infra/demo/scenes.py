"""The two scenes of the demo: the support desk of a furniture shop, and a coding helper.

A scene writes one conversation into a draft. `ordinary` data (order numbers, prices, versions,
hashes) stands beside the private data on purpose: redaction must leave it alone.
"""

from __future__ import annotations

from typing import Any

from infra.demo.draft import Draft, ToolCall


def _tool(name: str, description: str, properties: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in properties.items()},
            },
        },
    }


SHOP_TOOLS: tuple[dict[str, Any], ...] = (
    _tool("find_customer", "Find a customer by any detail they give.", {"query": "string"}),
    _tool("get_order", "Look up one order.", {"order_number": "string"}),
    _tool(
        "update_customer",
        "Change details of a customer's record.",
        {"customer_number": "integer", "reason": "string"},
    ),
    _tool(
        "schedule_delivery",
        "Book a delivery slot.",
        {"order_number": "string", "slot": "string"},
    ),
)
CODING_TOOLS: tuple[dict[str, Any], ...] = (
    _tool("read_file", "Read a file of the project.", {"path": "string"}),
    _tool("search_code", "Search the project for a text.", {"text": "string"}),
    _tool("write_file", "Replace a file.", {"path": "string", "content": "string"}),
    _tool("run_tests", "Run the test suite.", {"selection": "string"}),
)

SHOP_PROMPT = (
    "You are the support desk of Birch & Brook, a small furniture shop. Look things up with the "
    "tools before you answer. Returns are free within 30 days. Never promise a delivery slot "
    "before the tool has confirmed it."
)
CODING_PROMPT = (
    "You are a coding helper inside a small web project. Read before you change anything, keep "
    "changes small, and run the tests after every change."
)
SHOP_OPENINGS = (
    "Hello, I need help with an order.",
    "Hi! My delivery has not arrived yet.",
    "Good morning, I would like to change something in my account.",
)
SHOP_FIRST_REPLIES = (
    "Of course. Please tell me the order number and how I can reach you.",
    "Happy to help! Which order is it, and under which details did you place it?",
)
CODING_OPENINGS = (
    "The nightly build fails since yesterday. Can you find out why?",
    "Please help me to clean up our configuration.",
)
CODING_FIRST_REPLIES = (
    "Sure. What changed yesterday, and which part fails?",
    "Yes. Tell me what you see and where it runs.",
)
PRODUCTS = ("oak bookshelf", "walnut desk", "rattan armchair", "birch bed frame", "pine stool")
SLOTS = ("Tuesday morning", "Thursday afternoon", "Saturday, 9 to 12")


def shop_conversation(draft: Draft, *, own_prompt: bool, num_follow_ups: int) -> None:
    """A customer reports a problem; the desk finds the record, changes it and books a slot."""
    rng = draft.rng
    order = f"BB-{rng.randint(10_000, 99_999)}"
    product = rng.choice(PRODUCTS)
    prompt = f"{SHOP_PROMPT} {_escalation(draft)}" if own_prompt else SHOP_PROMPT
    draft.say("system", prompt)
    draft.say("user", rng.choice(SHOP_OPENINGS))
    draft.say("assistant", rng.choice(SHOP_FIRST_REPLIES))
    draft.say("user", f"It is order {order}, the {product}. " + _phrases(draft, "user_text", 2))
    found, looked_up = draft.call(
        ToolCall("find_customer", draft.arguments({"query": "the customer of " + order}, 2)),
        ToolCall("get_order", f'{{"order_number": "{order}"}}'),
    )
    draft.result(found, _customer_record(draft))
    draft.result(looked_up, _order_record(draft, order, product))
    draft.say("assistant", f"I found order {order}. " + draft.phrase("answer"))
    for _ in range(num_follow_ups):
        _shop_follow_up(draft)
    draft.say("user", f"Please book {rng.choice(SLOTS)}. " + draft.phrase("user_text"))
    slot = ToolCall(
        "schedule_delivery", draft.escaped_arguments({"order_number": order, "slot": "next"}, 2)
    )
    (booked,) = draft.call(slot)
    draft.result(booked, {"status": "booked", "reference": f"SLOT-{rng.randint(100, 999)}"})
    draft.say("assistant", f"Done: the {product} comes in the slot you chose. Anything else?")


def _shop_follow_up(draft: Draft) -> None:
    draft.say("user", "One detail has changed. " + _phrases(draft, "user_text", 1))
    number = draft.rng.randint(1000, 9999)
    update = ToolCall(
        "update_customer",
        draft.escaped_arguments({"customer_number": number, "reason": "asked by customer"}, 1),
    )
    (updated,) = draft.call(update)
    draft.result(updated, {"customer_number": number, "changed": True, "history": [
        {"version": 2, "fields": draft.record("tool_result", 1)},
    ]})  # fmt: skip
    draft.say("assistant", "I have changed that in your record.")


def coding_conversation(draft: Draft, *, own_prompt: bool, num_follow_ups: int) -> None:
    """A developer reports a failure; the helper reads, searches, edits and runs the tests."""
    rng = draft.rng
    prompt = f"{CODING_PROMPT} {_escalation(draft)}" if own_prompt else CODING_PROMPT
    draft.say("system", prompt)
    draft.say("user", rng.choice(CODING_OPENINGS))
    draft.say("assistant", rng.choice(CODING_FIRST_REPLIES))
    draft.say("user", "It runs on Python 3.11.9. " + _phrases(draft, "user_text", 2))
    read, searched = draft.call(
        ToolCall("read_file", '{"path": "deploy/settings.toml"}'),
        ToolCall("search_code", draft.arguments({"text": "connect("}, 1)),
    )
    draft.result(read, _settings_file(draft))
    commit = f"{rng.getrandbits(160):040x}"
    draft.result(searched, {"hits": [{"path": "app/client.py", "line": 42, "commit": commit}]})
    draft.say("assistant", "The settings hold a value that belongs elsewhere.")
    for _ in range(num_follow_ups):
        _coding_follow_up(draft)
    draft.say("user", "Please move it out and run the tests.")
    write = ToolCall(
        "write_file",
        draft.escaped_arguments({"path": "deploy/local.toml", "content": "retries = 3\n"}, 2),
    )
    (written,) = draft.call(write)
    draft.result(written, "written 1 file\n" + _phrases(draft, "tool_result", 1))
    (tested,) = draft.call(ToolCall("run_tests", '{"selection": "tests/"}'))
    draft.result(
        tested, f"{rng.randint(40, 90)} passed in {rng.randint(2, 9)}.{rng.randint(0, 9)}s"
    )
    draft.say("assistant", "All tests pass. " + draft.phrase("answer"))


def _coding_follow_up(draft: Draft) -> None:
    draft.say("user", "Who touched this last? " + _phrases(draft, "user_text", 1))
    (searched,) = draft.call(ToolCall("search_code", draft.arguments({"text": "owner"}, 1)))
    draft.result(searched, {"authors": [draft.record("tool_result", 2), {"commits": 7}]})
    draft.say("assistant", "The history names one author; I keep the change small.")


def _escalation(draft: Draft) -> str:
    return "Note for this customer: " + draft.phrase("system_prompt")


def _phrases(draft: Draft, place: Any, count: int) -> str:
    return " ".join(draft.phrase(place) for _ in range(count))


def _customer_record(draft: Draft) -> dict[str, Any]:
    return {
        "customer_number": draft.rng.randint(1000, 9999),
        "since": 2019,
        "profile": {"contact": draft.record("tool_result", 2), "newsletter": False},
        "notes": [{"text": draft.phrase("tool_result"), "priority": 2}],
    }


def _order_record(draft: Draft, order: str, product: str) -> dict[str, Any]:
    return {
        "order_number": order,
        "lines": [{"sku": f"SKU-{draft.rng.randint(100, 999)}", "name": product, "price": 249.5}],
        "payment": draft.record("tool_result", 1) | {"status": "paid"},
    }


def _settings_file(draft: Draft) -> str:
    lines = ["[service]", "retries = 3", 'version = "2.4.1"', f"# {draft.phrase('tool_result')}"]
    lines.append(f'api_key = "{draft.value("SECRET", "tool_result")}"')
    return "\n".join([*lines, ""])
