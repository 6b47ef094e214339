"""How a query logs in: by its options, the environment, a file, or Hadoop's credential providers.

Spark plans queries in Python processes that have neither its Java nor, always, the environment of
the program. So ``register`` collects what they may need, and hands it to them with the data source.
Tasks get a finished connection string. No error here quotes a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    ReadOption = Callable[[str], str | None]


CONNECTION_STRING_VARIABLE: Final = "IGGY_CONNECTION_STRING"
"""The variable of the environment that counts where no option names a server."""

COLLECTED_PREFIX: Final = "iggy"
"""What variables and aliases begin with that ``register`` may read; case does not matter."""

PROVIDER_PATH: Final = "hadoop.security.credential.provider.path"
_FORMS: Final = "env:NAME, file:PATH or provider:ALIAS"


@dataclass(frozen=True)
class CollectedSecrets:
    """What ``register`` found in the process of the program.

    Attributes:
        environment: its variables that begin with ``IGGY``.
        aliases: the entries of Hadoop's credential providers that begin with ``iggy``.
        missing_reason: why there are no entries.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    missing_reason: str = "spark_jobs.register(spark) reads the provider; call it first"


NOTHING_COLLECTED: Final = CollectedSecrets()


def collect_secrets(spark: SparkSession) -> CollectedSecrets:
    """Read the environment of this process, and the credential providers of a session."""
    environment = {
        name: text
        for name, text in os.environ.items()
        if name.lower().startswith(COLLECTED_PREFIX) and text
    }
    context = getattr(spark, "_jsc", None)
    if context is None:
        reason = "Spark Connect cannot read it from here; use env: or file:"
        return CollectedSecrets(environment, {}, reason)
    hadoop = context.hadoopConfiguration()
    path = hadoop.get(PROVIDER_PATH)
    if path is None:
        reason = f"no provider is set; start Spark with spark.hadoop.{PROVIDER_PATH}"
        return CollectedSecrets(environment, {}, reason)
    try:
        aliases = _read_aliases(spark, hadoop)
    except Exception as error:
        # Another user of the provider must not fail because of this one.
        first_line = str(getattr(error, "java_exception", error)).partition("\n")[0]
        return CollectedSecrets(environment, {}, f"{path} cannot be read: {first_line}")
    reason = f"{path} has no such entry; aliases begin with {COLLECTED_PREFIX!r}"
    return CollectedSecrets(environment, aliases, reason)


def _read_aliases(spark: SparkSession, hadoop: object) -> dict[str, str]:
    java = spark.sparkContext._jvm
    assert java is not None
    factory = java.org.apache.hadoop.security.alias.CredentialProviderFactory
    found: dict[str, str] = {}
    for provider in factory.getProviders(hadoop):
        for alias in provider.getAliases():
            if alias.lower().startswith(COLLECTED_PREFIX):
                secret = provider.getCredentialEntry(alias).getCredential()
                found.setdefault(alias.lower(), java.java.lang.String.valueOf(secret))
    return found


def connection_string(option: ReadOption, collected: CollectedSecrets = NOTHING_COLLECTED) -> str:
    """Combine the options of a query into one connection string with credentials.

    Args:
        option: returns the value of an option, or None.
        collected: what ``register`` found.

    Raises:
        OptionError: no server is named, options contradict each other, or a secret is missing.
    """
    url, server = option("url"), option("server")
    if url is not None and server is not None:
        raise OptionError("give url or server, not both")
    place = url or server
    login, whole = _login(option, collected)
    if whole is not None:
        if place is not None:
            raise OptionError(
                "credentials refers to a whole connection string; leave url and server out"
            )
        return whole
    place = place or _variable(CONNECTION_STRING_VARIABLE, collected)
    if place is None:
        raise OptionError(
            'no server is named; add .option("url", "iggy://host:8090"), in SQL '
            "WITH (`url` = 'iggy://host:8090') behind the name of the table, or set "
            f"{CONNECTION_STRING_VARIABLE} in the environment"
        )
    return place if login is None else _with_login(place, login)


def _login(option: ReadOption, collected: CollectedSecrets) -> tuple[str | None, str | None]:
    """Return the login as in a connection string, or else a whole connection string."""
    user, password, token = option("user"), option("password"), option("token")
    reference = option("credentials")
    if sum(one is not None for one in (password, token, reference)) > 1:
        raise OptionError("give one of password, token and credentials")
    if token is not None and user is not None:
        raise OptionError("a token stands for its user; leave user out")
    if reference is not None:
        return _classified(user, read_secret(reference, collected))
    if (user is None) != (password is None):
        missing = "user" if user is None else "password, or credentials that refer to one"
        raise OptionError(f"a login needs user and password; add {missing}")
    if user is not None and password is not None:
        return _pair(user, password), None
    return (None if token is None else quote(token, safe="")), None


def _classified(user: str | None, secret: str) -> tuple[str | None, str | None]:
    """Tell a password, a whole connection string, a user with password, and a token apart."""
    if user is not None:
        return _pair(user, secret), None
    if secret.startswith("iggy") and "://" in secret:
        return None, secret
    name, colon, password = secret.partition(":")
    return (_pair(name, password) if colon else quote(secret, safe="")), None


def _pair(user: str, password: str) -> str:
    return f"{quote(user, safe='')}:{quote(password, safe='')}"


def _with_login(place: str, login: str) -> str:
    scheme, separator, rest = place.partition("://")
    if not separator:
        scheme, rest = "iggy", place
    if "@" in rest.partition("?")[0]:
        raise OptionError(
            "the connection string has credentials already; leave them out there, or leave out "
            "user, password, token and credentials"
        )
    return f"{scheme}://{login}@{rest}"


def read_secret(reference: str, collected: CollectedSecrets = NOTHING_COLLECTED) -> str:
    """Return what the option ``credentials`` refers to.

    Raises:
        OptionError: it is no reference, or refers to nothing.
    """
    kind, _, name = reference.strip().partition(":")
    read = _SECRETS.get(kind)
    if read is None or not name:
        # It is not quoted, because someone may have written the secret itself.
        raise OptionError(f"credentials refers to a secret and is none; give {_FORMS}")
    secret = read(name, collected)
    if not secret:
        raise OptionError(f"credentials refers to {kind}:{name}, which is empty")
    return secret


def _variable(name: str, collected: CollectedSecrets) -> str | None:
    # A program may have set it after Java started, whose environment is that of the planner.
    return collected.environment.get(name) or os.environ.get(name)


def _from_environment(name: str, collected: CollectedSecrets) -> str:
    secret = _variable(name, collected)
    if secret is None:
        raise OptionError(
            f"credentials is env:{name}, and there is no such variable; set it before Spark "
            "starts, or give it a name that begins with IGGY_ and set it before "
            "spark_jobs.register(spark)"
        )
    return secret


def _from_file(path: str, collected: CollectedSecrets) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        # The cause would quote what may be a secret.
        raise OptionError(f"credentials is file:{path}, which is no text in UTF-8") from None
    except OSError as error:
        raise OptionError(
            f"credentials is file:{path}, which the driver cannot read: {error.strerror}"
        ) from None


def _from_provider(alias: str, collected: CollectedSecrets) -> str:
    secret = collected.aliases.get(alias.lower())
    if secret is None:
        raise OptionError(f"credentials is provider:{alias}: {collected.missing_reason}")
    return secret


_SECRETS: Final[Mapping[str, Callable[[str, CollectedSecrets], str]]] = MappingProxyType(
    {"env": _from_environment, "file": _from_file, "provider": _from_provider}
)
