"""Functions of one's own, named by settings as `package.module:function`.

An objective has the seven arguments of those in `trainer/objective.py` and gives loss and stats. A
reward function has (prompt, answer, reward, task_key) and gives a number. What cannot be imported,
or called like this, is refused before anything is learned.
"""

import dataclasses
import importlib
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from schemas.atdp.training import SequenceKind
from schemas.errors import ConfigError, PermanentError, Reason
from trainer.examples import Example
from trainer.objective import OBJECTIVES, Objective, Options, Stats, Tokens, standard_stats

_OBJECTIVE_ARGUMENTS = (
    "logp", "logp_prox", "logp_behaviour", "advantage", "mask", "sequence_ids", "version_lag",
)  # fmt: skip
_REWARD_ARGUMENTS = ("prompt", "answer", "reward", "task_key")
#: What code that is wrong raises.
_BROKEN = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError,
           OSError, RuntimeError, SyntaxError, TypeError, ValueError)  # fmt: skip

Rate = Callable[[Example], Example]
"""Gives an example the reward that it learns from."""


def objective_of(name: str, options: Options, code: Path | None) -> Objective:
    """The objective that a setting names, one of ours or one's own. ConfigError, see there."""
    if name in OBJECTIVES:
        return OBJECTIVES[name](options)
    setting = "HEADRACE_TRAINER__OBJECTIVE"
    own = _function(name, setting, _OBJECTIVE_ARGUMENTS, code)
    _try_out(own, name, setting)

    def loss_of(
        logp: Tokens, logp_prox: Tokens, logp_behaviour: Tokens, advantage: Tokens,
        mask: Tokens, sequence_ids: Tokens, version_lag: Tokens,
    ) -> tuple[Tokens, Stats]:  # fmt: skip
        rest = (logp_prox, logp_behaviour, advantage, mask, sequence_ids, version_lag)
        loss, told = own(logp, *rest)
        return loss, standard_stats(logp, logp_behaviour, mask, version_lag) | told

    return loss_of


def rate_of(name: str | None, model: Path, code: Path | None) -> Rate:
    """What the setting `trainer.reward` does to examples; nothing where there is none."""
    if name is None:
        return lambda example: example
    own = _function(name, "HEADRACE_TRAINER__REWARD", _REWARD_ARGUMENTS, code)
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)

    def text(example: Example) -> tuple[str, str]:
        first = int(example.positions[0])
        ids = example.token_ids.tolist()
        before, after = (
            tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:first], ids[first:])
        )
        return before, after

    def rated(example: Example) -> Example:
        if example.kind is SequenceKind.RETRACTION:  # its text is gone, so its reward is unknown
            return dataclasses.replace(example, replaced_reward=None)
        if example.reward is None or example.positions.size == 0:
            return example
        prompt, answer = text(example)
        _, _, task_key = example.task.partition("/")

        def again(reward: float) -> float:
            return _number_of(own, (prompt, answer, reward, task_key))

        replaced = example.replaced_reward
        return dataclasses.replace(
            example,
            reward=again(example.reward),
            replaced_reward=None if replaced is None else again(replaced),
        )

    return rated


def _number_of(own: Callable[..., Any], arguments: tuple[str, str, float, str]) -> float:
    """PermanentError when the function fails; without its text, which may quote the answer."""
    try:
        found = own(*arguments)
    except _BROKEN:
        raise PermanentError(Reason.BUG, "reward") from None
    if isinstance(found, bool | int | float) and math.isfinite(found):
        return float(found)
    raise PermanentError(Reason.NOT_FINITE, "reward")


def _function(
    name: str, setting: str, arguments: tuple[str, ...], code: Path | None
) -> Callable[..., Any]:
    if code is not None and str(code.absolute()) not in sys.path:
        sys.path.append(str(code.absolute()))
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except _BROKEN as error:
        raise ConfigError(
            f"{setting} is {name}, which cannot be imported ({type(error).__name__}). Name it as "
            "package.module:function; HEADRACE_TRAINER__CODE is the folder where it lies."
        ) from None
    wanted = ", ".join(arguments)
    try:
        inspect.signature(found).bind(*arguments)
    except (TypeError, ValueError):
        raise ConfigError(f"{setting} is {name}, which does not take ({wanted}).") from None
    return found  # type: ignore[no-any-return]


def _try_out(own: Callable[..., Any], name: str, setting: str) -> None:
    """Two made-up tokens show whether it gives what a step needs."""
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    ones = torch.ones(2)
    try:
        found = own(logp, logp.detach(), logp.detach(), ones, ones / 2, ones.long(), ones)
    except _BROKEN as error:
        raise ConfigError(
            f"{setting} is {name}, which fails with two tokens ({type(error).__name__})."
        ) from None
    match found:
        case (torch.Tensor() as loss, dict()):
            is_fit = loss.dim() == 0 and loss.requires_grad
        case _:
            is_fit = False
    if not is_fit:
        raise ConfigError(
            f"{setting} is {name}, which has to give (loss, stats): one number with a gradient "
            "through logp, and a dict."
        )
