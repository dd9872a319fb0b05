"""Protocols and TLS settings of listeners: Kafka's map, one listener's own settings, and errors in one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from structlog.testing import capture_logs

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import read_config
from penstock_gateway.config import GatewayConfig
from penstock_gateway.security.listener_security import (
    ClientAuth,
    ListenerSecurity,
    SecurityProtocol,
    TlsSettings,
    listener_securities,
)
from penstock_gateway.security.tls_contexts import ListenerTls, load_tls
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.certificates import Authority, Pair

FILES = TlsSettings(ssl_keystore_certificate_chain="/c", ssl_keystore_key="/k", ssl_truststore_certificates="/t")


def protocols(names: list[str], protocol_map: str) -> dict[str, str]:
    found = listener_securities(names, protocol_map, FILES, "")
    return {name: security.protocol.value for name, security in found.items()}


def test_a_listener_without_a_map_has_the_protocol_of_its_name_and_other_names_are_plain_text() -> None:
    names = ["SSL", "SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT", "EXTERNAL"]
    assert list(protocols(names, "").values()) == [*names[:4], "PLAINTEXT"]


def test_a_map_gives_each_listener_its_protocol() -> None:
    assert protocols(["IN", "OUT"], " in:ssl, OUT:SASL_SSL,REST:PLAINTEXT") == {"IN": "SSL", "OUT": "SASL_SSL"}


@pytest.mark.parametrize(
    ("protocol_map", "settings", "sentence"),
    [
        ("IN", "", "listener_security_protocol_map must be NAME:PROTOCOL, separated by commas: 'IN'"),
        ("IN:TLS", "", "'TLS' is no security protocol, there are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("IN:SSL,IN:SSL", "", "IN occurs twice"),
        ("OUT:SSL", "", "has no security protocol for the listener IN"),
        ("IN:PLAINTEXT", "", "ssl_keystore_certificate_chain is given, but no listener has the protocol SSL"),
        ("IN:SSL", "IN.ssl_client_auth", "listener_settings must be NAME.setting=value"),
        ("IN:SSL", "ssl_client_auth=none", "listener_settings must be NAME.setting=value"),
        ("IN:SSL", "OUT.ssl_client_auth=none", "OUT is no listener; there are IN"),
        ("IN:SSL", "IN.client_auth=none", "'client_auth' is no setting of a listener"),
        ("IN:SSL", "IN.ssl_client_auth=none;in.ssl_client_auth=none", "has IN.ssl_client_auth twice"),
        ("IN:SSL", "IN.ssl_client_auth=want", "ssl_client_auth must be one of none, requested, required: 'want'"),
        ("IN:SSL", "IN.ssl_client_auth=required;IN.ssl_truststore_certificates=", "needs ssl_truststore_certificates"),
        ("IN:SSL", "IN.ssl_keystore_key=", "listener IN has the protocol SSL and needs ssl_keystore_key"),
        ("IN:SSL", "IN.ssl_enabled_protocols=TLSv1.1", "may have TLSv1.2 and TLSv1.3: 'TLSv1.1'"),
        ("IN:SSL", "IN.ssl_enabled_protocols=,", "must name a version of TLS"),
    ],
)
def test_a_wrong_setting_is_rejected_in_one_sentence(protocol_map: str, settings: str, sentence: str) -> None:
    with pytest.raises(Invalid) as rejected:
        listener_securities(["IN"], protocol_map, FILES, settings)
    assert sentence in str(rejected.value)


def test_a_plain_listener_has_no_settings_of_its_own() -> None:
    with pytest.raises(Invalid, match="OUT has the protocol PLAINTEXT, which has no TLS"):
        listener_securities(["IN", "OUT"], "IN:SSL,OUT:PLAINTEXT", FILES, "OUT.ssl_client_auth=required")


def test_a_listeners_own_settings_replace_the_others_for_it_alone() -> None:
    own = "OUT.ssl_client_auth=REQUIRED; out.ssl_keystore_key=/other ;OUT.ssl_enabled_protocols=TLSv1.3"
    found = listener_securities(["IN", "OUT"], "IN:SSL,OUT:SSL", FILES, own)
    inside, outside = found["IN"].tls, found["OUT"].tls
    assert inside is not None and outside is not None
    assert (inside.key, inside.client_auth, inside.versions) == ("/k", ClientAuth.NONE, ("TLSv1.2", "TLSv1.3"))
    assert (outside.key, outside.client_auth, outside.versions) == ("/other", ClientAuth.REQUIRED, ("TLSv1.3",))
    assert outside.certificate_chain == "/c"


def test_a_listener_with_logins_asks_for_client_certificates_only_by_its_own_setting() -> None:
    """KIP-684."""
    required = TlsSettings(
        ssl_keystore_certificate_chain="/c",
        ssl_keystore_key="/k",
        ssl_truststore_certificates="/t",
        ssl_client_auth="required",
    )
    for chosen, own, expected in (
        (required, "", ClientAuth.NONE),
        (required, "A.ssl_client_auth=required", ClientAuth.REQUIRED),
    ):
        tls = listener_securities(["A"], "A:SASL_SSL", chosen, own)["A"].tls
        assert tls is not None and tls.client_auth is expected


@given(st.text(), st.text())
def test_any_text_is_parsed_or_rejected(protocol_map: str, settings: str) -> None:
    for texts in ((protocol_map, settings), ("", settings), ("A:SSL", f"A.ssl_enabled_protocols={settings}")):
        try:
            listener_securities(["A"], texts[0], FILES, texts[1])
        except Invalid as rejected:
            assert str(rejected)


def test_a_gateway_with_a_wrong_setting_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_config(GatewayConfig, [], {"PENSTOCK_LISTENERS": "SSL://:9093"}, program="gateway")
    assert ended.value.code == 2
    assert "listener SSL has the protocol SSL and needs ssl_keystore_certificate_chain" in capsys.readouterr().err


def test_without_settings_a_gateway_has_one_plain_listener() -> None:
    (only,) = GatewayConfig().listener_securities().values()
    assert only == ListenerSecurity(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT)


def security_of(pair: Pair, ca: Path | str = "", client_auth: str = "none") -> ListenerSecurity:
    settings = TlsSettings(
        ssl_keystore_certificate_chain=str(pair.certificate),
        ssl_keystore_key=str(pair.key),
        ssl_truststore_certificates=str(ca),
        ssl_client_auth=client_auth,
    )
    return listener_securities(["A"], "A:SSL", settings, "")["A"]


def _no_file(authority: Authority, pair: Pair) -> ListenerSecurity:
    pair.key.unlink()
    return security_of(pair)


def _other_key(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(Pair(pair.certificate, authority.issue("other").key))


def _password(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(authority.issue("secret", password="hidden"))


def _no_certificate(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(Pair(pair.key, pair.key))


def _no_key(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(Pair(pair.certificate, pair.certificate))


def _folder(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(Pair(pair.certificate.parent, pair.key))


def _no_authority(authority: Authority, pair: Pair) -> ListenerSecurity:
    return security_of(pair, pair.key, "required")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_no_file, "server.key': No such file or directory"),
        (_other_key, "other.key' does not match the certificate in ssl_keystore_certificate_chain"),
        (_password, "secret.key' has a password, which is not supported"),
        (_no_certificate, "server.key' has no valid PEM certificate"),
        (_no_key, "server.pem' has no valid PEM private key"),
        (_folder, "Is a directory"),
        (_no_authority, "ssl_truststore_certificates"),
    ],
)
def test_files_that_do_not_serve_are_an_error_that_names_them(
    tmp_path: Path, spoil: Callable[[Authority, Pair], ListenerSecurity], sentence: str
) -> None:
    authority = Authority(tmp_path)
    security = spoil(authority, authority.issue("server"))
    with pytest.raises(Invalid) as rejected:
        ListenerTls(security, ManualClock())
    assert sentence in str(rejected.value)
    assert str(rejected.value).startswith("listener A: ")
    assert "PRIVATE KEY" not in str(rejected.value)


@pytest.mark.parametrize(("days", "event"), [(-1, "certificate_expired"), (5, "")])
def test_an_expired_certificate_is_served_with_a_warning(tmp_path: Path, days: int, event: str) -> None:
    security = security_of(Authority(tmp_path).issue("server", days=days))
    assert security.tls is not None
    loaded = load_tls("A", security.tls)
    now_s = loaded.not_after_ms / 1000 - days * 86_400
    with capture_logs() as logs:
        tls = ListenerTls(security, ManualClock(now_s, epoch_ms=0))
    assert [line["event"] for line in logs] == ([event] if event else [])
    assert tls.not_after_ms == loaded.not_after_ms
