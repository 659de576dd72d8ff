// Probes of sockets and interfaces. Modules that a family needs are loaded by the kernel.
#include "probe.h"
#include <arpa/inet.h>
#include <linux/if_alg.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/un.h>

static long address(int family, const char *text, int port, struct sockaddr_storage *out) {
  memset(out, 0, sizeof *out);
  if (family == AF_INET) {
    struct sockaddr_in *four = (void *)out;
    four->sin_family = AF_INET, four->sin_port = htons(port);
    inet_pton(AF_INET, text, &four->sin_addr);
    return sizeof *four;
  }
  struct sockaddr_in6 *six = (void *)out;
  six->sin6_family = AF_INET6, six->sin6_port = htons(port);
  inet_pton(AF_INET6, text, &six->sin6_addr);
  return sizeof *six;
}

static void wait_readable(int fd, const char *what) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  holds(poll(&one, 1, 5000) == 1, what);
}

/// A connection over loopback; answers both ends.
static void connect_pair(int family, const char *host, int protocol, int ends[2]) {
  struct sockaddr_storage where;
  socklen_t length = address(family, host, 0, &where);
  int server = must(socket(family, SOCK_STREAM, protocol), "socket");
  must(bind(server, (void *)&where, length), "bind");
  must(listen(server, 1), "listen");
  must(getsockname(server, (void *)&where, &length), "getsockname");
  ends[0] = must(socket(family, SOCK_STREAM, protocol), "socket");
  must(connect(ends[0], (void *)&where, length), "connect");
  ends[1] = must(accept(server, NULL, NULL), "accept");
  must(write(ends[0], "x", 1), "write");
  char byte;
  must(read(ends[1], &byte, 1), "read");
}

static void loopback_six(void) {
  int ends[2];
  connect_pair(AF_INET6, "::1", 0, ends);
  say("works");
}

static void mapped_four(void) {
  struct sockaddr_storage where;
  socklen_t length = address(AF_INET6, "::", 0, &where);
  int server = must(socket(AF_INET6, SOCK_STREAM, 0), "socket"), none = 0;
  must(setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none), "v6only off");
  must(bind(server, (void *)&where, length), "bind ::");
  must(listen(server, 1), "listen");
  must(getsockname(server, (void *)&where, &length), "getsockname");
  int port = ntohs(((struct sockaddr_in6 *)&where)->sin6_port);
  length = address(AF_INET, "127.0.0.1", port, &where);
  must(connect(must(socket(AF_INET, SOCK_STREAM, 0), "socket"), (void *)&where, length), "connect by IPv4");
  say("works");
}

static void multipath(void) {
  int ends[2];
  connect_pair(AF_INET, "127.0.0.1", 262, ends);
  say("works");
}

static void sctp(void) {
  int ends[2];
  connect_pair(AF_INET, "127.0.0.1", 132, ends);
  say("works");
}

static void congestion(void) {
  int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  char name[16] = "";
  socklen_t length = sizeof name;
  must(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), "getsockopt");
  long bbr = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3);
  say("%s; bbr %s", name, bbr == 0 ? "works" : strerrorname_np(errno));
}

static void kernel_tls(void) {
  int ends[2];
  connect_pair(AF_INET, "127.0.0.1", 0, ends);
  must(setsockopt(ends[0], IPPROTO_TCP, 31 /* TCP_ULP */, "tls", 4), "TCP_ULP tls");
  say("works");
}

static void raw_ping(int type) {
  int fd = must(socket(AF_INET, type, IPPROTO_ICMP), "socket");
  struct sockaddr_storage where;
  socklen_t length = address(AF_INET, "127.0.0.1", 0, &where);
  struct icmphdr request = {.type = ICMP_ECHO, .checksum = htons(0xf7ff)};
  must(sendto(fd, &request, sizeof request, 0, (void *)&where, length), "send");
  wait_readable(fd, "an answer comes");
  say("works");
}

static void raw_socket(void) { raw_ping(SOCK_RAW); }

static void ping_socket(void) {
  be_nobody();
  raw_ping(SOCK_DGRAM);
}

static void packet_socket(void) {
  int fd = must(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), "socket");
  struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex("lo")};
  must(bind(fd, (void *)&where, sizeof where), "bind");
  int version = 2;
  must(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version), "ring version");
  int ends[2];
  connect_pair(AF_INET, "127.0.0.1", 0, ends);
  wait_readable(fd, "a packet is seen");
  say("works");
}

