"""Slow reference of network defence: hosts with processes, sessions and connections, without tables.

It shares only the names of actions and the meaning of random bits with the env."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

_GROUPS = (("Enterprise", 3), ("Op_Host", 3), ("Op_Server", 1), ("User", 5))
ORDER = ["Defender", *(f"{name}{i}" for name, count in _GROUPS for i in range(count))]
WINDOWS = {"Enterprise1", "Enterprise2", "User0", "User1", "User2"}
SUBNETS = {
    "user": [f"User{i}" for i in range(5)],
    "enterprise": ["Enterprise0", "Enterprise1", "Enterprise2", "Defender"],
    "operational": ["Op_Server0", "Op_Host0", "Op_Host1", "Op_Host2"],
}
KINDS = [
    "Analyse",
    "Remove",
    "Apache",
    "Femitter",
    "Haraka",
    "Smss",
    "SSHD",
    "Svchost",
    "Tomcat",
    "Vsftpd",
    "Restore",
]
DECOYS = {  # process, port, port that must be free, system
    "Apache": ("web", 80, 80, "any"),
    "Femitter": ("ftp", 21, 21, "windows"),
    "Haraka": ("smtp", 25, 25, "linux"),
    "Smss": ("smb", 139, 139, "windows"),
    "SSHD": ("ssh", 22, 22, "any"),
    "Svchost": ("rdp", 3389, 3389, "windows"),
    "Tomcat": ("web", 443, 443, "any"),
    "Vsftpd": ("web", 80, 21, "linux"),
}
EXPLOITS = [  # weight, process, port
    (7.0, "ftp", 21),
    (6.0, "smtp", 25),
    (5.0, "mysql", 3390),
    (4.0, "web", 443),
    (3.0, "web", 80),
    (2.0, "smb", 139),
    (1.0, "rdp", 3389),
    (0.1, "ssh", 22),
]
ADMINS = {"root", "SYSTEM"}
WORD = 2**64


def scramble(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def word(key: int, counter: int) -> int:
    return scramble((key + counter * 0x9E3779B97F4A7C15) % WORD)


@dataclass
class Process:
    kind: str
    ports: list[int]
    user: str
    decoy: bool = False
    works: bool = True


@dataclass
class Session:
    user: str
    alerted_shell: bool = False


@dataclass
class Connection:
    port: int
    calls_home: bool = False


EPHEMERAL = 50_000


def image(host: str) -> list[Process]:
    if host in ("User0", "User1"):
        return [Process("ssh", [22], "sshd"), Process("ftp", [21], "SYSTEM")]
    if host == "User2":
        return [
            Process("smb", [445, 139], "SYSTEM"),
            Process("rpc", [135], "SYSTEM"),
            Process("rdp", [3389], "network"),
        ]
    if host == "User3":
        web = [Process("web", [80], "www"), Process("mysql", [3389], "root"), Process("web", [443], "www")]
        return [*web, Process("smtp", [25], "root")]
    if host == "User4":
        web = [Process("web", [80], "www"), Process("mysql", [3390], "root"), Process("web", [443], "www")]
        return [Process("ssh", [22], "root"), *web, Process("smtp", [25], "root")]
    if host in ("Enterprise1", "Enterprise2"):
        return [
            Process("ssh", [22], "sshd"),
            Process("rpc", [135], "SYSTEM"),
            Process("rdp", [3389], "SYSTEM"),
            Process("smss", [445, 139], "SYSTEM"),
            Process("web", [80, 443], "network"),
        ]
    if host == "Defender":
        return [Process("ssh", [22], "root"), Process("dns", [53, 53], "dns"), Process("dhcp", [68], "net")]
    return [Process("ssh", [22], "root")]


@dataclass
class Host:
    name: str
    processes: list[Process] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    files: int = 0
    seen: list[Connection] = field(default_factory=list)
    belief: str = "No"
    haraka_broken: bool = False

    def __post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        self.processes = image(self.name)
        self.sessions = [Session("SYSTEM")] if self.name == "User0" else []
        self.files = 0
        for process in self.processes:
            process.works = not (process.kind == "smtp" and self.haraka_broken)

    def listening(self) -> list[int]:
        return [port for process in self.processes for port in process.ports]

    def process(self, kind: str, port: int) -> Process | None:
        return next((p for p in self.processes if p.kind == kind and port in p.ports), None)

    def held(self) -> bool:
        return bool(self.sessions)

    def owned(self) -> bool:
        return any(session.user in ADMINS for session in self.sessions)


class SlowGame:
    def __init__(self, seed: int, *, red_agent: str, green: bool, rules: str, q1: bool, max_steps: int) -> None:
        self.stream, self.episode = scramble(seed % WORD), 0
        self.red_agent, self.green, self.old_rules, self.q1 = red_agent, green, rules != "head", q1
        self.max_steps = max_steps

    def reset(self) -> None:
        self.episode += 1
        self.key = word(self.stream, self.episode)
        self.hosts = {name: Host(name) for name in ORDER}
        self.ports: dict[str, list[int]] = {}
        self.ot_running, self.ot_restored, self.time = True, False, 0
        first = word(self.key, 0) >> 32
        self.red = BlineScript(f"User{1 + (first * 4 >> 32)}") if self.red_agent == "bline" else MeanderScript()

    def step(self, action: int) -> tuple[list[int], float, list[int]]:
        a, b, c = (word(self.key, self.time * 3 + k) for k in (1, 2, 3))
        self.time += 1
        new_decoy, found = self.blue(action)
        if self.green and c >> 32 < 2**31:
            names = [*(f"User{i}" for i in range(5)), *(f"Enterprise{i}" for i in range(3))]
            self.scan(self.hosts[names[(c % 2**32) * 8 >> 32]])
        if self.red_agent != "sleep":
            act, target = self.red.choose(a >> 32)
            success, shown = self.execute(act, target, alert=a % 2**32 < int(0.95 * 2**32), choice=b)
            self.red.learn(act, target, success, shown)
        cost = sum(self.price(host) for host in self.hosts.values() if host.owned())
        cost += 10 * (not self.ot_running) + (action >= 132)
        return (
            self.look(new_decoy, found),
            -round(cost, 1),
            [2 if host.owned() else int(host.held()) for host in self.hosts.values()],
        )

    @staticmethod
    def price(host: Host) -> float:
        if host.name == "User0":
            return 0.0
        return 1.0 if host.name.startswith("Ent") or host.name == "Op_Server0" else 0.1

    def blue(self, action: int) -> tuple[str | None, str | None]:
        if action < 2:
            return None, None
        kind, host = KINDS[(action - 2) // 13], self.hosts[ORDER[(action - 2) % 13]]
        if kind == "Analyse":
            return None, host.name if host.files else None
        if kind == "Remove":
            host.sessions = [s for s in host.sessions if s.user in ADMINS or not s.alerted_shell]
            host.belief = "No" if host.belief == "No" else "Unknown"
        elif kind == "Restore":
            host.haraka_broken |= self.old_rules
            host.boot()
            host.belief = "No"
            if host.name == "Op_Server0":
                self.ot_running = self.ot_restored = True
        else:
            process, port, free, system = DECOYS[kind]
            fits = system == "any" or (system == "windows") == (host.name in WINDOWS)
            if fits and free not in host.listening():
                host.processes.append(Process(process, [port], "decoy", decoy=True))
                return host.name, None
        return None, None

    def scan(self, host: Host) -> None:
        host.seen += [Connection(port) for port in host.listening()]

    def reachable(self, name: str) -> bool:
        return not name.startswith("Op") or any(self.hosts[f"Enterprise{i}"].held() for i in range(3))

    def execute(self, act: str, target: str, *, alert: bool, choice: int) -> tuple[bool, bool]:
        """Whether it succeeded, and whether it showed anything."""
        if act == "ping":
            return self.reachable(SUBNETS[target][0]), True
        host = self.hosts[target]
        if act == "scan":
            if not self.reachable(target):
                return True, False
            self.scan(host)
            seen = host.listening()
            self.ports[target] = self.ports.get(target, []) + seen if self.old_rules else seen
            return True, True
        if act == "exploit":
            return self.exploit(host, alert=alert, choice=choice), True
        if act == "escalate":
            if host.held() and not host.owned():
                host.sessions[0].user = "SYSTEM" if target in WINDOWS else "root"
                host.files += 1
            return host.held(), True
        if host.held() and not (self.q1 and self.ot_restored):
            self.ot_running = False
        return host.held(), True

    def exploit(self, host: Host, *, alert: bool, choice: int) -> bool:
        known = self.ports.get(host.name, [])
        if not known or not self.reachable(host.name):
            return False
        options = [e for e in EXPLOITS if e[2] in known and (e[1] != "mysql" or 80 in known or 443 in known)]
        best = max(options)
        others = [option for option in options if option != best]
        if others and choice >> 32 >= 3 * 2**30:
            best = others[(choice % 2**32) * len(others) >> 32]
        _, kind, port = best
        process = host.process(kind, port)
        if process is None:
            return False
        if kind == "ssh":
            host.seen += [Connection(22)] * 10
            if process.decoy or host.name == "Defender":
                return False
            host.seen.append(Connection(22))
            host.sessions.append(Session("guessed"))
            return True
        host.seen.append(Connection(port))
        if not process.works:
            return False
        if process.decoy:
            host.seen.append(Connection(port))
            return False
        host.files += 1
        host.sessions.append(Session(process.user, alerted_shell=alert))
        if alert:
            host.seen.append(Connection(EPHEMERAL, calls_home=True))
        return True

    def look(self, new_decoy: str | None, found: str | None) -> list[int]:
        bits: list[int] = []
        for host in self.hosts.values():
            activity = self.read(host.seen, host.name == new_decoy)
            host.seen = []
            if activity == "Exploit":
                host.belief = "User"
            if host.name == found:
                host.belief = "Privileged"
            bits += {"None": [0, 0], "Scan": [1, 0], "Exploit": [1, 1]}[activity]
            bits += {"No": [0, 0], "Unknown": [1, 0], "User": [0, 1], "Privileged": [1, 1]}[host.belief]
        return bits

    @staticmethod
    def read(seen: list[Connection], decoy_first: bool) -> str:
        entries, ports = len(seen) + decoy_first, {connection.port for connection in seen}
        if entries == 0:
            return "None"
        if entries >= 3 and len(ports) >= 3:
            return "Scan"
        if any(connection.calls_home for connection in seen):
            return "Exploit"
        if entries >= 3 and len(ports) == 1:
            return "Exploit"
        return "None" if decoy_first else "Scan"


class BlineScript:
    def __init__(self, user: str) -> None:
        enterprise = "Enterprise1" if user in ("User1", "User2") else "Enterprise0"
        self.script = [
            ("ping", "user"),
            ("scan", user),
            ("exploit", user),
            ("escalate", user),
            ("scan", enterprise),
            ("exploit", enterprise),
            ("escalate", enterprise),
            ("ping", "enterprise"),
            ("scan", "Enterprise2"),
            ("exploit", "Enterprise2"),
            ("escalate", "Enterprise2"),
            ("scan", "Op_Server0"),
            ("exploit", "Op_Server0"),
            ("escalate", "Op_Server0"),
            ("impact", "Op_Server0"),
        ]
        self.state, self.success, self.shown = 0, False, True
        self.done: set[int] = set()

    def choose(self, noise: int) -> tuple[str, str]:
        if self.success:
            self.state = min(self.state + 1, 14)
        else:
            self.state = [0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13][self.state]
        if self.state == 12 and 12 not in self.done and not self.shown:
            self.state = 1
        self.done.add(self.state)
        return self.script[self.state]

    def learn(self, act: str, target: str, success: bool, shown: bool) -> None:
        self.success, self.shown = success, shown


class MeanderScript:
    def __init__(self) -> None:
        self.subnets, self.pinged = {"user"}, set[str]()
        self.known, self.scanned = {"User0"}, set[str]()
        self.exploited, self.escalated = set[str](), set[str]()
        self.names, self.mapped = {"User0"}, set[str]()  # mapped: hosts whose address it learnt by exploiting them

    def choose(self, noise: int) -> tuple[str, str]:
        def one(among: Iterable[str]) -> str:
            ordered = [name for name in ORDER if name in set(among)]
            return ordered[noise * len(ordered) >> 32]

        if "Op_Server0" in self.escalated:
            return "impact", "Op_Server0"
        if new := self.subnets - self.pinged:
            self.pinged |= new
            return "ping", new.pop()
        if unscanned := self.known - self.scanned:
            self.scanned.add(target := one(unscanned))
            return "scan", target
        owned = {
            n for n in self.names - self.escalated if n in self.exploited or (n == "User0" and n not in self.mapped)
        }
        if owned:
            self.escalated.add(target := one(owned))
            return "escalate", target
        self.exploited.add(target := one(self.known - self.exploited))
        return "exploit", target

    def learn(self, act: str, target: str, success: bool, shown: bool) -> None:
        if act == "ping" and success:
            self.known |= set(SUBNETS[target])
        if act == "exploit" and success:
            self.names.add(target)
            self.mapped.add(target)
        if act == "escalate" and success:
            self.reveal(target)
        if act == "exploit" and not success:
            self.exploited.remove(target)
            doubted = {n for n in self.escalated if n.startswith("Op")} or {
                n for n in self.escalated if n.startswith("Enterprise")
            }
            self.escalated -= doubted
            self.exploited -= doubted
        if act in ("escalate", "impact") and not success:
            self.escalated.discard(target)
            self.exploited.discard(target)

    def reveal(self, host: str) -> None:
        if host in ("User1", "User2"):
            self.known.add("Enterprise1")
        elif host in ("User3", "User4"):
            self.known.add("Enterprise0")
        elif host.startswith("Enterprise"):
            self.subnets.add("enterprise")
            if host == "Enterprise2":
                self.known.add("Op_Server0")
        elif host.startswith("Op"):
            self.subnets.add("operational")
