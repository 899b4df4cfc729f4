# One image with the three programs, on a file system that holds nothing else: no shell,
# no package manager, no libc. make docker-build makes it with the version stamped in.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY . .
ENV CGO_ENABLED=0
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
ARG BUILT_AT
# The modules are the builder's, not the image's: a second build downloads nothing.
RUN --mount=type=cache,target=/go/pkg/mod \
    info=github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo && \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X $info.version=$VERSION -X $info.commit=$COMMIT -X $info.builtAt=$BUILT_AT" \
    -o bin/ ./cmd/server ./cmd/worker ./cmd/jobctl

FROM scratch
# Whom webhooks and mail servers may trust, and the time zones that schedules name.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /usr/share/zoneinfo.zip
COPY deploy/passwd deploy/group /etc/
COPY --from=build /src/bin/ /usr/local/bin/
ENV PATH=/usr/local/bin ZONEINFO=/usr/share/zoneinfo.zip
# By number, so that an orchestrator that demands it sees that this is not root.
USER 10001:10001
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/usr/local/bin/server", "healthcheck"]
CMD ["server"]
