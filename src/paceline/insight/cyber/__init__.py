"""Training a network's defender: settings that suit it, workflows searched for, scores as the field reports them."""

from __future__ import annotations
