"""Play the demo's conversations on a deployment that runs elsewhere, and compare.

    python -m infra.demo.elsewhere --gateway http://gateway:8400 --seed 1

The settings name its Kafka and its store. Its gateway must relay to `python -m infra.demo.upstream`
with the same seed. Its tables must be empty: what others stored would count as too much. Prints
one line of JSON; exit code 1 when a call is lost or doubled, or a reward is not joined.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from rich.console import Console

from infra.demo.conversations import generate
from infra.demo.phases import Progress
from infra.demo.player import Player
from infra.demo.report import RichProgress
from infra.demo.settle import settle
from infra.demo.stage import TENANT, stage_of
from infra.demo.verify import is_complete
from infra.store import open_reader
from schemas.errors import ConfigError, HeadraceError
from schemas.settings import load_settings


def compare(gateway_url: str, seed: int, concurrency: int, progress: Progress) -> dict[str, Any]:
    """Play, wait until all has arrived or nothing more comes, and count."""
    stage = stage_of(load_settings(), gateway_url, progress)
    conversations = generate(seed)
    player = Player(
        stage.target,
        conversations,
        seed=seed,
        concurrency=concurrency,
        on_call=lambda _call: progress.advance(),
    )

    async def both() -> None:
        progress.begin("playing conversations", sum(len(talk.turns) for talk in conversations))
        await player.play()
        progress.end()
        progress.begin("sending late rewards", player.num_late_posts)
        await player.send_late_rewards(progress.advance)
        progress.end()

    asyncio.run(both())
    ledger = player.ledger
    progress.begin("waiting for rows and rewards", len(ledger.calls) + ledger.num_rewards)
    with open_reader() as reader:
        evidence, verdict = settle(reader, stage.bus, ledger, TENANT, progress.remaining)
    progress.end()
    return {
        "calls": len(ledger.calls),
        "steps": evidence.num_steps,
        "lost": verdict.num_lost,
        "duplicated": verdict.num_duplicated,
        "dead_lettered": evidence.num_dead_lettered,
        "quarantined": evidence.num_quarantined,
        "rewards_sent": ledger.num_rewards,
        "rewards_joined": verdict.num_rewards_joined,
        "complete": is_complete(ledger, verdict) and verdict.num_duplicated == 0,
    }


def main(arguments: list[str]) -> int:
    """0 when all is there once, 1 when not, 2 for a wrong configuration."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.demo.elsewhere",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gateway", required=True, help="URL of the gateway, without /v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=20)
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    try:
        with RichProgress(console) as progress:
            url = given.gateway.rstrip("/")
            numbers = compare(url, given.seed, given.concurrency, progress)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    sys.stdout.write(json.dumps(numbers) + "\n")
    return 0 if numbers["complete"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
