# An image with nothing in it but the program. `make image` builds the binaries
# first (bin/linux-ARCH/unflannel), so that nothing is fetched here.
FROM scratch
ARG TARGETARCH
COPY bin/linux-${TARGETARCH}/unflannel /unflannel
LABEL org.opencontainers.image.title="unflannel" \
      org.opencontainers.image.description="Removes what Flannel left in a node's firewall, and nothing else" \
      org.opencontainers.image.source="https://github.com/unflannel/unflannel" \
      org.opencontainers.image.licenses="Apache-2.0"
# It has to be root, with NET_ADMIN, in the host's network: the kernel shows rules to
# nobody else. A numeric id, since there is no /etc/passwd here.
USER 0:0
ENTRYPOINT ["/unflannel"]
CMD ["check"]
