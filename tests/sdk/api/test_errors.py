"""The tree of errors: every status has a class, a text and something to do next."""

from __future__ import annotations

import copy
import pickle

import pytest

import iggy_protocol
from iggy_protocol import (
    STATUSES,
    CreateTopic,
    LoginUser,
    LoginWithPersonalAccessToken,
    Partitioning,
    SendMessages,
    StatusGroup,
)
from iggy_sdk import errors
from iggy_sdk.errors import (
    DecryptionError,
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    ProtocolError,
    RequestTimeoutError,
    SendFailedError,
    StreamNotFoundError,
    class_for_status,
    error_for_status,
    error_from_protocol,
    index_classes,
)

CLASSES = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, IggyError)
]


@pytest.mark.parametrize("code", STATUSES)
def test_error_for_status_when_code_is_known_then_says_what_and_what_next(code):
    error = error_for_status(code)

    row = STATUSES[code]
    assert (error.code, error.name, error.retriable) == (code, row.name, row.retriable)
    assert error.advice[0].isupper()
    assert error.advice.endswith(".")
    assert str(error) == f"{row.meaning} ({row.name}, code {code}). {error.advice}"
    assert isinstance(error, RuntimeError)


@pytest.mark.parametrize("code", STATUSES)
def test_error_for_status_when_code_is_known_then_has_a_class_of_its_group(code):
    group = STATUSES[code].group
    error = error_for_status(code)

    if code == 1:
        assert type(error) is IggyError
    else:
        assert type(error) is not IggyError
    builtin = {
        StatusGroup.CONNECTION: ConnectionError,
        StatusGroup.TIMEOUT: TimeoutError,
        StatusGroup.PERMISSION: PermissionError,
        StatusGroup.NOT_FOUND: LookupError,
        StatusGroup.INVALID_REQUEST: ValueError,
        StatusGroup.CONFIGURATION: ValueError,
    }.get(group)
    assert builtin is None or isinstance(error, builtin)


def test_error_for_status_when_code_is_unknown_then_keeps_its_number():
    error = error_for_status(65_123)

    assert type(error) is IggyError
    assert error.code == 65_123
    assert not error.retriable


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1009, errors.StreamNotFoundError),
        (1010, errors.StreamNotFoundError),
        (2010, errors.TopicNotFoundError),
        (2011, errors.TopicNotFoundError),
        (3007, errors.PartitionNotFoundError),
        (5000, errors.ConsumerGroupNotFoundError),
        (5003, errors.ConsumerGroupNotFoundError),
        (20, errors.NotFoundError),
        (1012, errors.StreamExistsError),
        (2013, errors.TopicExistsError),
        (5004, errors.ConsumerGroupExistsError),
        (46, errors.AlreadyExistsError),
        (51, errors.AlreadyExistsError),
        (4100, errors.InvalidOffsetError),
        (4022, errors.MessageTooLargeError),
        (5006, errors.NotAMemberError),
        (3022, errors.PartitionNotOwnedError),
        (4053, errors.BufferFullError),
        (4057, errors.ProducerClosedError),
        (8, errors.DisconnectedError),
        (30, errors.DisconnectedError),
        (9, errors.ConnectionFailedError),
        (40, errors.AuthenticationError),
        (42, errors.AuthenticationError),
        (41, errors.PermissionDeniedError),
        (63, errors.ClientClosedError),
        (72, errors.DecryptionError),
        (10006, errors.ServerError),
        (8000, errors.ConfigurationError),
    ],
)
def test_class_for_status_when_a_code_says_more_than_its_group_then_has_its_own(code, kind):
    assert class_for_status(code) is kind


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not SendFailedError])
def test_error_when_raised_by_the_client_then_has_a_status_of_the_table(kind):
    error = kind("something happened")

    assert error.code in STATUSES
    assert error.message == "something happened"
    assert str(error).startswith("something happened (")


def test_classes_when_listed_then_each_is_in_the_tree_of_the_docstring():
    tree = errors.__doc__ or ""

    assert not [kind.__name__ for kind in CLASSES if kind.__name__ not in tree]


def test_table_of_classes_when_a_code_comes_twice_then_refuses():
    with pytest.raises(AssertionError, match="8 is DisconnectedError already"):
        index_classes([(8, DisconnectedError), (8, DisconnectedError)])


def test_table_of_classes_when_a_code_is_no_status_then_refuses():
    with pytest.raises(AssertionError, match="17 is no status"):
        index_classes([(17, DisconnectedError)])


ways = pytest.mark.parametrize(
    "again",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)


@ways
@pytest.mark.parametrize("code", STATUSES)
def test_error_when_pickled_or_copied_then_stays_the_same(code, again):
    error = error_for_status(code)
    twin = again(error)

    assert type(twin) is type(error)
    assert vars(twin) == vars(error)
    assert (str(twin), twin.args) == (str(error), error.args)


