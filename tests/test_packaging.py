"""The distributions hold what they should, and a missing compiler costs speed, not function."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from iggy_ref_server.cli import SPOKEN
from tests.interop.wheels import VERSIONS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("iggy_protocol", "iggy_ref_server", "iggy_sdk", "pyspark_iggy", "spark_jobs")
EXTENSIONS = [
    "iggy_protocol/_batch" + sysconfig.get_config_var("EXT_SUFFIX"),
    "iggy_ref_server/_uring.abi3.so",
]
NOT_COPIED = shutil.ignore_patterns(
    ".?*", "__pycache__", "*.egg-info", "*.so", "build", "dist", "golden", "htmlcov"
)
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
METHODS_OF_THE_RING = "from iggy_ref_server._uring import Ring; print(dir(Ring))"
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"


def installed_version(name: str) -> str | None:
    """Say which version of a distribution is installed, if any."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


needs_setuptools = pytest.mark.skipif(
    int((installed_version("setuptools") or "0").partition(".")[0]) < 77,
    reason="needs setuptools 77 or newer, which `make setup` installs",
)
needs_installation = pytest.mark.skipif(
    installed_version(PROJECT["name"]) is None,
    reason="needs the distribution installed, which `make setup` does",
)


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python on something."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def build(kind: str, source: Path, target: Path, **environment: str) -> Path:
    """Build a distribution with the backend itself and return the file it made."""
    target.mkdir()
    result = run("-c", BUILD, f"build_{kind}", str(target), cwd=source, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    [made] = target.iterdir()
    return made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source distribution, made from a copy of the tree and unpacked again."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "tree", ignore=NOT_COPIED)
    with tarfile.open(build("sdist", folder / "tree", folder / "made")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [tree] = (folder / "unpacked").iterdir()
    return tree


@needs_setuptools
@pytest.mark.timeout(120)
def test_source_distribution_when_unpacked_then_holds_all_that_builds_and_tests_it(unpacked):
    places = (ROOT / "protocol", ROOT / "iggy_ref_server")
    sources = [path.relative_to(ROOT) for place in places for path in place.rglob("*.[ch]")]
    sources += [path.relative_to(ROOT) for path in (ROOT / "tests").glob("*.py")]
    sources += [path.relative_to(ROOT) for path in LOCKS]
    pages = [Path("LICENSE"), Path("Makefile"), Path("README.md"), Path("pyproject.toml")]

    missing = [str(path) for path in [*sources, *pages] if not (unpacked / path).exists()]

    assert not missing


@needs_setuptools
@pytest.mark.timeout(120)
def test_wheel_when_built_without_a_compiler_then_is_whole_and_works(unpacked, tmp_path):
    false = shutil.which("false") or "false"
    wheel = build("wheel", unpacked, tmp_path / "made", CC=false, LDSHARED=false)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    modules = {
        path.relative_to(ROOT / "protocol").as_posix()
        for path in (ROOT / "protocol" / "iggy_protocol").rglob("*.py")
    }

    result = run(
        "-c", "import iggy_protocol as p; print(p.__file__)", cwd=tmp_path, PYTHONPATH="site"
    )

    assert modules | {f"{package}/py.typed" for package in PACKAGES} <= names
    assert not [name for name in names if name.endswith((".c", ".h", ".so"))]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "iggy_python",
        *PACKAGES,
    }
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(str(tmp_path))


@needs_setuptools
@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_wheel_when_built_with_a_compiler_then_holds_the_extension(unpacked, tmp_path):
    wheel = build("wheel", unpacked, tmp_path / "made", CFLAGS="")

    with zipfile.ZipFile(wheel) as archive:
        binaries = [name for name in archive.namelist() if name.endswith((".c", ".h", ".so"))]
        archive.extractall(tmp_path / "site")

    assert sorted(binaries) == sorted(EXTENSIONS)
    result = run("-c", METHODS_OF_THE_RING, cwd=tmp_path, PYTHONPATH="site")
    assert (result.returncode, result.stderr) == (0, "")
    assert "fsync" in result.stdout
    assert "inject" not in result.stdout


def test_extra_all_when_asked_for_then_brings_every_other_extra():
    extras = PROJECT["optional-dependencies"]

    named = re.findall(r"[a-z0-9]+(?=[,\]])", " ".join(extras["all"]))

    assert sorted(named) == sorted(set(extras) - {"all"})


CLIENT_EXTRAS = (
    *("websocket", "quic", "http", "otel", "compression", "pydantic", "arrow", "polars", "duckdb"),
)
MAY_IMPORT = {
    "protocol/iggy_protocol": ("quic", "websocket"),
    "iggy_sdk": CLIENT_EXTRAS,
    "iggy_ref_server": ("server",),
    "spark_jobs": ("spark",),
    "pyspark_iggy": ("spark",),
}
# A plugin that only pytest loads, and what type checkers bring themselves: nothing imports it.
IMPORTED_WITHOUT_AN_EXTRA = {("iggy_sdk", "pytest"), ("iggy_sdk", "typing-extensions")}


def imported_distributions(folder: Path) -> set[str]:
    """Return the distributions of other projects that the modules of a folder import."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                names.update(str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
    known = packages_distributions()
    others = names - set(sys.stdlib_module_names) - set(PACKAGES)
    return {canonicalize_name(known[name][0]) for name in others}


@needs_installation
@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_package_when_it_imports_another_project_then_an_extra_of_its_own_declares_it(folder):
    extras = PROJECT["optional-dependencies"]
    declared = [
        *PROJECT["dependencies"],
        *(one for name in MAY_IMPORT[folder] for one in extras[name]),
    ]

    imported = imported_distributions(ROOT / folder)

    undeclared = imported - {canonicalize_name(Requirement(text).name) for text in declared}
    assert {(folder, name) for name in undeclared} <= IMPORTED_WITHOUT_AN_EXTRA


@pytest.mark.parametrize(
    ("extra", "folder"), [("server", "iggy_ref_server"), ("spark", "spark_jobs")]
)
def test_extra_when_it_declares_a_project_then_its_package_imports_it(extra, folder):
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in PROJECT["optional-dependencies"][extra]
    }

    assert declared <= imported_distributions(ROOT / folder)


IMPORT_WITHOUT_OTHERS = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
import iggy_sdk.blocking
assert not any(name.startswith("iggy_sdk.session.quic") for name in sys.modules)
"""


def test_sdk_when_no_extra_is_installed_then_a_client_can_be_imported():
    others = "aioquic,websockets,h11,opentelemetry,cramjam,pydantic,pyarrow,polars,duckdb"

    result = run("-c", IMPORT_WITHOUT_OTHERS, others, PYTHONPATH=f"{ROOT}:{ROOT / 'protocol'}")

    assert result.stderr == ""


@needs_installation
def test_server_command_when_asked_for_its_version_then_prints_that_of_the_distribution():
    result = run("-m", "iggy_ref_server", "--version")

    assert (result.returncode, result.stdout) == (
        0,
        f"iggy-server {PROJECT['version']}, {SPOKEN}\n",
    )


@needs_installation
def test_server_command_when_asked_for_help_then_shows_examples():
    command = Path(sys.executable).with_name("iggy-server")

    result = subprocess.run([command, "--help"], capture_output=True, text=True)

    assert result.returncode == 0
    assert "usage: iggy-server" in result.stdout
    assert "examples" in result.stdout.lower()


@needs_installation
def test_server_command_when_asked_for_nonsense_then_refuses():
    result = run("-m", "iggy_ref_server", "--nonsense")

    assert result.returncode == 2
    assert "--nonsense" in result.stderr


def pins(lock: Path) -> dict[str, list[str]]:
    """Return the locked versions of each distribution; there are several where Pythons differ."""
    found: dict[str, list[str]] = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if pinned := re.match(r"(\S+)==([^\s;]+)", line):
            found.setdefault(canonicalize_name(pinned[1]), []).append(pinned[2])
    return found


def test_lock_of_the_gate_when_read_then_covers_all_that_pyproject_asks_for():
    locked = pins(ROOT / "requirements" / "gate.txt")

    unexpected = [
        str(one)
        for one in declared_for_the_gate()
        if not any(map(one.specifier.contains, locked.get(canonicalize_name(one.name), [])))
    ]

    assert not unexpected, "run `make lock`"


def declared_for_the_gate() -> list[Requirement]:
    """Return all that pyproject.toml declares and the Makefile locks."""
    extras = re.search(r"^LOCKED_EXTRAS := (.+)$", MAKEFILE, re.MULTILINE)
    assert extras is not None
    declared = list(PROJECT["dependencies"])
    for extra in extras[1].split(","):
        declared += PROJECT["optional-dependencies"][extra]
    return [Requirement(text) for text in declared]


def test_lock_of_the_lowest_when_read_then_names_each_lower_bound():
    locked = pins(ROOT / "requirements" / "lowest.txt")

    bounds = {
        canonicalize_name(one.name): Version(bound.version)
        for one in declared_for_the_gate()
        for bound in one.specifier
        if bound.operator == ">="
    }

    assert bounds
    higher = {
        name: locked[name]
        for name, bound in bounds.items()
        if [Version(text).release[: len(bound.release)] for text in locked[name]] != [bound.release]
    }
    assert not higher, "run `make lock`, and raise the bounds that cannot be had"


def test_lock_of_the_gate_when_read_then_builds_with_what_it_installs():
    built, gate = (pins(ROOT / "requirements" / f"{name}.txt") for name in ("build", "gate"))

    assert built["setuptools"] == gate["setuptools"]
    assert "pip" in built


def test_official_clients_when_listed_then_each_list_has_the_same_ones():
    """A client that has a lock and no environment would be left out by every test in silence."""
    script = (ROOT / "tests" / "interop" / "make_wheel_venvs.sh").read_text(encoding="utf-8")
    lists = [re.findall(r"^\tfor version in (\d.+); do", MAKEFILE, re.MULTILINE)]
    lists.append(re.findall(r"^for version in (.+); do", script, re.MULTILINE))
    locked = {path.stem.removeprefix("apache-iggy-") for path in LOCKS if "iggy" in path.stem}

    assert [sorted(one.split()) for [one] in lists] == [sorted(locked)] * 2
    assert set(VERSIONS) == locked


def test_versions_of_spark_when_listed_then_each_has_a_lock_with_it_and_a_test():
    listed = re.findall(r"^SPARK_VERSIONS := (.+)$", MAKEFILE, re.MULTILINE)[0].split()
    locked = {
        path.stem.removeprefix("spark-"): pins(path)["pyspark"]
        for path in LOCKS
        if path.stem.startswith("spark-")
    }
    tests = (ROOT / "tests" / "spark" / "test_versions.py").read_text(encoding="utf-8")

    assert sorted(locked) == listed
    assert all(pinned.startswith(f"{version}.") for version, [pinned] in locked.items())
    assert all(f'"{version}"' in tests for version in listed)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_when_read_then_every_version_has_hashes_and_no_place_is_named(lock):
    text = lock.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = "\n".join(lines).replace("\\\n", "").splitlines()

    assert entries
    for entry in entries:
        assert re.fullmatch(
            r"[\w.-]+(\[[\w,-]+\])?==\S+ (; [^#]+? )?( *--hash=sha256:\w{64})+ *", entry
        )
    assert "/" not in text
    assert "@" not in text


def test_environment_when_a_lock_changes_then_is_made_anew():
    assert re.search(r"^FINGERPRINT := .*cat pyproject.toml \$\(LOCKS\) ", MAKEFILE, re.MULTILINE)
    assert "LOCKS := requirements/build.txt requirements/gate.txt" in MAKEFILE
    assert 'cat "$build" "$lock" | cksum' in (ROOT / "tests" / "make_project_venv.sh").read_text()
