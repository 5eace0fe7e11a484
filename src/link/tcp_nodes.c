/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_nodes.h"

#include <string.h>

#include "src/base/failure.h"
#include "src/base/text.h"

/* One node, which is `size` characters long. */
static cvy_status read_node(const char *text, size_t size, int port, cvy_tcp_node *out) {
  cvy_status status = CVY_OK;
  int64_t own_port = port;
  *out = (cvy_tcp_node){.port = port};
  CVY_REQUIRE(size > 0, CVY_E_ARGUMENT, "--nodes: a node without a name; names stand between commas, as in pc1,pc2");
  CVY_REQUIRE(size < sizeof out->host, CVY_E_ARGUMENT, "--nodes: the name of a host has at most 255 characters");
  memcpy(out->name, text, size);
  const char *host = out->name, *end = strchr(host, ':'), *behind = end;
  if (host[0] == '[') {
    end = strchr(++host, ']');
    CVY_REQUIRE(end && (end[1] == '\0' || end[1] == ':'), CVY_E_ARGUMENT,
                "--nodes %s: an IPv6 address stands in brackets, as in [fd00::2] or [fd00::2]:7070", out->name);
    behind = end[1] == ':' ? end + 1 : NULL;
  } else {
    CVY_REQUIRE(!end || !strchr(end + 1, ':'), CVY_E_ARGUMENT,
                "--nodes %s: an IPv6 address stands in brackets, as in [fd00::2] or [fd00::2]:7070", out->name);
  }
  CVY_REQUIRE(end != host, CVY_E_ARGUMENT, "--nodes %s: a node without a host", out->name);
  memcpy(out->host, host, end ? (size_t)(end - host) : strlen(host));
  CVY_REQUIRE(!behind || cvy_parse_int(behind + 1, 1, 65535, &own_port), CVY_E_ARGUMENT,
              "--nodes %s: a port is a number from 1 to 65535", out->name);
  CVY_REQUIRE(own_port > 0, CVY_E_ARGUMENT, "--nodes %s: without --port each node needs its own, as in %s:7070",
              out->name, out->name);
  out->port = (int)own_port;
fail:
  return status;
}

cvy_status cvy_tcp_nodes_read(const char *text, int port, cvy_tcp_nodes *out) {
  cvy_status status = CVY_OK;
  out->n = 0;
  for (const char *at = text;; at++) {
    const size_t size = strcspn(at, ",");
    CVY_REQUIRE(out->n < CVY_NODES_MOST, CVY_E_ARGUMENT, "--nodes: a fleet has at most %d nodes", CVY_NODES_MOST);
    cvy_tcp_node *const node = &out->items[out->n];
    CVY_TRY(read_node(at, size, port, node));
    for (int i = 0; i < out->n; i++)
      CVY_REQUIRE(strcmp(out->items[i].host, node->host) != 0 || out->items[i].port != node->port, CVY_E_ARGUMENT,
                  "--nodes: %s stands there twice; nodes of one host differ by their ports, as in pc1:7070,pc1:7071",
                  node->name);
    out->n++;
    at += size;
    if (!*at) break;
  }
fail:
  return status;
}