@ways
def test_disconnected_error_when_copied_then_remembers_whether_it_was_sent(again):
    assert again(DisconnectedError("gone", sent=False)).sent is False
    assert again(DisconnectedError("gone")).sent is True


@ways
def test_send_failed_error_when_copied_then_keeps_cause_and_messages(again):
    twin = again(SendFailedError(error_for_status(8), [b"one", b"two"]))

    assert isinstance(twin.cause, DisconnectedError)
    assert twin.messages == (b"one", b"two")
    assert twin.retriable
    assert "2 messages were not sent" in str(twin)


def test_send_failed_error_when_the_cause_is_foreign_then_is_not_retriable():
    error = SendFailedError(KeyError("x"), [b"one"])

    assert not error.retriable
    assert "1 message was not sent: 'x'" in str(error)


def test_error_for_status_when_command_is_known_then_names_its_place_and_no_secret():
    text = str(error_for_status(2013, command=CreateTopic("shop", "orders", 3)))
    login = str(error_for_status(42, command=LoginUser("admin", "hunter2")))
    batch = SendMessages("shop", "orders", Partitioning.balanced(), [b"private payload"])

    assert text.startswith("CreateTopic(stream='shop', name='orders'): ")
    assert "admin" in login
    assert "hunter2" not in login
    assert "private" not in str(error_for_status(2010, command=batch))


@pytest.mark.parametrize(
    ("wire", "kind", "code"),
    [
        (iggy_protocol.LocalProtocolError("too long", field="name"), InvalidRequestError, 4),
        (iggy_protocol.TruncatedField("cut"), ProtocolError, 303),
        (iggy_protocol.DecryptionFailed("key"), DecryptionError, 72),
        (
            iggy_protocol.RuleViolation("short", field="username", status=43),
            InvalidRequestError,
            43,
        ),
    ],
)
def test_error_from_protocol_when_the_wire_complains_then_says_whose_fault_it_is(wire, kind, code):
    error = error_from_protocol(wire)

    assert type(error) is kind
    assert error.code == code
    assert str(wire) in str(error)


def test_error_when_caught_by_its_builtin_kind_then_is_caught():
    with pytest.raises(LookupError) as caught:
        raise StreamNotFoundError("there is no stream 'x'")

    assert isinstance(caught.value, IggyError)


# Whether the request was sent


def test_timeout_when_it_knows_whether_it_was_sent_then_text_and_advice_say_so():
    sent, unsent = RequestTimeoutError("late", sent=True), RequestTimeoutError("late", sent=False)

    assert (sent.sent, unsent.sent, RequestTimeoutError("late").sent) == (True, False, True)
    assert "the request was sent, and may have been carried out" in str(sent)
    assert "the request was not sent" in str(unsent)
    assert "may have been carried out" not in str(unsent)


@ways
def test_error_after_sending_when_an_earlier_attempt_was_sent_then_says_so(again):
    error = again(RequestTimeoutError("late", sent=False).after_sending())

    assert error.sent is True
    assert "the request was not sent" not in str(error)
    assert "an earlier attempt was sent, and may have been carried out" in str(error)
    assert error.after_sending() is error


def test_error_before_sending_when_only_a_question_was_sent_then_says_so():
    error = RequestTimeoutError("late", sent=True).before_sending()

    assert error.sent is False
    assert "may have been carried out" not in str(error)
    assert error.before_sending() is error


# The class of the cause


@ways
@pytest.mark.parametrize("code", [41, 2010, 8, 42, 12_001, 1, 4_022])
def test_send_failed_error_when_made_then_is_of_the_class_of_its_cause(again, code):
    cause = error_for_status(code)
    error = again(SendFailedError(cause, [b"one"]))

    assert isinstance(error, SendFailedError)
    assert isinstance(error, type(cause))
    assert type(error) is type(SendFailedError(cause, [b"two"])), "the class is made once"
    assert type(error).__name__ == "SendFailedError"
    assert (error.code, error.name, error.sent) == (cause.code, cause.name, cause.sent)
    assert error.messages == (b"one",)
    assert cause.message in str(error)


def test_send_failed_error_when_its_cause_is_one_then_names_its_own_messages():
    inner = SendFailedError(error_for_status(41), [b"one"])
    outer = SendFailedError(inner, [b"one", b"two"])

    assert isinstance(outer, PermissionError)
    assert outer.messages == (b"one", b"two")
    assert outer.cause is inner


@pytest.mark.parametrize("kind", [LoginUser("a", "b"), LoginWithPersonalAccessToken("token")])
def test_error_for_status_when_a_login_finds_nothing_then_is_about_the_login(kind):
    error = error_for_status(20, command=kind)

    assert type(error) is errors.AuthenticationError
    assert error.code == 20
