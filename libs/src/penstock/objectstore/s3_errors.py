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
from botocore.parsers import ResponseParserError

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import EtagMismatch, NotFound, RangeBeyond, Throttled

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
_RETRIED_CODES = frozenset({"RequestTimeout", "InternalError", "ConditionalRequestConflict"})
# The user's next step after an error that a retry would get again.
_KEY_ADVICE = "check AWS_ACCESS_KEY_ID, or access_key in the address"
_REGION_ADVICE = "name the region of the bucket with AWS_REGION, or region=... in the address"
_TOKEN_ADVICE = "renew AWS_SESSION_TOKEN, or unset it"  # noqa: S105  the name of one
_ADVICE = {
    "NoSuchBucket": "check the bucket's name and the endpoint, or create it with `penstock bucket --store-url URL`",
    "InvalidAccessKeyId": _KEY_ADVICE,
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY, or secret_key in the address",
    "AccessDenied": "allow s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:AbortMultipartUpload on its objects, for the key in AWS_ACCESS_KEY_ID",
    "ExpiredToken": _TOKEN_ADVICE,
    "InvalidToken": _TOKEN_ADVICE,
    "PermanentRedirect": _REGION_ADVICE,
    "AuthorizationHeaderMalformed": _REGION_ADVICE,
    "IllegalLocationConstraintException": _REGION_ADVICE,
    "RequestTimeTooSkewed": "set the clock of this machine",
}
_CREDENTIALS_ADVICE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or access_key and secret_key in the address"
)


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the errors of botocore and its transport that the block raises; `what` ends their texts.

    The block also reads the fields of the answer. A success without them is no answer of S3, but of a defective proxy.
    """
    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise error_of(str(answer.get("Code")), status, what, str(answer.get("Message", ""))) from error
    except BotoCoreError as error:
        kind = Invalid if isinstance(error, _SETTINGS_ERRORS) else Unavailable
        raise kind(f"{sentence(error)}{_todo(_advice_on(error))}: {what}") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"{sentence(error)}: {what}") from error
    except KeyError as error:
        raise Unavailable(f"the answer of s3 lacks {error}: {what}") from error
    except (ResponseParserError, ValueError) as error:
        raise Unavailable(f"the answer of s3 is damaged ({sentence(error)}): {what}") from error


def sentence(error: Exception) -> str:
    """The text of an error, or the name of its type if it has no text."""
    return str(error) or type(error).__name__


def _advice_on(error: BotoCoreError) -> str:
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return _CREDENTIALS_ADVICE
    return _REGION_ADVICE if isinstance(error, NoRegionError | InvalidRegionError) else ""


def _todo(advice: str) -> str:
    return f" ({advice})" if advice else ""


def error_of(code: str, status: int, what: str, message: str = "") -> PenstockError:
    """Our error for a code and a status in an answer of S3."""
    text = f"s3 answered {code}{f' ({message})' if message else ''}: {what}"
    if code in _THROTTLED_CODES or status in {429, 503}:
        return Throttled(text)
    if code in {"NoSuchKey", "NoSuchUpload"}:
        return NotFound(f"no object or upload: {what}")
    if code in {"PreconditionFailed", "412"}:
        return EtagMismatch(f"another version or none: {what}")
    if code == "InvalidRange" or status == 416:
        return RangeBeyond(f"a range beyond the end of the object: {what}")
    # Another conditional request was in progress. S3 demands a retry, so this answer decides nothing.
    # A proxy in front of the server answers 408 to a request that comes too slowly.
    if status >= 500 or status in {408, 409} or code in _RETRIED_CODES:
        return Unavailable(text)
    return Invalid(f"{text}{_todo(_ADVICE.get(code, ''))}")
