"""The options, variables, files and providers that a query logs in with, and what hides them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.connection_string import PasswordLogin, parse_connection_string
from spark_jobs import OptionError
from spark_jobs.credentials import CollectedSecrets, connection_string
from spark_jobs.options import OPTION_NAMES, QueryKind, read_options
from spark_jobs.redaction import options_pattern, text_pattern

HOST = "iggy://host:8090"
SECRET = "s3cret"


def combine(collected=None, **options):
    return connection_string(options.get, collected or CollectedSecrets())


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("IGGY_CONNECTION_STRING", raising=False)


@pytest.mark.parametrize(
    ("options", "combined"),
    [
        ({"url": HOST}, HOST),
        ({"server": "host:8090"}, "host:8090"),
        (
            {"url": HOST, "user": "ann", "password": "p:@/ ?"},
            "iggy://ann:p%3A%40%2F%20%3F@host:8090",
        ),
        ({"url": "host:8090", "token": "t/1"}, "iggy://t%2F1@host:8090"),
        ({"url": f"{HOST}?tls=true&x=@", "token": "t"}, "iggy://t@host:8090?tls=true&x=@"),
        ({"url": "iggy+ws://a,b", "user": "u", "password": "p"}, "iggy+ws://u:p@a,b"),
        ({"url": HOST, "credentials": "env:IGGY_LOGIN"}, "iggy://ann:s3%40cret@host:8090"),
        (
            {"url": HOST, "user": "bob", "credentials": "env:IGGY_PASS"},
            "iggy://bob:a%3Ab@host:8090",
        ),
        ({"url": HOST, "credentials": "env:IGGY_TOKEN"}, "iggy://tok@host:8090"),
        ({"credentials": "env:IGGY_WHOLE"}, "iggy://x:y@other"),
        ({"url": HOST, "credentials": "provider:Iggy.Token"}, "iggy://from-hadoop@host:8090"),
    ],
)
def test_login_when_given_in_any_way_then_becomes_one_connection_string(options, combined):
    collected = CollectedSecrets(
        {
            "IGGY_LOGIN": "ann:s3@cret",
            "IGGY_PASS": "a:b",
            "IGGY_TOKEN": "tok",
            "IGGY_WHOLE": "iggy://x:y@other",
        },
        {"iggy.token": "from-hadoop"},
    )

    assert combine(collected, **options) == combined


@given(user=st.text(min_size=1, max_size=8), password=st.text(min_size=1, max_size=8))
def test_login_when_it_has_any_characters_then_the_sdk_reads_them_back(user, password):
    made = combine(url=HOST, user=user, password=password)

    login = parse_connection_string(made).credentials
    assert login == PasswordLogin(user, password)


def test_login_when_no_option_names_a_server_then_the_environment_does(monkeypatch):
    monkeypatch.setenv("IGGY_CONNECTION_STRING", HOST)

    assert combine() == HOST
    assert combine(token="t") == "iggy://t@host:8090"
    assert combine(url="iggy://other") == "iggy://other"
    # What the program says counts more than what its Java was started with.
    assert combine(CollectedSecrets({"IGGY_CONNECTION_STRING": "iggy://late"})) == "iggy://late"


def test_file_when_it_ends_with_a_newline_then_that_is_no_part_of_the_secret(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{SECRET} \n")

    made = combine(url=HOST, user="ann", credentials=f"file:{path}")

    assert made == "iggy://ann:s3cret%20@host:8090"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no server is named"),
        ({"url": HOST, "server": HOST}, "url or server, not both"),
        ({"url": HOST, "password": SECRET}, "add user"),
        ({"url": HOST, "user": SECRET}, "add password"),
        ({"url": HOST, "password": SECRET, "token": SECRET}, "one of password, token"),
        ({"url": HOST, "user": "ann", "token": SECRET}, "leave user out"),
        ({"url": f"iggy://a:{SECRET}@h", "token": SECRET}, "has credentials already"),
        ({"url": HOST, "credentials": SECRET}, "give env:NAME, file:PATH or provider:ALIAS"),
        ({"url": HOST, "credentials": "env:"}, "give env:NAME"),
        ({"url": HOST, "credentials": "env:IGGY_NONE"}, "no such variable"),
        ({"url": HOST, "credentials": "file:/no/such"}, "cannot read: No such file"),
        ({"url": HOST, "credentials": "provider:iggy.x"}, r"register\(spark\) reads the provider"),
        ({"url": HOST, "credentials": "env:IGGY_WHOLE"}, "leave url and server out"),
    ],
)
def test_mistake_when_made_then_the_answer_shows_no_secret(options, words):
    collected = CollectedSecrets({"IGGY_WHOLE": f"iggy://a:{SECRET}@h"})

    with pytest.raises(OptionError, match=words) as raised:
        combine(collected, **options)

    assert SECRET not in str(raised.value)


def test_file_when_it_is_no_text_or_empty_then_the_answer_says_so(tmp_path):
    binary, empty = tmp_path / "binary", tmp_path / "empty"
    binary.write_bytes(b"\xff\xfe")
    empty.write_text("\n")

    with pytest.raises(OptionError, match="is no text in UTF-8"):
        combine(url=HOST, credentials=f"file:{binary}")
    with pytest.raises(OptionError, match="which is empty"):
        combine(url=HOST, credentials=f"file:{empty}")


def test_options_when_shown_then_have_no_secret():
    given = {"url": HOST, "user": "ann", "password": SECRET, "stream": "s", "topic": "t"}

    options = read_options(given, QueryKind.BATCH)

    assert SECRET in options.server
    assert SECRET not in repr(options)
    assert SECRET not in repr(CollectedSecrets({"IGGY_X": SECRET}, {"iggy.x": SECRET}))


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("[topic=t, password=a, b]c=d, stream=s], [x#1]", "[topic=t, password=#, stream=s], [x#1]"),
        ("[stream=s, Token=abc], [x#1]", "[stream=s, Token=#], [x#1]"),
        ("[server=iggy://a:b@h:1?tls=true, stream=s], [x]", "[server=#, stream=s], [x]"),
        ("see iggy+ws://a:b@c@h:1 there", "see #h:1 there"),
        ("iggy://host:8090 stays", "iggy://host:8090 stays"),
    ],
)
def test_plan_when_redacted_then_only_secrets_are_hidden(text, hidden):
    # Java and Python read these patterns alike.
    assert re.sub(text_pattern(OPTION_NAMES), "#", text) == hidden


@pytest.mark.parametrize("name", ["url", "Server", "PASSWORD", "token", "iggy://a:b@h"])
def test_option_when_it_may_hold_a_secret_then_the_pattern_finds_it(name):
    assert re.search(options_pattern(), name)


@pytest.mark.parametrize("name", ["stream", "user", "credentials", "bootstrap.servers", "iggy://h"])
def test_option_when_it_holds_no_secret_then_it_stays_readable(name):
    assert not re.search(options_pattern(), name)
