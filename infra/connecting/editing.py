"""Puts values into a settings file and takes them out again. Pure: text in, text out.

What another hand wrote stays: a value that is there already and is not ours is refused, and so is
a file that is not understood.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from infra.connecting.clients import Form
from schemas.errors import ConfigError

Values = Mapping[tuple[str, ...], str]
_MARK = "  # headrace connect"


def added(text: str, form: Form, values: Values, ours: Values) -> str:
    """The text with the values. `ours` are those that an earlier call has put there. ConfigError
    where another value stands."""
    bare = removed(text, form, {path: v for path, v in ours.items() if path in values})
    if form == "json":
        return _json_added(bare, values)
    for path in values:
        if path[0] in _names(bare, form):
            raise _taken(path)
    if form == "toml":  # before the first table, or it would be part of the last one
        lines = "".join(f"{path[0]} = {json.dumps(v)}{_MARK}\n" for path, v in values.items())
        return lines + bare
    gap = "" if not bare or bare.endswith("\n") else "\n"
    return bare + gap + "".join(f'{path[0]}="{value}"\n' for path, value in values.items())


def removed(text: str, form: Form, values: Values) -> str:
    """The text without the values, as far as they still stand there."""
    if form == "json":
        return _json_removed(text, values)
    ours = {f"{path[0]} = {json.dumps(value)}{_MARK}" for path, value in values.items()}
    if form == "env":
        ours = {f'{path[0]}="{value}"' for path, value in values.items()}
    kept = [line for line in text.splitlines(keepends=True) if line.rstrip("\r\n") not in ours]
    return "".join(kept)


def _names(text: str, form: Form) -> set[str]:
    if form == "toml":
        try:
            return set(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                "The file is no TOML. Correct it, or set the value by hand."
            ) from error
    lines = (line.strip().removeprefix("export ").partition("=") for line in text.splitlines())
    return {name.strip() for name, mark, _ in lines if mark and not name.startswith("#")}


def _taken(path: tuple[str, ...]) -> ConfigError:
    return ConfigError(
        f"{'.'.join(path)} has another value there already. It was left as it is: change it by "
        "hand, or remove it and run this again."
    )


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigError(
            "The file is no plain JSON (perhaps it holds comments). Set the value by hand."
        ) from error
    if not isinstance(value, dict):
        raise ConfigError("The file holds no JSON object. Set the value by hand.")
    return value


def _json_added(text: str, values: Values) -> str:
    whole = _parsed(text)
    for path, value in values.items():
        inner = whole
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise _taken(path)
        if inner.get(path[-1], value) != value:
            raise _taken(path)
        inner[path[-1]] = value
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _json_removed(text: str, values: Values) -> str:
    whole, is_changed = _parsed(text), False
    for path, value in values.items():
        holders = [whole]
        for name in path[:-1]:
            inner = holders[-1].get(name)
            holders.append(inner if isinstance(inner, dict) else {})
        if holders[-1].get(path[-1]) != value:
            continue
        is_changed = True
        del holders[-1][path[-1]]
        for holder, name in reversed(list(zip(holders, path[:-1], strict=False))):
            if holder.get(name) == {}:
                del holder[name]
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n" if is_changed else text
