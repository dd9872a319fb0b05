"""The address of a cluster: from the options of a read, else from the environment, else from an env file."""

from collections.abc import Mapping

import msgspec

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import check_token
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.env_file import ENV_FILE_VARIABLE, read_env_file, with_store_keys
from penstock.runtime.process.landing import with_landing

CLUSTER_DEFAULT = "default"
_VARIABLES = {
    "nats_url": "NATS_URL",
    "store_url": "STORE_URL",
    "cluster": "CLUSTER",
    "nats_user": "NATS_USER",
    "nats_password": "NATS_PASSWORD",
    "nats_tls_ca": "NATS_TLS_CA",
    "nats_tls_certificate": "NATS_TLS_CERTIFICATE",
    "nats_tls_key": "NATS_TLS_KEY",
}


class ClusterAddress(msgspec.Struct, frozen=True):
    """A cluster's name, its NATS servers and its store. Some fields are secrets, so they are never printed."""

    cluster: str
    nats_url: str
    nats_user: str
    nats_password: str
    store_url: str
    nats_tls_ca: str = ""
    nats_tls_certificate: str = ""
    nats_tls_key: str = ""

    @property
    def nats_tls(self) -> NatsTls:
        """The files for `tls://` addresses."""
        return NatsTls(self.nats_tls_ca, self.nats_tls_certificate, self.nats_tls_key)

    def with_landing(self) -> "ClusterAddress":
        """The address with a complete address of the landing store."""
        store_url = with_landing(
            self.store_url,
            cluster=self.cluster,
            nats_url=self.nats_url,
            user=self.nats_user,
            password=self.nats_password,
            tls=self.nats_tls,
        )
        return msgspec.structs.replace(self, store_url=store_url)

    def __repr__(self) -> str:
        """Only the name: the other fields may contain secrets."""
        return f"ClusterAddress({self.cluster!r})"


def read_address(given: Mapping[str, str], environ: Mapping[str, str]) -> ClusterAddress:
    """The address from options, else from PENSTOCK_ variables, else from the env file that one of these names."""
    file = read_env_file(given.get("env_file") or environ.get(ENV_FILE_VARIABLE, ""))
    found = {}
    for field, name in _VARIABLES.items():
        variable = f"PENSTOCK_{name}"
        found[field] = given.get(field) or environ.get(variable) or file.settings.get(variable, "")
    for field, option in (("nats_url", "nats"), ("store_url", "store")):
        if not found[field]:
            raise Invalid(
                f"no cluster is named: give the option {option}, or PENSTOCK_{_VARIABLES[field]} in the environment"
            )
    found["cluster"] = check_token("cluster", found["cluster"] or CLUSTER_DEFAULT)
    found["store_url"] = with_store_keys(found["store_url"], file, environ)
    return ClusterAddress(**found).with_landing()
