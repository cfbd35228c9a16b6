"""headrace feedback: rate a trajectory, a step or a response from the command line."""

import json
import os
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError, TransientError

_TIMEOUT_SECONDS = 30.0
_KEY_VARIABLE = "HEADRACE_KEY"
_KINDS = ("trajectory", "step", "response")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(feedback)


def target_of(text: str) -> dict[str, str]:
    """`step:ID`, `trajectory:ID` or `response:ID`; a provider's response id needs no prefix."""
    kind, colon, value = text.partition(":")
    if colon and kind in _KINDS and value:
        return {f"{kind}_id": value}
    if text.startswith(("chatcmpl-", "msg_", "resp_")):
        return {"response_id": text}
    raise ConfigError(
        "Write the target as trajectory:ID, step:ID or response:ID. An id that begins with "
        "chatcmpl-, msg_ or resp_ is taken as a response."
    )


def value_of(text: str) -> bool | float:
    """`true` and `false` as they are, everything else as a number."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        raise ConfigError("--value takes a number, true or false; --label takes words.") from None


def feedback(
    target: Annotated[str, typer.Argument(help="trajectory:ID, step:ID or response:ID")],
    name: Annotated[str, typer.Option(help="What is rated, such as resolved.")],
    value: Annotated[str | None, typer.Option(help="A number, true or false.")] = None,
    label: Annotated[str | None, typer.Option(help="A word, such as resolved.")] = None,
    text: Annotated[str | None, typer.Option(help="A critique or a better answer.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="scalar, label, critique, demonstration or preference. "
            "Default: as the given field suggests."
        ),
    ] = None,
    feedback_id: Annotated[
        str | None, typer.Option(help="Id of the rating; a correction gives it again.")
    ] = None,
    revision: Annotated[
        int, typer.Option(min=1, help="Above 1 corrects the rating with this --feedback-id.")
    ] = 1,
    retract: Annotated[bool, typer.Option("--retract", help="Take the rating back.")] = False,
    confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="How sure the rater is.")
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="No further reward is expected.")] = False,
    task_key: Annotated[str | None, typer.Option(help="What was attempted.")] = None,
    key: Annotated[
        str | None, typer.Option(help=f"Gateway key. Default: ${_KEY_VARIABLE}.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of the gateway. Default: from the settings.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send one rating to the gateway. The key needs the scope feedback:write.

    Example: headrace feedback response:chatcmpl-17 --name resolved --value 1 --final
    """
    given = {
        "value": None if value is None else value_of(value),
        "label": label,
        "text": text,
        "kind": kind,
        "feedback_id": feedback_id,
        "revision": revision,
        "retract": retract,
        "confidence": confidence,
        "final": final,
        "task_key": task_key,
    }
    body: dict[str, Any] = {"target": target_of(target), "name": name}
    body |= {field: chosen for field, chosen in given.items() if chosen is not None}
    key = key or os.environ.get(_KEY_VARIABLE)
    if not key:
        raise ConfigError(
            f"Give a key by --key or ${_KEY_VARIABLE}. Make one: "
            "headrace keys create --tenant T --scope feedback:write"
        )
    answer = _post(f"{url or _gateway_url(data_dir)}/v1/feedback", body, key)
    typer.echo(json.dumps(answer) if as_json else f"accepted as {answer['ids'][0]}")


def _gateway_url(data_dir: DataDir) -> str:
    from infra.local.launch import find_settings

    gateway = find_settings(data_dir).gateway
    return f"http://{gateway.host}:{gateway.port}"


def _post(url: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise ConfigError("Begin --url with http:// or https://.")
    headers = {"content-type": "application/json", "x-headrace-key": key}
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - checked above
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.loads(response.read())
            return answer
    except HTTPError as error:
        raise _refusal(error) from None
    except URLError as error:
        raise TransientError(
            f"The gateway at {url} cannot be reached ({error.reason}). `headrace up` starts it."
        ) from None


def _refusal(error: HTTPError) -> ConfigError | TransientError:
    try:
        message = str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The gateway answered {error.code}."
    return TransientError(message) if error.code >= 500 else ConfigError(message)
