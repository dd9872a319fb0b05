"""Users log in at an issuer by OpenID Connect; hostile browsers, tokens and issuers make no session."""

import asyncio
import base64
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import aiohttp
import jwt
import msgspec
import pytest
from structlog.testing import capture_logs

from penstock.cli.kafka.settings import client_configs
from penstock.contracts.errors import Invalid
from penstock_console.app import issuer_of
from penstock_console.config import ConsoleConfig
from penstock_console.kafka.sessions import KafkaSessions, Login
from penstock_console.openid.flow import CodeFlow
from penstock_console.openid.issuer import Issuer, Tokens
from penstock_console.openid.settings import CALLBACK, OpenIdLimits, OpenIdSettings, checked, read_secret
from penstock_console.web.routes import API
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.testkit.servers.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    DISCOVERY,
    KEYS,
    TOKEN,
    OpenIdProvider,
    providing,
)
from tests.testkit.servers.ports import free_port
from tests.testkit.servers.token_issuer import LIFETIME_S, Issuer as TokenIssuer
from tests.unit.console.console_fakes import SETTINGS
from tests.unit.console.console_rig import Rig
from tests.unit.console.console_served import SCRIPT, Answer, Served, full_rig, served

PUBLIC = "https://console.example"
SESSION, AWAY = "penstock_session", "penstock_login"
LIMITS = OpenIdLimits(answer_bytes_max=16_384)


@functools.cache
def signer() -> TokenIssuer:
    """The keys of the issuer; they take some time to make."""
    return TokenIssuer()


class World:
    """A console, its issuer, and browsers between them."""

    def __init__(self, web: Served, provider: OpenIdProvider) -> None:
        self.web = web
        self.provider = provider
        self.clock = web.rig.clock

    async def leave(self, target: str = "/topics") -> Answer:
        return await self.web.get(f"/login/openid?next={quote(target, safe='')}")

    async def visit_issuer(self, left: Answer) -> dict[str, str]:
        """The query with which the issuer sends the browser back."""
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(left.headers["Location"], allow_redirects=False) as answer,
        ):
            address = answer.headers["Location"]
        assert address.startswith(f"{PUBLIC}{CALLBACK}?")
        return dict(parse_qsl(urlsplit(address).query))

    async def come_back(self, query: dict[str, str], cookie: str) -> Answer:
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return await self.web.get(f"{CALLBACK}?{text}", headers={"Cookie": f"{AWAY}={cookie}"})

    async def log_in(self, target: str = "/topics") -> Answer:
        left = await self.leave(target)
        return await self.come_back(await self.visit_issuer(left), left.cookies[AWAY].value)

    async def session(self) -> dict[str, str]:
        """The headers of a browser that has logged in."""
        return {"Cookie": f"{SESSION}={(await self.log_in()).cookies[SESSION].value}"}

    def redeemed(self) -> list[dict[str, str]]:
        return [fields for path, fields in self.provider.asked if path == TOKEN]


@asynccontextmanager
async def world(rig: Rig | None = None, **changes: Any) -> AsyncIterator[World]:
    rig = rig or full_rig(passwords={"bob": "b"})
    with providing(lambda: rig.clock.now_ms() / 1000, signer()) as provider:
        rig.kafka.tokens = provider.given
        settings = OpenIdSettings(
            issuer=provider.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, public_url=PUBLIC
        )
        issuer = Issuer(msgspec.structs.replace(settings, **changes), rig.clock, limits=LIMITS)
        async with served(rig, issuer=issuer, session_s=10_000) as web:
            yield World(web, provider)


def is_refused(found: Answer) -> bool:
    """Whether an answer gives no session, and shows its reason."""
    return found.status == 401 and SESSION not in found.cookies and 'role="alert"' in found.text


