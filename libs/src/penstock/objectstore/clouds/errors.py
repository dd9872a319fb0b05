"""Translation of the errors of obstore into our own, named for the caller's next step."""

import contextlib
import re
from collections.abc import Iterator

import aiohttp
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotFound, RangeBeyond, Throttled

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Codes for an absent bucket; an absent object has another code.
_NO_BUCKET_CODES = frozenset({"ContainerNotFound", "NoSuchBucket"})
_BUCKET_ADVICE = "check the name of the bucket or container, and create it"
_KEY_ADVICE = "check the credentials, and that they may list, read, write and delete objects here"
_TEXT_CHARACTERS = 300
# From a server, from obstore in memory, and from Azurite for an empty object.
_RANGE_BEYOND = re.compile(r"status code: 416|Wanted range starting at|\"bytes 0--1/0\"")


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the errors of obstore and of aiohttp that the block raises; `what` ends their texts."""
    try:
        yield
    except FileNotFoundError as error:
        raise _of_absent(error, what) from error
    except AlreadyExistsError as error:
        raise AlreadyExists(f"object exists: {what}") from error
    except PreconditionError as error:
        raise EtagMismatch(f"another version or none: {what}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Invalid(f"{sentence(error)} ({_KEY_ADVICE}): {what}") from error
    except (InvalidPathError, NotSupportedError, UnknownConfigurationKeyError) as error:
        raise Invalid(f"{sentence(error)}: {what}") from error
    except BaseError as error:
        if _RANGE_BEYOND.search(str(error)):
            raise RangeBeyond(f"a range beyond the end of the object: {what}") from error
        status = _STATUS.search(str(error))
        raise error_of(int(status[1]) if status else 0, sentence(error), what) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"{sentence(error)}: {what}") from error


def error_of(status: int, text: str, what: str) -> PenstockError:
    """Our error for a status of an answer; 0 if there was no answer."""
    if status in {429, 503}:
        return Throttled(f"{text}: {what}")
    if status in {0, 408, 409} or status >= 500:  # another request for the object was in progress at 409
        return Unavailable(f"{text}: {what}")
    if status in {401, 403}:
        return Invalid(f"{text} ({_KEY_ADVICE}): {what}")
    return Invalid(f"{text}: {what}")


def sentence(error: Exception) -> str:
    """The first line of an error's text; obstore adds its own structures in later lines."""
    text = str(error).partition("\n")[0].strip()
    code = code_in(str(error))
    return (f"{text[:_TEXT_CHARACTERS]} {code}" if code else text[:_TEXT_CHARACTERS]) or type(error).__name__


def code_in(text: str) -> str:
    """The code in an answer with XML, or ""."""
    found = _CODE.search(text)
    return found[1] if found else ""


def _of_absent(error: FileNotFoundError, what: str) -> PenstockError:
    if code_in(str(error)) in _NO_BUCKET_CODES:
        return Invalid(f"there is no such bucket or container ({_BUCKET_ADVICE}): {what}")
    return NotFound(f"no object: {what}")
