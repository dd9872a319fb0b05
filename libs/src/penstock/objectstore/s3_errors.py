"""Translation of the errors of S3, botocore and its transport into our own, named for the caller's next step."""

import contextlib
from collections.abc import Iterator

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import EtagMismatch, NotFound, Throttled

# Errors that a retry would get again.
_SETTINGS_ERRORS = (
    ConfigParseError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
_THROTTLED_CODES = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "503", "429"}
)


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the errors of botocore and its transport that the block raises; `what` ends their texts."""
    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise error_of(str(answer.get("Code")), status, what, str(answer.get("Message", ""))) from error
    except BotoCoreError as error:
        kind = Invalid if isinstance(error, _SETTINGS_ERRORS) else Unavailable
        raise kind(f"{sentence(error)}: {what}") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"{sentence(error)}: {what}") from error


def sentence(error: Exception) -> str:
    """The text of an error, or the name of its type if it has no text."""
    return str(error) or type(error).__name__


def error_of(code: str, status: int, what: str, message: str = "") -> PenstockError:
    """Our error for a code and a status in an answer of S3."""
    text = f"s3 answered {code}{f' ({message})' if message else ''}: {what}"
    if code in _THROTTLED_CODES or status in {429, 503}:
        return Throttled(text)
    if code in {"NoSuchKey", "NoSuchUpload"}:
        return NotFound(f"no object or upload: {what}")
    if code in {"PreconditionFailed", "412"}:
        return EtagMismatch(f"another version or none: {what}")
    # Another conditional request was in progress. S3 demands a retry, so this answer decides nothing.
    if status >= 500 or status == 409 or code in {"RequestTimeout", "InternalError", "ConditionalRequestConflict"}:
        return Unavailable(text)
    return Invalid(text)