async def test_a_user_logs_in_at_the_issuer_and_sees_the_page_that_was_asked_for() -> None:
    async with world(scope="openid offline_access", audience="kafka") as it:
        form = await it.web.get("/login?next=/topics%3Fq%3Da%26page%3D2")
        assert f'href="{PUBLIC}/login/openid?next=%2Ftopics%3Fq%3Da%26page%3D2"' in form.text
        assert 'name="password"' in form.text
        left = await it.leave("/topics?q=a&page=2")
        assert left.status == 303
        asked = dict(parse_qsl(urlsplit(left.headers["Location"]).query))
        secrets = {asked.pop(name) for name in ("state", "nonce", "code_challenge")}
        assert len(secrets) == 3
        assert asked == {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": f"{PUBLIC}/login/openid/callback",
            "scope": "openid offline_access",
            "code_challenge_method": "S256",
            "audience": "kafka",
        }
        away = left.cookies[AWAY]
        assert (away["httponly"], away["samesite"], away["path"]) == (True, "Lax", "/login/openid")
        found = await it.come_back(await it.visit_issuer(left), away.value)
        assert found.status == 200
        assert 'content="0; url=/topics?q=a&amp;page=2"' in found.text
        assert (found.cookies[SESSION]["samesite"], found.cookies[AWAY].value) == ("Strict", "")
        given = {"Cookie": f"{SESSION}={found.cookies[SESSION].value}"}
        page = await it.web.get("/topics/t/messages", headers=given)
        assert (page.status, ">alice<" in page.text) == (200, True)
        login = it.web.rig.kafka.calls[-1]
        assert (login.username, login.password, login.token in it.provider.given) == ("alice", "", True)
        await it.web.post("/logout", headers=given)
        assert (await it.web.get("/topics", headers=given)).status == 303
        assert it.web.rig.kafka.closed == [login]


async def test_no_token_and_no_code_is_in_a_cookie_an_address_a_page_or_a_log() -> None:
    with capture_logs() as lines:
        async with world() as it:
            it.provider.gives_refresh = True
            left = await it.leave()
            query = await it.visit_issuer(left)
            first = await it.come_back(query, left.cookies[AWAY].value)
            again = await it.come_back(query, left.cookies[AWAY].value)
            it.clock.now_s += LIFETIME_S - 10
            given = {"Cookie": f"{SESSION}={first.cookies[SESSION].value}"}
            page = await it.web.get("/", headers=given)
            it.provider.answer_changes = {"access_token": "opaque-secret"}
            refused = await it.log_in()
            secrets = [*it.provider.given, "opaque-secret", CLIENT_SECRET]
    texts = [str(lines)]
    for each in (left, first, again, page, refused):
        texts += [each.text, str(each.headers)]
    assert len(secrets) >= 10
    assert [secret for secret in secrets for text in texts if secret in text] == []
    assert any(each["event"] == "login_made" and each["user"] == "alice" for each in lines)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "f" * 64},
        {"state": ""},
        {"iss": "https://other.example"},
        {"error": "access_denied"},
        {"error": SCRIPT},
        {"code": ""},
        {"code": "x" * 5_000},
        {"code": "\u00e9\x00"},
    ],
)
async def test_a_browser_that_comes_back_otherwise_than_sent_gets_no_token(changes: dict[str, str]) -> None:
    async with world() as it:
        left = await it.leave()
        found = await it.come_back(await it.visit_issuer(left) | changes, left.cookies[AWAY].value)
        assert is_refused(found)
        assert SCRIPT not in found.text
        assert it.redeemed() == []


@pytest.mark.parametrize("cookie", ["", "f" * 64, "\u00ff"])
async def test_a_login_ends_only_in_the_browser_in_which_it_began(cookie: str) -> None:
    """Else an attacker could send a link that logs another user in as the attacker."""
    async with world() as it:
        await it.leave()
        query = await it.visit_issuer(await it.leave())
        assert is_refused(await it.come_back(query, cookie))
        assert it.redeemed() == []


