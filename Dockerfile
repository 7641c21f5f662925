# Two targets: `node` (nameserver, broker, command line) and `report` (the same with Spark and a Java from pip).
FROM python:3.13-slim AS node
RUN useradd --uid 10001 --create-home rmq && install -d -o rmq -g rmq -m 0700 /store && install -d -o rmq -g rmq /reports
WORKDIR /app
COPY pyproject.toml README.md ./
COPY locks ./locks
COPY rmq ./rmq
COPY analytics ./analytics
COPY pyspark_rmq ./pyspark_rmq
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r locks/build.txt -r locks/node.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation . && install -d -o rmq -m 0700 /history /secrets
USER rmq
ENV RMQ_STORE_DIR=/store PYTHONUNBUFFERED=1
VOLUME /store
EXPOSE 9876 10911
# Its own node only: 9876 in a nameserver, 10911 in a broker (compose says which by HEALTH_ADDRESS).
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s CMD rmq health --timeout 2 --address "${HEALTH_ADDRESS:-127.0.0.1:10911}"
ENTRYPOINT ["rmq"]
CMD ["node", "--role", "all"]

FROM node AS report
USER root
# pyspark comes as one archive of 456 MB (Python and jars); everything else as wheels.
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation --use-pep517 \
    -r locks/tour.txt
USER rmq
VOLUME /reports
HEALTHCHECK NONE
ENTRYPOINT ["rmq", "report", "/store", "--out", "/reports"]
CMD []
