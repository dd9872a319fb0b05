"""Users of client certificates: the subject's name as Kafka prints it, and rules that map it (KIP-371). Pure.

Rules are `RULE:pattern/replacement/[LU]` or `DEFAULT`, separated by commas. The first rule whose pattern matches the
whole name makes the user. `DEFAULT` matches each name and keeps it. L and U make lower and upper case.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.contracts.configs.quotas import NAME_LENGTH_MAX
from penstock.contracts.errors import Invalid

if TYPE_CHECKING:  # imported with the first certificate, because few gateways have any
    from cryptography import x509

SETTING = "ssl_principal_mapping_rules"
# The attributes with a keyword in Java's RFC 2253 names. Others are an OID, with the value's DER as hexadecimal.
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = re.compile(r'[,=+<>#;"\\]')
_EDGE_SPACES = " \r"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))?\s*(?:,|\Z)")
_REFERENCE = re.compile(r"\\(.)|\$([0-9]*)", re.DOTALL)


class _Rule(msgspec.Struct, frozen=True):
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""  # L, U or empty

    def apply(self, name: str) -> str | None:
        """The user for a name; None if the rule is for other names."""
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        user = self.pattern.sub(self._replace, name)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user

    def _replace(self, found: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _expand(reference, found), self.replacement)


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """`Invalid` with one sentence if a rule is wrong. No rule at all is DEFAULT."""
        self._rules = _parse(text) or [_Rule()]

    def user(self, name: str) -> str:
        """The user for a distinguished name; `Invalid` if no rule matches it, or if the user's name is too long."""
        for rule in self._rules:
            user = rule.apply(name)
            if user is None:
                continue
            if not 0 < len(user) <= NAME_LENGTH_MAX:
                raise Invalid(f"a user's name has 1 to {NAME_LENGTH_MAX} characters, its certificate has {len(user)}")
            return user
        raise Invalid(f"no rule of {SETTING} matches the name in the certificate")


def _parse(text: str) -> list[_Rule]:
    rules = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise Invalid(
                f"{SETTING} must be RULE:pattern/replacement/[LU] or DEFAULT, with commas: {text[position:]!r}"
            )
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            rules.append(_Rule(_compiled(pattern), replacement, case))
        position = found.end()
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Invalid(f"{SETTING}: {pattern!r} is no regular expression: {error}") from error


def _expand(reference: re.Match[str], found: re.Match[str]) -> str:
    """A reference in a replacement: $2 is the second group, or text if there is none; a backslash keeps a character."""
    escaped, digits = reference.groups()
    if escaped is not None:
        return str(escaped)
    groups = found.re.groups
    for length in range(len(digits), 0, -1):
        number = int(digits[:length])
        if number <= groups and (number or length == 1):
            return (found[number] or "") + digits[length:]
    return f"${digits}"


def distinguished_name(name: "x509.Name") -> str:
    """The name as Java's `X500Principal.getName()` prints it: the last attribute first, escaped by RFC 2253."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    keyword = KEYWORDS.get(attribute.oid.dotted_string)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{keyword or attribute.oid.dotted_string}=#{_der(attribute).hex()}"
    value = _ESCAPED.sub(lambda found: "\\" + found[0], attribute.value).replace("\0", "\\00")
    inner = value.strip(_EDGE_SPACES)
    before = value[: len(value) - len(value.lstrip(_EDGE_SPACES))]
    after = value[len(before) + len(inner) :]
    return f"{keyword}={_escaped(before)}{inner}{_escaped(after)}"


def _escaped(spaces: str) -> str:
    return "".join("\\" + each for each in spaces)


def _der(attribute: "x509.NameAttribute[str | bytes]") -> bytes:
    """The DER of an attribute's value, from a name that has only this attribute: four values, one in the other."""
    from cryptography import x509

    der = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its set, the attribute
        der = _content(der)
    return _after(der)


def _content(der: bytes) -> bytes:
    """The content of the first value."""
    start, length = _extent(der)
    return der[start : start + length]


def _after(der: bytes) -> bytes:
    """The bytes behind the first value."""
    start, length = _extent(der)
    return der[start + length :]


def _extent(der: bytes) -> tuple[int, int]:
    """Where the content of the first value starts, and its length."""
    first = der[1]
    if first < 0x80:
        return 2, first
    count = first & 0x7F
    return 2 + count, int.from_bytes(der[2 : 2 + count], "big")
