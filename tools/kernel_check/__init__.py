# SPDX-License-Identifier: MIT
"""What tools/kernel-check is made of: a module for each noun."""
