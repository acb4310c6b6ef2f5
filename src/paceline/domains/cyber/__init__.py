"""Network defence: a defender of 13 hosts against a scripted attacker, many games at once.

In the order in which to read them:

    actions.py      the names of hosts and actions
    scenario.py     the settings
    services.py     what runs on the hosts, and what an exploit meets
    tables.py       what each side's acts do to a host, and what is seen of it
    attackers.py    B_line, Meander, Sleep
    network.py      the games: n of them, stepped together
    env.py          one of them as a Gymnasium env; text.py shows it
    vector.py       many as Gymnasium's vector env
"""

from __future__ import annotations
