"""An audit that reached no database does not pass for one that found nothing."""

from __future__ import annotations

import json

import pytest

from tools.audit import Verdict, judge, main

GOOD = {"name": "good", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
UNKNOWN = {"name": "strange", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture
def make_program(tmp_path):
    """Make a stand-in for pip-audit that prints something."""

    def make(printed):
        program = tmp_path / "pip-audit"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\nexit 1\n")
        program.chmod(0o755)
        return str(program)

    return make


def test_report_when_read_then_weak_and_unknown_ones_are_told_apart():
    assert judge({"dependencies": [GOOD, WEAK, UNKNOWN]}) == Verdict(
        2, ["strange"], ["weak 2.0: PYSEC-1, mended in 2.1"]
    )


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        (json.dumps({"dependencies": [GOOD, UNKNOWN]}), 0, "1 audited by pypi, 0 weaknesses"),
        (json.dumps({"dependencies": [GOOD, WEAK]}), 1, "weak 2.0: PYSEC-1"),
        (json.dumps({"dependencies": [UNKNOWN]}), 0, "no database of weaknesses can be reached"),
        ("", 0, "no database of weaknesses can be reached"),
    ],
)
def test_audit_when_done_then_says_what_it_knows(make_program, capsys, printed, code, said):
    assert main(make_program(printed), "gate.txt") == code
    assert said in capsys.readouterr().out


def test_audit_when_there_is_no_program_then_fails(tmp_path):
    assert main(str(tmp_path / "nothing"), "gate.txt") == 2
