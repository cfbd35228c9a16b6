"""Where tensors live: whatever accelerator torch reports, else the CPU. No device is named here."""

import torch


def best_device() -> torch.device:
    """The current accelerator (CUDA, Ascend NPU, XPU, … or a plug-in's), else the CPU."""
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return torch.empty(0).device
