"""What the worker asks its engine, over loopback HTTP. Blocks; for one thread.

EngineError says that the engine did not do what it was asked; whether it did half of it is not
known.
"""

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inference.worker.engine.middleware import PREFIX, SECRET_HEADER
from inference.worker.update import EngineError

_REQUEST_SECONDS = 60.0
_HTTP_OK = 200


class EngineClient:
    """The engine behind one port."""

    def __init__(self, port: int, secret: str) -> None:
        self._port, self._secret = port, secret

    def is_healthy(self) -> bool:
        """Whether it answers at all."""
        try:
            self._ask("GET", "/health", seconds=2.0)
        except EngineError:
            return False
        return True

    def bind(self, layout: Path) -> str | None:
        """Let it find the tensors of a layout file; what is wrong, if anything."""
        answers = self._rpc("headrace_bind", [str(layout)])
        return next((a["error"] for a in answers if a.get("error")), None)

    def digests(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """XXH3-128 of the engine's own tensors, of these or of all."""
        (answer,) = self._rpc("headrace_digests", [_listed(names)])
        return _digests(answer)

    def load_adapter(self, name: str, folder: Path) -> dict[str, bytes]:
        """Load the adapter in a folder under a name; digests of what the engine then has."""
        self._send("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        number = self._ask("POST", PREFIX + "adapter", {"name": name})["number"]
        (answer,) = self._rpc("headrace_adapter", [str(folder), f"{number}"])
        if "error" in answer:
            raise EngineError(answer["error"])
        return _digests(answer)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        self._ask("POST", PREFIX + "forget", {"name": name})

    def progress(self) -> dict[str, int]:
        """Request → tokens produced so far."""
        (answer,) = self._rpc("headrace_progress", [])
        return dict(answer)

    def write(
        self, patch: Path, names: Sequence[str] | None, fail_after: int | None = None
    ) -> dict[str, bytes]:
        """Let it write a patch file in place; digests of these tensors afterwards, or of all.

        One request, since each one lengthens the pause. `fail_after` tensors it fails, for tests.
        """
        info = {"path": str(patch), "fail_after": fail_after}
        (answer,) = self._rpc("headrace_update", [json.dumps(info), _listed(names)])
        return _digests(answer)

    def hold(self, seconds: float, *, drain: bool = True) -> bool:
        """Let no request in and wait for those inside; False, and no hold, when it takes longer.

        Without `drain` all are let in as before; they only learn that the weights will change.
        """
        asked = {"seconds": seconds, "drain": drain}
        return bool(self._ask("POST", PREFIX + "hold", asked, seconds + 5.0)["held"])

    def release(self) -> None:
        """Let requests in again."""
        self._ask("POST", PREFIX + "release", {})

    def pause(self) -> None:
        """Let requests under way stand still."""
        self._ask("POST", "/pause?mode=keep&clear_cache=false")

    def resume(self) -> None:
        """Let them go on."""
        self._ask("POST", "/resume")

    def drop_cache(self, *, running: bool) -> bool:
        """Forget what was computed with other weights; False while requests need it.

        With `running` those under way compute it anew.
        """
        flag = "true" if running else "false"
        answer = self._ask("POST", f"/reset_prefix_cache?reset_running_requests={flag}")
        return bool(answer["success"])

    def label(self, label: Mapping[str, object], progress: dict[str, int] | None = None) -> None:
        """Let answers carry this from now on: the fields of the middleware's `Label`."""
        self._ask("POST", PREFIX + "label", {"label": dict(label), "progress": progress})

    def state(self) -> dict[str, Any]:
        """What the middleware says of itself."""
        return self._ask("POST", PREFIX + "state", {})

    def _rpc(self, method: str, arguments: list[str]) -> list[dict[str, Any]]:
        answer = self._ask("POST", "/collective_rpc", {"method": method, "args": arguments})
        results: list[dict[str, Any]] = answer["results"]
        return results

    def _ask(
        self, method: str, path: str, body: Any = None, seconds: float = _REQUEST_SECONDS
    ) -> dict[str, Any]:
        content = self._send(path, body, method, seconds)
        return dict(json.loads(content)) if content else {}

    def _send(
        self, path: str, body: Any, method: str = "POST", seconds: float = _REQUEST_SECONDS
    ) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        headers = {SECRET_HEADER: self._secret, "content-type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{path} failed ({type(error).__name__})") from None
        finally:
            connection.close()
        if response.status != _HTTP_OK:
            raise EngineError(f"{path} was answered {response.status}")
        return content


def _listed(names: Sequence[str] | None) -> str:
    return json.dumps(None if names is None else sorted(names))


def _digests(answer: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(digest) for name, digest in answer.items()}
