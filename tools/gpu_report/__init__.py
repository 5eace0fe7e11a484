# SPDX-License-Identifier: MIT
"""The parts of tools/gpu-report: stages (what is done), runner (how), report (what is written), beside (PyTorch), pack (taking it along)."""
