"""Users of client certificates: names as Java prints them, and Kafka's mapping rules."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given, strategies as st

from penstock.contracts.configs.quotas import NAME_LENGTH_MAX
from penstock.contracts.errors import Invalid
from penstock_gateway.security.principal_rules import PrincipalRules, distinguished_name

DN = "CN=kafka1.example.com,OU=ServiceUsers,O=Unknown,C=DE"


def parsed(*rdns: dict[ObjectIdentifier, str]) -> x509.Name:
    """A name as it comes out of a certificate."""
    name = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in rdn.items()]) for rdn in rdns]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder(x509.Name([]), name, key.public_key(), 1, day, day + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    return x509.load_der_x509_certificate(made).subject


@pytest.mark.parametrize(
    ("rdns", "java"),
    [
        (
            [{NameOID.COUNTRY_NAME: "DE"}, {NameOID.ORGANIZATION_NAME: "Big, Corp"}, {NameOID.COMMON_NAME: "alice"}],
            r"CN=alice,O=Big\, Corp,C=DE",
        ),
        ([{NameOID.COMMON_NAME: ' lead#"+=<>;\\ trail '}], r"CN=\ lead\#\"\+\=\<\>\;\\ trail\ "),
        ([{NameOID.COMMON_NAME: "a  b   "}], r"CN=a  b\ \ \ "),
        ([{NameOID.COMMON_NAME: "    "}], r"CN=\ \ \ \ "),
        ([{NameOID.COMMON_NAME: "p'()+,-./:?*@_!&"}], r"CN=p'()\+\,-./:?*@_!&"),
        ([{NameOID.COMMON_NAME: "müller 日本"}], "CN=müller 日本"),
        ([{NameOID.COMMON_NAME: "a\0b"}], r"CN=a\00b"),
        (
            [
                {NameOID.DOMAIN_COMPONENT: "com"},
                {NameOID.DOMAIN_COMPONENT: "example"},
                {NameOID.USER_ID: "u1"},
                {NameOID.COMMON_NAME: "x"},
            ],
            "CN=x,UID=u1,DC=example,DC=com",
        ),
        (
            [{NameOID.COMMON_NAME: "x", NameOID.USER_ID: "y", NameOID.ORGANIZATION_NAME: "z"}],
            "CN=x+O=z+UID=y",
        ),
        (
            [{NameOID.EMAIL_ADDRESS: "a@b.c"}, {NameOID.COMMON_NAME: "x"}],
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        ([{NameOID.SERIAL_NUMBER: "12"}, {NameOID.STREET_ADDRESS: "S 1"}], "STREET=S 1,2.5.4.5=#13023132"),
        ([{ObjectIdentifier("1.2.3.4.5"): "o" * 200}], "1.2.3.4.5=#0c81c8" + "6f" * 200),
    ],
)
def test_a_name_is_printed_as_java_does(rdns: list[dict[ObjectIdentifier, str]], java: str) -> None:
    """The expected names are outputs of `X500Principal.getName()` of Java 17."""
    assert distinguished_name(parsed(*rdns)) == java


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DN, DN),
        ("", DN, DN),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "kafka1.example.com"),
        (
            "RULE:^CN=(.*?),OU=Admin.*$/$1/, RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@b/U ,DEFAULT",
            DN,
            "KAFKA1.EXAMPLE.COM@B",
        ),
        ("RULE:^CN=(.*?),OU=Admin.*$/$1/,DEFAULT", DN, DN),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "CN=ALICE,O=x", "alice"),
        (r"RULE:^cn=(.*?),ou=(.*?)(,.*)?$/$2\/$1/", "cn=a,ou=b", "b/a"),
        ("RULE:.*/$0$1/", "CN=a", "CN=a$1$1"),  # Java, too, replaces the empty end as a second match
        ("RULE:^CN=(.*)$/$1@$2/", "CN=a", "a@$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        ("RULE:^CN=([^,]*),O=(a,b)?.*$/$1-$2/", "CN=x,O=c", "x-"),
    ],
)
def test_the_first_rule_that_matches_makes_the_user(rules: str, name: str, user: str) -> None:
    assert PrincipalRules(rules).user(name) == user


def test_a_name_that_no_rule_matches_is_no_user() -> None:
    with pytest.raises(Invalid, match="no rule of ssl_principal_mapping_rules matches"):
        PrincipalRules("RULE:^CN=admin$/$0/").user("CN=alice")
    with pytest.raises(Invalid, match="no rule"):  # the whole name must match
        PrincipalRules("RULE:CN=a/x/").user("CN=alice")


@pytest.mark.parametrize(("rules", "length"), [("RULE:.*//", 0), ("DEFAULT", NAME_LENGTH_MAX + 1)])
def test_a_user_has_a_name_of_limited_length(rules: str, length: int) -> None:
    with pytest.raises(Invalid, match=f"its certificate has {length}"):
        PrincipalRules(rules).user("x" * (NAME_LENGTH_MAX + 1))
    assert PrincipalRules("DEFAULT").user("x" * NAME_LENGTH_MAX)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("default", "must be RULE:pattern/replacement/[LU] or DEFAULT, with commas: 'default'"),
        ("RULE:^CN=(.*)$", "must be RULE:pattern/replacement/[LU]"),
        ("RULE:^CN=(.*)$/$1/X", "must be RULE:pattern/replacement/[LU]"),
        ("RULE:^CN=(.*$/$1/", "is no regular expression"),
        ("DEFAULT DEFAULT", "must be RULE:pattern/replacement/[LU]"),
    ],
)
def test_a_wrong_rule_is_rejected_in_one_sentence(rules: str, sentence: str) -> None:
    with pytest.raises(Invalid) as rejected:
        PrincipalRules(rules)
    assert sentence in str(rejected.value)


@given(st.text(alphabet="RULE:DFAT/,$\\()*.LU01 "), st.text(alphabet="CN=a,"))
def test_any_rules_are_applied_or_rejected(rules: str, name: str) -> None:
    try:
        assert 0 < len(PrincipalRules(rules).user(name)) <= NAME_LENGTH_MAX
    except Invalid as rejected:
        assert str(rejected)
