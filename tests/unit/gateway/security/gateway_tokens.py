"""An issuer of tokens for tests: its keys, its JSON Web Key Set, and tokens signed by it."""

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://issuer.example"
AUDIENCE = "penstock"


class Issuer:
    """Signs tokens with one RSA key and one EC key."""

    def __init__(self, name: str = "one") -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.name = name

    def public_keys(self) -> list[dict[str, Any]]:
        rsa_key = jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)
        ec_key = jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)
        return [rsa_key | {"kid": f"{self.name}-rsa", "use": "sig"}, ec_key | {"kid": f"{self.name}-ec"}]

    def key_set(self, *others: "Issuer") -> bytes:
        return json.dumps({"keys": [key for each in (self, *others) for key in each.public_keys()]}).encode()

    def token(self, user: str = "alice", algorithm: str = "RS256", *, now_s: float | None = None, **claims: Any) -> str:
        """A token of one minute; a field that is None is left out."""
        now_s = time.time() if now_s is None else now_s
        kind = "ec" if algorithm.startswith("ES") else "rsa"
        all_claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s) + 60, **claims}
        return jwt.encode(
            {name: value for name, value in all_claims.items() if value is not None},
            self.ec if kind == "ec" else self.rsa,
            algorithm=algorithm,
            headers={"kid": f"{self.name}-{kind}"},
        )


def bearer(token: str, authorization_id: str = "") -> bytes:
    """A client's message of OAUTHBEARER."""
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()
