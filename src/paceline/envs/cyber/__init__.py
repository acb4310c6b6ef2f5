"""Network defence: a defender of 13 hosts against a scripted attacker, many games at once."""

from __future__ import annotations
