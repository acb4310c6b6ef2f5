"""Network defence: a policy defends 13 hosts against a scripted attacker. Steps many games at once.

Modules in reading order:

    actions.py      names of hosts and actions
    scenario.py     settings of a game
    services.py     services and decoys on the hosts, and the outcome of exploits, as tables
    tables.py       effects of the defender's and the attacker's actions on a host, as tables
    attackers.py    the scripted attackers: B_line, Meander, Sleep
    network.py      n games that are stepped together
    env.py          one game as a Gymnasium env, and as text
    vector.py       many games as a Gymnasium vector env

    workflow.py, conditioned.py                          workflows: the alignment reward, envs that show the workflow
    training.py, command.py, scores.py                   `paceline cyber train` and `paceline cyber eval`
    search.py, gp_ucb.py, trials.py, search_report.py,
    workflow_training.py                                 `paceline cyber search`
"""

from __future__ import annotations