async def test_a_login_ends_once_and_its_code_fits_no_other_login() -> None:
    async with world() as it:
        left = await it.leave()
        query = await it.visit_issuer(left)
        other = await it.leave()
        stolen = (await it.visit_issuer(other)) | {"code": query["code"]}
        found = await it.come_back(stolen, other.cookies[AWAY].value)
        assert is_refused(found) and "invalid_grant" in found.text
        assert (await it.come_back(query, left.cookies[AWAY].value)).status == 200
        assert is_refused(await it.come_back(query, left.cookies[AWAY].value))
        assert len(it.redeemed()) == 2


async def test_a_code_that_the_issuer_has_seen_is_refused() -> None:
    async with world() as it:
        left = await it.leave()
        query = await it.visit_issuer(left)
        await it.come_back(query, left.cookies[AWAY].value)
        other = await it.leave()
        replayed = (await it.visit_issuer(other)) | {"code": query["code"]}
        assert is_refused(await it.come_back(replayed, other.cookies[AWAY].value))


async def test_a_login_that_takes_too_long_is_refused_and_open_logins_are_bounded() -> None:
    async with world() as it:
        left = await it.leave()
        query = await it.visit_issuer(left)
        it.clock.now_s += LIMITS.login_s
        assert is_refused(await it.come_back(query, left.cookies[AWAY].value))
        flow = CodeFlow(
            Issuer(settings_at(it.provider.url), it.clock),
            it.clock,
            CountingEntropy(),
            limits=OpenIdLimits(logins_max=2),
        )
        begun = [await flow.begin("/") for _ in range(3)]
        states = [dict(parse_qsl(urlsplit(each.url).query))["state"] for each in begun]
        with pytest.raises(Invalid, match="did not begin in this browser"):
            await flow.end(begun[0].browser, {"state": states[0]})
        with pytest.raises(Invalid, match="no code"):
            await flow.end(begun[2].browser, {"state": states[2]})


def settings_at(url: str) -> OpenIdSettings:
    return OpenIdSettings(issuer=url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, public_url=PUBLIC)


ID_CHANGES: list[dict[str, Any]] = [
    {"nonce": "of another login"},
    {"nonce": None},
    {"nonce": "\ud800"},
    {"aud": "another client"},
    {"aud": None},
    {"azp": "another client"},
    {"iss": "https://other.example"},
    {"exp": 1},
    {"exp": None},
    {"exp": "soon"},
    {"sub": None},
]


async def test_an_id_token_of_another_login_client_or_time_is_refused() -> None:
    async with world() as it:
        for changes in ID_CHANGES:
            it.provider.id_changes = changes
            assert is_refused(await it.log_in()), changes
        assert it.web.rig.kafka.calls == []


def unsigned(provider: OpenIdProvider) -> str:
    return jwt.encode({"iss": provider.url, "aud": CLIENT_ID, "sub": "alice", "exp": 2**40}, "", algorithm="none")


def signed_by_secret(provider: OpenIdProvider) -> str:
    claims = {"iss": provider.url, "aud": CLIENT_ID, "sub": "alice", "exp": 2**40}
    return jwt.encode(claims, CLIENT_SECRET * 3, algorithm="HS256", headers={"kid": "one-rsa"})


async def test_an_id_token_that_the_issuer_has_not_signed_is_refused() -> None:
    async with world() as it:
        claims = {"iss": it.provider.url, "aud": CLIENT_ID}
        forged = [TokenIssuer(name).token(**claims) for name in ("one", "two")]  # the first has the right key ids
        for token in (unsigned(it.provider), signed_by_secret(it.provider), *forged, "", "a.b.c", None, 7):
            it.provider.answer_changes = {"id_token": token}
            assert is_refused(await it.log_in()), token
        assert it.web.rig.kafka.calls == []


ACCESS_CHANGES: list[dict[str, Any]] = [
    {"exp": 1},
    {"exp": None},
    {"exp": True},
    {"sub": None},
    {"sub": ""},
    {"sub": "a\nb"},
    {"sub": "a" * 256},
]


