"""Pipeline files: what they say, where, and what is said about their mistakes. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.dead_letters import DeadLetters
from spark_jobs.pipeline.document import PipelineFileError, parse_document, read_document
from spark_jobs.pipeline.driver import read_pipelines
from spark_jobs.pipeline.secrets import SecretReference, redact
from spark_jobs.pipeline.sql_steps import AddStep, FilterStep
from spark_jobs.pipeline.topic_sources import IggySource
from tests.spark.pipeline.conftest import parsed

WHOLE = """\
[pipeline]
name = "orders"
checkpoint = "state/orders"
every = "30s"
max_rows = 1000

[source]
type = "iggy"
server = { env = "SHOP_SERVER" }
stream = "shop"
topic = "orders"

[[transform]]
type = "add"
columns.total = "price * cups"

[[transform]]
type = "filter"
where = '''
  total > 10
'''

[[sink]]
type = "parquet"
path = "lake/orders"
partition_by = [
  "date",
  "hour",
]

[[sink]]
type = "console"

[dead_letters]
topic = "orders-dead"
"""


def test_file_when_right_then_becomes_what_it_says():
    spec = parsed(WHOLE)

    assert (spec.name, spec.run.every, spec.run.max_rows) == ("orders", "30 seconds", 1000)
    assert spec.source == IggySource("shop", "orders", SecretReference("env", "SHOP_SERVER"))
    assert spec.steps == (AddStep({"total": "price * cups"}), FilterStep("  total > 10\n"))
    assert [sink.describe() for sink in spec.sinks] == [
        "Parquet files in lake/orders, folders by date, hour",
        "the terminal, 20 rows of each micro-batch",
    ]
    letters = spec.dead_letters
    assert letters == DeadLetters(
        topic="orders-dead", stream="shop", server=SecretReference("env", "SHOP_SERVER")
    )


def test_lines_when_a_file_is_read_then_are_those_of_keys_and_tables():
    document = parse_document("p.toml", WHOLE)

    lines = WHOLE.splitlines()
    for path, line in document.lines.items():
        names = [part for part in path if isinstance(part, str)]
        assert names[-1] in lines[line - 1] or names[0] in lines[line - 1]
    assert document.place(("transform", 1, "where")) == "p.toml:19"
    assert document.place(("transform", 0, "columns", "total")) == "p.toml:15"
    assert document.place(("sink", 1)) == "p.toml:31"
    assert document.place(("sink", 0, "partition_by")) == "p.toml:26"


@pytest.mark.parametrize(
    ("old", "new", "answers"),
    [
        ("every", "evry", ["p.toml:4: there is no key 'evry'; did you mean every?"]),
        ("30s", "soon", ["p.toml:4: every: 'soon' is not a time"]),
        ("max_rows = 1000", "max_rows = 0", ["p.toml:5: max_rows is 0; give a whole number"]),
        ("max_rows = 1000", "once = 1", ["p.toml:5: once is 1; give true or false"]),
        ('type = "iggy"', 'type = "igy"', ["p.toml:8: there is no type 'igy' of source; did you"]),
        ('topic = "orders"\n\n', "\n", ["p.toml:7: source lacks the key topic; add it"]),
        ('type = "add"', "", ["p.toml:13: transform lacks the key type; there are add, convert"]),
        (
            "columns.total",
            "colums.total",
            [
                "p.toml:13: transform lacks the key columns; add it",
                "p.toml:15: there is no key 'colums'; did you mean columns?",
            ],
        ),
        (
            'columns.total = "price * cups"',
            "columns = 5",
            ["p.toml:15: columns is 5; give a table"],
        ),
        ('path = "lake/orders"', "path = 5", ["p.toml:25: path is 5; give a text"]),
        ('  "hour",', "  5,", ["p.toml:26: partition_by is ['date', 5]; give a list of texts"]),
        ("[dead_letters]", "[dead_leters]", ["p.toml:34: there is no table [dead_leters]; did"]),
        ('topic = "orders-dead"', 'topic = "orders"', ["p.toml:34: topic orders is the topic"]),
        ('topic = "orders-dead"', 'action = "write"', ['p.toml:34: action = "write" needs a']),
        ('topic = "orders-dead"', 'action = "skp"', ["p.toml:35: there is no action 'skp'; did"]),
        ('name = "orders"', 'name = "a/b"', ["p.toml:2: the name 'a/b' has more than letters"]),
        ("[[sink]]", "[sink]", ["p.toml:31: this is not TOML: Cannot declare ('sink',) twice"]),
        ("every =", "every", ["p.toml:4: this is not TOML"]),
        (
            WHOLE,
            "[source]\ntype = 5\n",
            [
                "p.toml:1: there is no table [pipeline]; add it, with a checkpoint",
                "p.toml:1: source lacks the key type",
                "p.toml:1: there is no sink; add [[sink]] with a type",
            ],
        ),
    ],
)
def test_file_when_wrong_then_each_mistake_has_its_line_and_advice(old, new, answers):
    assert old in WHOLE

    with pytest.raises(PipelineFileError) as caught:
        parsed(WHOLE.replace(old, new))

    lines = str(caught.value).splitlines()
    assert len(lines) == len(answers)
    for answer in answers:
        assert any(line.startswith(answer) for line in lines), lines


CANARY = "c4nary-in-a-mine"


@pytest.mark.parametrize(
    "text",
    [
        f'server = "iggy://root:{CANARY}@host:8090"',
        f'topic = "jdbc:x://h/db?user=me&password={CANARY}"',
        f'password = "{CANARY}"',
        f'server = {{ env = "X", file = "{CANARY}" }}',
    ],
)
def test_secret_when_it_stands_in_the_file_then_is_refused_and_never_quoted(text):
    with pytest.raises(PipelineFileError) as caught:
        parsed(WHOLE.replace('topic = "orders"\n', f"{text}\n", 1))

    assert CANARY not in str(caught.value)
    assert "p.toml:11" in str(caught.value) or "p.toml:9" in str(caught.value)


def test_secret_when_revealed_then_is_removed_from_every_text(monkeypatch, tmp_path):
    monkeypatch.setenv("A_SERVER", f"iggy://root:{CANARY}-1@host")
    (tmp_path / "token").write_text(f"{CANARY}-2\n")
    in_file = SecretReference("file", str(tmp_path / "token"))

    assert SecretReference("env", "A_SERVER").reveal().endswith("@host")
    assert in_file.reveal() == f"{CANARY}-2"
    said = redact(f"iggy://root:{CANARY}-1@host, {CANARY}-2, {CANARY}-1, http://a:b@c/?token=xyz")
    assert said == "***, ***, ***, http://***@c/?token=***"
    assert CANARY not in repr(in_file) + str(SecretReference("given", value=CANARY))
    assert CANARY not in repr(SecretReference("given", value=CANARY))


@pytest.mark.parametrize(
    ("secret", "answer"),
    [
        (SecretReference("env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is not set; export it"),
        (SecretReference("file", "no/such/file"), "no/such/file cannot be read: No such file"),
    ],
)
def test_secret_when_it_is_missing_then_the_answer_says_where_it_should_be(secret, answer):
    with pytest.raises(OptionError, match=answer):
        secret.reveal()


def test_file_when_it_cannot_be_read_then_says_why(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff")

    with pytest.raises(PipelineFileError, match="is not UTF-8"):
        read_document(tmp_path / "a.toml")
    with pytest.raises(PipelineFileError, match="cannot be read: No such file"):
        read_document(tmp_path / "b.toml")


def test_folder_when_pipelines_disturb_each_other_then_all_mistakes_are_told(tmp_path):
    for name, old, new in (
        ("a", "", ""),
        ("b", '"state/orders"', '"state/b"'),
        ("c", 'name = "orders"\n', ""),
        ("d", "every", "evry"),
    ):
        (tmp_path / f"{name}.toml").write_text(WHOLE.replace(old, new) if old else WHOLE)

    with pytest.raises(OptionError) as caught:
        read_pipelines([tmp_path])

    lines = str(caught.value).splitlines()
    checkpoint = Path("state/orders").resolve()
    assert [line.removeprefix(f"{tmp_path}/").partition(";")[0] for line in lines] == [
        "d.toml:4: there is no key 'evry'",
        f"b.toml:2: the name orders is also that of {tmp_path}/a.toml:2",
        f"c.toml:2: the checkpoint {checkpoint} is also that of {tmp_path}/a.toml:3",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=r"has no files \*.toml"):
        read_pipelines([tmp_path / "empty"])