static void multicast(void) {
  struct sockaddr_storage where;
  socklen_t length = address(AF_INET, "239.1.2.3", 5555, &where);
  int fd = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
  must(bind(fd, (void *)&where, length), "bind");
  struct ip_mreqn group = {.imr_ifindex = if_nametoindex("lo")};
  inet_pton(AF_INET, "239.1.2.3", &group.imr_multiaddr);
  must(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group), "join");
  must(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &group, sizeof group), "interface");
  must(sendto(fd, "x", 1, 0, (void *)&where, length), "send");
  wait_readable(fd, "it comes back");
  say("works");
}

static void abstract_socket(void) {
  int fd = must(socket(AF_UNIX, SOCK_SEQPACKET, 0), "socket");
  struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0fidelity"};
  must(bind(fd, (void *)&name, offsetof(struct sockaddr_un, sun_path) + 9), "bind");
  int pair[2], on = 1;
  must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), "socketpair");
  must(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), "SO_PASSCRED");
  say("works");
}

static void crypto(void) {
  int fd = must(socket(AF_ALG, SOCK_SEQPACKET, 0), "socket");
  struct sockaddr_alg hash = {.salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256"};
  must(bind(fd, (void *)&hash, sizeof hash), "bind sha256");
  int work = must(accept(fd, NULL, NULL), "accept");
  must(write(work, "abc", 3), "write");
  unsigned char sum[32];
  must(read(work, sum, sizeof sum), "read");
  say("%02x%02x%02x%02x", sum[0], sum[1], sum[2], sum[3]);
}

static void machine_sockets(void) {
  int fd = must(socket(AF_VSOCK, SOCK_STREAM, 0), "socket");
  struct sockaddr_vm where = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = 1234};
  must(bind(fd, (void *)&where, sizeof where), "bind");
  say("works");
}

static void families(void) {
  static const struct { int family, type, protocol; const char *name; } list[] = {
      {AF_KEY, SOCK_RAW, 2, "key"},         {AF_XDP, SOCK_RAW, 0, "xdp"},       {AF_NETLINK, SOCK_RAW, 12, "netfilter"},
      {AF_NETLINK, SOCK_RAW, 6, "xfrm"},    {AF_NETLINK, SOCK_RAW, 9, "audit"}, {AF_NETLINK, SOCK_RAW, 15, "uevent"},
      {AF_NETLINK, SOCK_RAW, 16, "generic"}, {AF_TIPC, SOCK_RDM, 0, "tipc"},    {AF_CAN, SOCK_RAW, 1, "can"},
      {AF_BLUETOOTH, SOCK_RAW, 1, "bluetooth"}, {AF_QIPCRTR, SOCK_DGRAM, 0, "qrtr"}, {AF_INET, SOCK_DGRAM, 136, "udplite"},
      {43 /* AF_SMC */, SOCK_STREAM, 0, "smc"}, {AF_PPPOX, SOCK_STREAM, 0, "pppox"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    int fd = socket(list[i].family, list[i].type, list[i].protocol);
    say("%s %s", list[i].name, fd >= 0 ? "works" : strerrorname_np(errno));
    if (fd >= 0) close(fd);
  }
}

static void tunnel(void) {
  struct stat node;
  must(stat("/dev/net/tun", &node), "stat");
  int fd = must(open("/dev/net/tun", O_RDWR), "open");
  struct ifreq request = {.ifr_name = "fid%d", .ifr_flags = IFF_TUN | IFF_NO_PI};
  must(ioctl(fd, TUNSETIFF, &request), "TUNSETIFF");
  say("works, mode %o", node.st_mode & 0777);
}

static void options(void) {
  int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket"), on = 1, forced = 1 << 20, size;
  socklen_t length = sizeof size;
  must(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), "SO_REUSEPORT");
  must(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), "SO_ZEROCOPY");
  must(setsockopt(fd, SOL_SOCKET, SO_MARK, &on, sizeof on), "SO_MARK");
  must(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), "SO_BINDTODEVICE");
  must(setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof on), "IP_TRANSPARENT");
  must(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &on, sizeof on), "TCP_FASTOPEN");
  must(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &forced, sizeof forced), "SO_RCVBUFFORCE");
  must(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, &length), "SO_RCVBUF");
  say("all set, buffer %d", size);
}

const struct probe network[] = {
    {"ipv6-loopback", loopback_six},
    {"ipv4-mapped", mapped_four},
    {"mptcp", multipath},
    {"sctp", sctp},
    {"tcp-congestion", congestion},
    {"ktls", kernel_tls},
    {"raw-socket", raw_socket},
    {"ping-socket", ping_socket},
    {"af-packet", packet_socket},
    {"multicast", multicast},
    {"abstract-socket", abstract_socket},
    {"af-alg", crypto},
    {"vsock", machine_sockets},
    {"socket-families", families},
    {"tun", tunnel},
    {"socket-options", options},
    {0},
};