async def test_an_access_token_without_a_user_or_after_its_end_is_refused() -> None:
    async with world() as it:
        for changes in ACCESS_CHANGES:
            it.provider.access_changes = changes
            assert is_refused(await it.log_in()), changes
        assert it.web.rig.kafka.calls == []


ANSWER_CHANGES: list[dict[str, Any]] = [
    {"access_token": "opaque"},
    {"access_token": "a.b.c"},
    {"access_token": f"{base64.urlsafe_b64encode(b'[]').decode()}.e30."},
    {"access_token": "a.b.c\x01auth=Bearer x"},
    {"access_token": 7},
    {"token_type": "mac"},
    {"refresh_token": 7},
]


async def test_an_answer_without_a_token_for_gateways_is_refused() -> None:
    async with world() as it:
        for changes in ANSWER_CHANGES:
            it.provider.answer_changes = changes
            assert is_refused(await it.log_in()), changes
        assert it.web.rig.kafka.calls == []


NONSENSE = [
    (200, b""),
    (200, b"<html>"),
    (200, b"[]"),
    (200, b"\xff"),
    (200, b"[" * 10_000),
    (200, b" " * (LIMITS.answer_bytes_max + 1)),
    (302, b"{}"),
    (400, b'{"error": 7}'),
    (401, b'{"error": "<script>"}'),
    (500, b""),
]


@pytest.mark.parametrize("path", [DISCOVERY, TOKEN, KEYS])
async def test_an_issuer_that_answers_nonsense_is_an_error_of_the_login(path: str) -> None:
    async with world() as it:
        for answer in NONSENSE:
            if path == DISCOVERY:
                it.provider.broken[path] = answer
                found = await it.leave()
            else:
                left = await it.leave()
                query = await it.visit_issuer(left)
                it.provider.broken[path] = answer
                found = await it.come_back(query, left.cookies[AWAY].value)
            assert is_refused(found), answer
            assert "<script>" not in found.text
            it.provider.broken.clear()
            it.clock.now_s += LIMITS.retry_s
        assert (await it.log_in()).status == 200


@pytest.mark.parametrize("name", ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"])
async def test_addresses_that_could_be_read_on_the_way_are_not_used(name: str) -> None:
    async with world() as it:
        for value in ("http://issuer.example/x", "javascript:alert(1)", "", "https://a b/", "https://[/"):
            document = it.provider.discovery() | {name: value}
            it.provider.broken[DISCOVERY] = (200, msgspec.json.encode(document))
            assert is_refused(await it.leave()), value
            it.clock.now_s += LIMITS.retry_s


async def test_an_issuer_without_an_answer_is_not_asked_for_each_browser() -> None:
    async with world() as it:
        it.provider.broken[DISCOVERY] = (503, b"")
        for _ in range(3):
            assert [is_refused(each) for each in await asyncio.gather(*(it.leave() for _ in range(5)))] == [True] * 5
            it.clock.now_s += LIMITS.retry_s
        assert len(it.provider.asked) == 3


async def test_an_issuer_that_is_away_is_reported_and_passwords_still_work() -> None:
    async with world(issuer=f"http://127.0.0.1:{free_port()}") as it:
        found = await it.leave()
        assert is_refused(found) and "the issuer does not answer" in found.text
        assert (await it.web.post("/login", data={"username": "bob", "password": "b"})).status == 303


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "", f"/{'a' * 3_000}"]
)
async def test_a_login_at_the_issuer_leads_to_no_other_site(target: str) -> None:
    async with world() as it:
        assert 'content="0; url=/"' in (await it.log_in(target)).text


async def test_gateways_decide_which_tokens_log_in() -> None:
    async with world() as it:
        it.web.rig.kafka.tokens = ()
        found = await it.log_in()
        assert is_refused(found) and "refuses the login" in found.text
        it.web.rig.kafka.tokens = it.provider.given
        it.web.rig.kafka.session.admin.operations = []
        found = await it.log_in()
        assert is_refused(found) and "needs the right to describe the cluster" in found.text


