"""TLS to the NATS servers: the files of one client, and the context that they make."""

import ssl

import msgspec

from penstock.contracts.errors import Invalid


class NatsTls(msgspec.Struct, frozen=True):
    """The PEM files of a client; all empty: no TLS, unless the address is `tls://...`."""

    ca: str = ""  # certificates that sign those of servers; empty: the ones that this machine trusts
    certificate: str = ""  # this client's own, if the servers ask for one
    key: str = ""

    @property
    def is_given(self) -> bool:
        """Whether any file is named."""
        return bool(self.ca or self.certificate or self.key)


def client_context(tls: NatsTls) -> ssl.SSLContext:
    """The context of connections to NATS; `Invalid` with the file's name if it cannot be used."""
    if bool(tls.certificate) != bool(tls.key):
        raise Invalid("nats_tls_certificate and nats_tls_key belong together: give both or none")
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"no certificates to trust in {tls.ca}: {_reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            files = f"{tls.certificate} and {tls.key}"
            raise Invalid(f"no certificate with its key in {files}: {_reason(error)}") from error
    return context


def _reason(error: OSError) -> str:
    return error.reason if isinstance(error, ssl.SSLError) and error.reason else error.strerror or str(error)
