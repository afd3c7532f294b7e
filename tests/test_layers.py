"""One direction: a package imports only from packages to its left."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crosslift"
ORDER = (
    *("errors", "data", "tasks", "models", "align", "translate", "methods", "measure"),
    *("runs", "report", "reproduce", "cli"),
)
LEVELS = {name: level for level, name in enumerate(ORDER)}
# The embedded corpus is data made of examples; the catalog opens it by name, so that it stays unread until then.
LEVELS["demo"] = LEVELS["data"] + 0.5
# A type that a signature names is not work that is done there.
ONLY_TYPES = {("models", "tasks")}


def imports(tree: ast.AST, typed: bool = False):
    """Yield (imported module, whether only for types) of every import, wherever it stands."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, typed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            # `from crosslift import data` names a package, too.
            deeper = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name, typed) for name in (deeper if node.module == "crosslift" else [node.module]))
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from imports(node, typed=True)
        else:
            yield from imports(node, typed)


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_a_module_imports_only_from_its_left(file):
    package = file.relative_to(SOURCE).with_suffix("").parts[0]
    if package in ("__init__", "__main__"):  # the public names stand above everything
        return
    assert package in LEVELS, f"{package} has no place in the order of packages"
    for module, only_types in imports(ast.parse(file.read_text(encoding="utf-8"))):
        root, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if root != "crosslift" or target in ("", "__version__", package):
            continue
        allowed = LEVELS[target] < LEVELS[package] or (only_types and (package, target) in ONLY_TYPES)
        assert allowed, f"{package} imports {module}, which is not to its left"


def test_methods_do_not_import_each_other():
    methods = {file.stem for file in (SOURCE / "methods").glob("*.py")} - {"__init__"}
    for name in methods:
        found = {module for module, _ in imports(ast.parse((SOURCE / "methods" / f"{name}.py").read_text()))}
        assert not found & {f"crosslift.methods.{other}" for other in methods - {name}}, name


def test_every_package_is_there_to_be_checked():
    packages = {file.relative_to(SOURCE).parts[0] for file in MODULES if len(file.relative_to(SOURCE).parts) > 1}
    assert {"data", "tasks", "models", "methods", "measure", "runs", "cli"} <= packages
