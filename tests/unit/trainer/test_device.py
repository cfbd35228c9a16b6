"""No device is named: whatever torch reports is taken."""

import ast

import pytest
import torch

from tests.architecture.size_gates import ROOT
from trainer.device import best_device

_DEVICES = {"cuda", "npu", "xpu", "mps", "hpu", "cpu"}


def test_no_device_is_named_in_the_code() -> None:
    named = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "trainer").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.partition(":")[0] in _DEVICES
    ]
    assert named == []


def test_an_accelerator_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in's device has the name `privateuseone` until the plug-in renames it."""
    reported = torch.device("privateuseone", 0)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: reported)
    assert best_device() == reported


def test_without_one_tensors_stay_where_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert best_device() == torch.zeros(1).device
