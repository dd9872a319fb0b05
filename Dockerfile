# One image for each service: docker build --build-arg SERVICE=gateway . (for the compactor see compose.yaml)
# SERVICE may also name several services, with spaces between them: the roles of an agent.
# GROUPS are more groups of dependencies: `clouds` for stores at Google and Azure, `small` for the nats-server of `penstock up`.
# Its layers: the base, the dependencies (the same for all services that need the same), the code.

ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS base


FROM base AS tools
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON=/opt/penstock/bin/python UV_NO_PROGRESS=1
WORKDIR /build
RUN python3 -m venv --without-pip /opt/penstock
COPY requirements.lock requirements-spark.lock ./
RUN awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock >uv.lock \
    && pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore --require-hashes -r uv.lock


# The services of this image only, so that later steps are done again for changes of these alone.
FROM base AS chosen
ARG SERVICE
RUN --mount=type=bind,source=services,target=/services \
    mkdir /chosen && cd /services && for each in ${SERVICE}; do cp -r ${each}/src/* /chosen; done


# What they need and nothing else, with the versions and hashes of the lock.
FROM tools AS list
ARG LOCK=requirements.lock SERVICE GROUPS=""
COPY pyproject.toml ./
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip compile --quiet --no-annotate --no-header --constraints ${LOCK} $(printf -- '--group %s ' ${SERVICE} ${GROUPS}) >names \
    && awk 'NR == FNR {wanted[$1]; next} /^[^ ]/ {on = $1 in wanted} on' names ${LOCK} >/list \
    && test "$(grep -c == /list)" -eq "$(grep -c == names)"


# The layer depends on nothing but that list: a change of the code leaves it as it is, and services share it.
FROM tools AS dependencies
COPY --from=list /list /list
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --quiet --require-hashes --build-constraints requirements-spark.lock -r /list


# The modules with hot loops (ADR 0044). A change of other code leaves this stage as it is.
FROM tools AS compiled
RUN python3 -c 'import os, sysconfig; print(os.path.exists(sysconfig.get_path("include") + "/Python.h"))' >/headers \
    && apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
       gcc libc6-dev $(grep -q True /headers || echo python3-dev) \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=cache,target=/root/.cache/uv \
    awk '/^[^ ]/ {on = $1 ~ /^(ast-serialize|librt|mypy|mypy-extensions|pathspec|setuptools|typing-extensions)==/} on' \
        requirements.lock >mypyc.lock \
    && uv pip install --quiet --require-hashes --no-deps --target /opt/mypyc -r mypyc.lock
COPY deploy/compile ./
COPY libs/src/penstock/kafkawire src/penstock/kafkawire
RUN touch src/penstock/__init__.py \
    && PYTHONPATH=/opt/mypyc python3 compile --required src \
    && mkdir /compiled && cd src && cp --parents penstock/kafkawire/*.so /compiled


FROM tools AS code
COPY libs/src /opt/code
COPY --from=chosen /chosen /opt/code
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/code


# PACKAGES are Debian packages. Java's needs the folder of manual pages. Java itself needs the name of its user.
FROM base
ARG PACKAGES=""
RUN test -z "${PACKAGES}" \
    || { mkdir -p /usr/share/man/man1 && apt-get update -q \
         && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ${PACKAGES} \
         && rm -rf /var/lib/apt/lists/* /usr/share/man; }
RUN echo 'penstock:x:10001:10001::/tmp:/usr/sbin/nologin' >>/etc/passwd && install -d -o 10001 -g 10001 /scratch
ARG SERVICE
ENV PATH=/opt/penstock/bin:$PATH \
    PYTHONPATH=/opt/code \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PENSTOCK_SERVICE=${SERVICE} \
    PENSTOCK_HTTP_HOST=0.0.0.0 \
    PENSTOCK_HTTP_PORT=8080
COPY --from=dependencies /opt/penstock /opt/penstock
COPY --chmod=755 deploy/ready /usr/local/bin/ready
COPY --from=code /opt/code /opt/code
COPY --from=compiled /compiled /opt/code
USER 10001:10001
WORKDIR /tmp
STOPSIGNAL SIGTERM
# Healthy means ready: connected, and nothing missing that the service needs.
HEALTHCHECK --interval=5s --timeout=10s --start-period=120s --retries=5 CMD ["ready"]
ENTRYPOINT ["sh", "-c", "exec python -m \"penstock_$PENSTOCK_SERVICE\" \"$@\"", "penstock"]