async def test_a_session_ends_with_its_token() -> None:
    async with world() as it:
        given = await it.session()
        it.clock.now_s += LIFETIME_S - 1
        assert (await it.web.get("/topics", headers=given)).status == 200
        it.clock.now_s += 1
        assert (await it.web.get("/topics", headers=given)).status == 303
        assert len(it.redeemed()) == 1


async def test_a_token_is_renewed_once_before_its_end() -> None:
    async with world() as it:
        it.provider.gives_refresh = True
        given = await it.session()
        old = it.web.rig.kafka.calls[-1]
        for _ in range(3):
            it.clock.now_s += LIFETIME_S - 60
            answers = await asyncio.gather(*(it.web.get("/topics/t/messages", headers=given) for _ in range(4)))
            assert [each.status for each in answers] == [200] * 4
        assert [each["grant_type"] for each in it.redeemed()] == ["authorization_code"] + ["refresh_token"] * 3
        assert old in it.web.rig.kafka.closed
        assert it.web.rig.kafka.calls[-1] != old
        it.clock.now_s = 10_000
        assert (await it.web.get("/topics", headers=given)).status == 303  # the session's own time is over


async def test_an_issuer_that_renews_no_more_ends_the_session() -> None:
    async with world() as it:
        it.provider.gives_refresh = True
        given = await it.session()
        it.provider.broken[TOKEN] = (400, b'{"error": "invalid_grant"}')
        it.clock.now_s += LIFETIME_S - 10
        for _ in range(3):
            assert (await it.web.get("/topics", headers=given)).status == 200
        assert len(it.redeemed()) == 2
        it.clock.now_s += 10
        assert (await it.web.get("/topics", headers=given)).status == 303


async def test_an_issuer_that_is_away_for_a_moment_is_asked_again() -> None:
    async with world() as it:
        it.provider.gives_refresh = True
        given = await it.session()
        it.provider.broken[TOKEN] = (503, b"")
        it.clock.now_s += LIFETIME_S - 10
        for _ in range(3):
            assert (await it.web.get("/topics", headers=given)).status == 200
        assert len(it.redeemed()) == 2
        it.clock.now_s += 10
        assert (await it.web.get("/topics", headers=given)).status == 303
        it.provider.broken.clear()
        it.clock.now_s += 10
        assert (await it.web.get("/topics", headers=given)).status == 200


async def test_a_new_token_of_another_user_ends_the_session() -> None:
    async with world() as it:
        it.provider.gives_refresh = True
        given = await it.session()
        it.provider.user = "mallory"
        it.clock.now_s += LIFETIME_S - 10
        page = await it.web.get("/topics", headers=given)
        assert (">alice<" in page.text, "mallory" in page.text) == (True, False)
        it.clock.now_s += 10
        assert (await it.web.get("/topics", headers=given)).status == 303


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_script_logs_in_with_a_token_and_only_at_the_api() -> None:
    async with world() as it:
        token = it.provider.access_token()
        it.web.rig.kafka.tokens = [token]
        for _ in range(3):
            assert (await it.web.get(f"{API}/topics", headers=bearer(token))).status == 200
        assert len(it.web.rig.kafka.calls) == 1
        assert (await it.web.get("/topics", headers=bearer(token))).status == 303
        for other in (TokenIssuer().token(), "opaque", "", "a.b.c", it.provider.access_token(sub=None)):
            assert (await it.web.get(f"{API}/topics", headers=bearer(other))).status == 401
        it.clock.now_s += LIFETIME_S
        assert (await it.web.get(f"{API}/topics", headers=bearer(token))).status == 401


async def test_a_script_with_a_new_token_for_each_request_keeps_one_client() -> None:
    async with world() as it:
        tokens = [it.provider.access_token(jti=str(number)) for number in range(5)]
        it.web.rig.kafka.tokens = tokens
        for token in tokens:
            assert (await it.web.get(f"{API}/topics", headers=bearer(token))).status == 200
        assert {each.token for each in it.web.rig.kafka.closed} == set(tokens[:-1])


