"""The seams of the program stay typed: what a reader may rely on where rooms meet, checked on the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "paceline"
MODULES = sorted(SRC.rglob("*.py"))

SEAMS = (
    "train/loop.py",
    "train/plan.py",
    "train/build.py",
    "train/training.py",
    "train/rollout_plan.py",
    "train/rollout_job.py",
    "train/slot_sets.py",
    "train/slot_scheduler.py",
    "train/rollouts.py",
    "train/async_rollouts.py",
    "train/replay_batches.py",
    "train/replay_stream.py",
    "train/restarts.py",
    "train/algorithms",
    "runtime/protocol.py",
    "runtime/inline.py",
    "runtime/process.py",
    "inference/server.py",
)
"""Where loop, learner, collector and runtime meet."""
HOLDERS = {"NDArray", "Env", "VectorEnv", "Space", "dtype"}
"""Generic types of other libraries whose parameter says nothing here: NDArray[Any] is an array of any dtype."""
RECORDS = {"dict", "Mapping"}
"""dict[str, Any] is the content of a JSON file."""
DECIDED = ("Plan", "Program", "Config", "Settings", "Runtime")
"""Suffixes of classes whose type nobody outside `train/algorithms` and `config` may ask for."""
USERS_HOOKS = {
    "numpy_actor": "a policy of the user's may have a fast forward",
    "forward_pullback": "a policy of the user's may have a fast backward",
    "measures": "a reward shaper may report measures",
    "measure": "a reward shaper may report measures",
    "extras": "an env may declare extras",
    "metadata": "an entry point of an env may declare render modes",
    "close": "a game may need closing",
    "render_mode": "a PettingZoo env may draw",
    "running_mean": "a layer of torch",
    "p": "a layer of torch",
    "mallopt": "a function of the C library",
    "__qualname__": "any callable",
    "__module__": "any class",
    "__name__": "any callable",
    "__func__": "a bound method",
    "__self__": "a bound method",
    "dtype": "what a user passed instead of an array",
    "body": "a node of a syntax tree",
    "__annotations__": "any callable",
}
"""Attributes that are looked up by name because objects of users and other libraries may lack them."""


def bare_any(annotation: ast.expr) -> bool:
    """Whether an annotation has `Any` somewhere that it says nothing: not as the parameter of an array."""
    match annotation:
        case ast.Name(id="Any"):
            return True
        case ast.Subscript(value=ast.Name(id=holder)) if holder in HOLDERS | RECORDS:
            return False
        case ast.Constant(value=str(text)):
            return bare_any(ast.parse(text, mode="eval").body)
    return any(bare_any(child) for child in ast.iter_child_nodes(annotation) if isinstance(child, ast.expr))


def annotations_of(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(args=args, returns=returns):
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
                given = [one.annotation for one in every if one is not None and one.annotation is not None]
                yield from ((one.lineno, one) for one in (*given, *([returns] if returns else [])))
            case ast.AnnAssign(annotation=annotation):
                yield annotation.lineno, annotation


def seams() -> list[Path]:
    found = [path for seam in SEAMS for path in ([SRC / seam] if seam.endswith(".py") else (SRC / seam).glob("*.py"))]
    assert all(path.is_file() for path in found)
    return found


@pytest.mark.parametrize("path", seams(), ids=lambda path: str(path.relative_to(SRC)))
def test_no_bare_any_where_loop_learner_collector_and_runtime_meet(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [f"{path.name}:{line}: {ast.unparse(one)}" for line, one in annotations_of(tree) if bare_any(one)] == []


@pytest.mark.parametrize(
    ("annotation", "bare"),
    [
        ("Any", True),
        ("list[Any]", True),
        ("Callable[..., Any]", True),
        ("Runtime[Any] | None", True),
        ("'Any'", True),
        ("NDArray[Any]", False),
        ("dict[str, NDArray[Any]]", False),
        ("Callable[[NDArray[Any]], Any]", True),
        ("object", False),
    ],
)
def test_the_check_knows_a_bare_any(annotation: str, bare: bool) -> None:
    assert bare_any(ast.parse(annotation, mode="eval").body) is bare


def asked_types(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The class names that `isinstance` and `match` ask for."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, types]):
                yield from ((node.lineno, one.id) for one in ast.walk(types) if isinstance(one, ast.Name))
            case ast.MatchClass(cls=ast.Name(id=name)):
                yield node.cls.lineno, name


def test_only_algorithms_and_config_ask_for_the_type_of_plans_settings_and_runtimes() -> None:
    found = [
        f"{path.relative_to(SRC)}:{line}: {name}"
        for path in MODULES
        if path.parent.name != "algorithms" and path.parent != SRC / "config"
        for line, name in asked_types(ast.parse(path.read_text(encoding="utf-8")))
        if name.endswith(DECIDED)
    ]
    assert found == []


def test_no_algorithm_is_asked_for_by_its_name() -> None:
    names = {"ppo", "impala", "appo", "a3c", "dqn"}
    found = []
    for path in MODULES:
        if path.parts[-2:] == ("config", "algorithms.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                compared = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and one.value in names]
                found += [f"{path.relative_to(SRC)}:{node.lineno}: {ast.unparse(node)}" for _ in compared]
    assert found == []


def test_no_public_class_name_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_attributes_are_looked_up_by_name_only_on_objects_of_others() -> None:
    found = [
        f"{path.relative_to(SRC)}:{node.lineno}: {ast.unparse(node)}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value not in USERS_HOOKS
    ]
    assert found == []


def test_no_class_forwards_what_it_does_not_define() -> None:
    found = [
        f"{path.relative_to(SRC)}:{method.lineno}: {node.name}"
        for path in MODULES
        if "integrations" not in path.parts  # whose stand-ins for modules of other libraries must
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__getattr__"
    ]
    assert found == []
