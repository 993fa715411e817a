# The one image of Tessera: plugin and, later, controller, webhook and preflight.
# BASE needs glibc (NVML is a glibc library) and Python >= 3.11 with venv; where no image can be
# pulled it is a local one, and the wheels come with the build context (hack/image.py makes both).
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
COPY . /src
WORKDIR /src
# kubernetes/aio is 41 MiB that a synchronous program never imports.
RUN set -eu; \
    python3 -m venv /opt/tessera; \
    if [ -d build/wheels ]; then \
      offline="--no-index --find-links=build/wheels"; own="$(ls build/wheels/tessera-*.whl)"; \
    else \
      offline=""; own="."; \
    fi; \
    /opt/tessera/bin/pip install --no-cache-dir --no-compile --require-hashes $offline -r hack/requirements.lock; \
    /opt/tessera/bin/pip install --no-cache-dir --no-compile --no-deps $offline "$own"; \
    /opt/tessera/bin/pip uninstall -y -q pip setuptools; \
    rm -rf /opt/tessera/lib/python3*/site-packages/kubernetes/aio; \
    python3 -m compileall -q -j 0 /opt/tessera/lib

FROM ${BASE}
COPY --from=build /opt/tessera /opt/tessera
# The plugin's pod asks for root, since the kubelet's folders are root's; nothing else needs it.
USER 65532:65532
# `kubectl exec POD -- tessera status` finds it.
ENV PATH=/opt/tessera/bin:$PATH
ENTRYPOINT ["/opt/tessera/bin/tessera"]