async def test_a_listener_that_takes_tokens_only_has_no_form() -> None:
    rig = full_rig(passwords={"bob": "b"})
    rig.kafka.takes_passwords = False
    async with world(rig) as it:
        form = await it.web.get("/login")
        assert ("/login/openid" in form.text, 'name="password"' in form.text) == (True, False)
        assert is_refused(await it.web.post("/login", data={"username": "bob", "password": "b"}))
        basic = {"Authorization": aiohttp.encode_basic_auth("bob", "b")}
        found = await it.web.get(f"{API}/topics", headers=basic)
        assert (found.status, found.headers["WWW-Authenticate"]) == (401, 'Bearer realm="penstock"')
        assert (await it.web.get("/topics", headers=await it.session())).status == 200


async def test_the_client_of_a_token_logs_in_by_it_at_the_listener() -> None:
    kafka = KafkaSessions(msgspec.structs.replace(SETTINGS, security_protocol="SASL_SSL"), ManualClock())
    login = Login("alice", token="a.b.c")
    session = await kafka.call(login, lambda session: session)
    assert (session.settings.sasl_mechanism, session.settings.password) == ("OAUTHBEARER", "")
    configs = client_configs(session.settings, login.token)
    assert configs["sasl_oauth_token_provider"].token() == "a.b.c"
    assert "sasl_plain_password" not in configs
    assert "a.b.c" not in f"{login} {session.settings}"
    await kafka.close()


async def test_the_secret_goes_into_the_body_where_the_issuer_wants_it_there() -> None:
    async with world() as it:
        document = it.provider.discovery() | {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        it.provider.broken[DISCOVERY] = (200, msgspec.json.encode(document))
        await it.log_in()
        (asked,) = it.redeemed()
        assert (asked["client_id"], asked["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)


async def test_a_client_without_a_secret_sends_its_name_and_the_verifier() -> None:
    async with world(client_secret="") as it:
        await it.log_in()
        (asked,) = it.redeemed()
        assert asked["client_id"] == CLIENT_ID
        assert "client_secret" not in asked
        assert len(asked["code_verifier"]) == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"oidc_issuer": "http://issuer.example"},
        {"oidc_issuer": "issuer.example"},
        {"oidc_issuer": "https://u:p@issuer.example"},
        {"oidc_client_id": ""},
        {"public_url": ""},
        {"public_url": "http://console.example"},
        {"public_url": "https://console.example/path"},
        {"oidc_scope": "profile"},
        {"oidc_client_secret_file": "/nowhere/secret"},
    ],
)
def test_a_console_with_wrong_settings_of_an_issuer_does_not_start(changes: dict[str, str]) -> None:
    right = {"oidc_issuer": "https://issuer.example", "oidc_client_id": "console", "public_url": PUBLIC}
    kafka = KafkaSessions(msgspec.structs.replace(SETTINGS, security_protocol="SASL_SSL"), ManualClock())
    assert issuer_of(ConsoleConfig(**right), kafka, ManualClock()) is not None
    with pytest.raises(Invalid):
        issuer_of(ConsoleConfig(**right | changes), kafka, ManualClock())
    with pytest.raises(Invalid, match="needs a listener with logins"):
        issuer_of(ConsoleConfig(**right), KafkaSessions(SETTINGS, ManualClock()), ManualClock())
    assert issuer_of(ConsoleConfig(), kafka, ManualClock()) is None


def test_a_secret_is_the_first_line_of_its_file_and_in_no_text(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret \nmore")
    assert read_secret(str(file)) == "s3cret"
    file.write_text("\n")
    with pytest.raises(Invalid, match="is empty"):
        read_secret(str(file))
    settings = checked(settings_at("https://issuer.example"))
    tokens = Tokens(username="alice", access="s3cret", expires_ms=0, refresh="s3cret")
    assert "s3cret" not in f"{settings} {settings!r} {tokens} {tokens!r}"
