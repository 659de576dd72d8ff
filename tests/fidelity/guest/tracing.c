// Probes of eBPF, perf events and io_uring.
#include "probe.h"
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>

static long bpf(int command, union bpf_attr *attributes) { return syscall(SYS_bpf, command, attributes, sizeof *attributes); }

static int make_map(void) {
  union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1};
  return must(bpf(BPF_MAP_CREATE, &map), "map create");
}

static uint64_t map_value(int map) {
  uint32_t key = 0;
  uint64_t value = 0;
  union bpf_attr lookup = {.map_fd = map, .key = (uintptr_t)&key, .value = (uintptr_t)&value};
  must(bpf(BPF_MAP_LOOKUP_ELEM, &lookup), "map lookup");
  return value;
}

static int load(int type, const struct bpf_insn *code, int count) {
  union bpf_attr program = {.prog_type = type, .insns = (uintptr_t)code, .insn_cnt = count, .license = (uintptr_t) "GPL"};
  return must(bpf(BPF_PROG_LOAD, &program), "program load");
}

static void bpf_map(void) {
  int map = make_map();
  uint32_t key = 0;
  uint64_t value = 7;
  union bpf_attr update = {.map_fd = map, .key = (uintptr_t)&key, .value = (uintptr_t)&value};
  must(bpf(BPF_MAP_UPDATE_ELEM, &update), "map update");
  holds(map_value(map) == 7, "the value is there");
  say("works");
}

static void bpf_socket(void) {
  const struct bpf_insn drop_all[] = {{.code = 0xb7, .dst_reg = 0, .imm = 0}, {.code = 0x95}};
  int program = load(BPF_PROG_TYPE_SOCKET_FILTER, drop_all, 2), pair[2];
  must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), "socketpair");
  must(setsockopt(pair[1], SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &program, sizeof program), "attach");
  char byte;
  long sent = send(pair[0], "x", 1, 0), got = recv(pair[1], &byte, 1, 0);
  (void)sent;
  holds(got < 0, "the filter drops");
  say("works");
}

static void bpf_pin(void) {
  int map = make_map();
  union bpf_attr pin = {.pathname = (uintptr_t) "/sys/fs/bpf/fidelity", .bpf_fd = map};
  must(bpf(BPF_OBJ_PIN, &pin), "pin in /sys/fs/bpf");
  must(unlink("/sys/fs/bpf/fidelity"), "unlink");
  say("works");
}

/// Counts calls of getppid by a program on their tracepoint.
static void bpf_tracepoint(void) {
  char text[32];
  must(read_text("/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id", text, sizeof text), "tracepoint");
  int map = make_map();
  const struct bpf_insn count[] = {
      {.code = 0x62, .dst_reg = 10, .off = -4, .imm = 0},                     // *(u32 *)(fp - 4) = 0
      {.code = 0xbf, .dst_reg = 2, .src_reg = 10},                            // r2 = fp
      {.code = 0x07, .dst_reg = 2, .imm = -4},                                // r2 -= 4
      {.code = 0x18, .dst_reg = 1, .src_reg = 1 /* map fd */, .imm = map}, {0}, // r1 = map
      {.code = 0x85, .imm = BPF_FUNC_map_lookup_elem},
      {.code = 0x15, .dst_reg = 0, .off = 2, .imm = 0},                       // not found: end
      {.code = 0xb7, .dst_reg = 1, .imm = 1},
      {.code = 0xdb, .dst_reg = 0, .src_reg = 1},                             // atomic add
      {.code = 0xb7, .dst_reg = 0, .imm = 0},
      {.code = 0x95},
  };
  int program = load(BPF_PROG_TYPE_TRACEPOINT, count, sizeof count / sizeof *count);
  struct perf_event_attr event = {.type = PERF_TYPE_TRACEPOINT, .size = sizeof event, .config = strtoul(text, NULL, 10), .sample_period = 1};
  int fd = must(syscall(SYS_perf_event_open, &event, getpid(), -1, -1, 0), "perf_event_open");
  must(ioctl(fd, PERF_EVENT_IOC_SET_BPF, program), "attach");
  must(ioctl(fd, PERF_EVENT_IOC_ENABLE, 0), "enable");
  for (int i = 0; i < 5; i++) syscall(SYS_getppid);
  say("%lu calls seen", (unsigned long)map_value(map));
}

static void unprivileged_bpf(void) {
  be_nobody();
  union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1};
  long answer = bpf(BPF_MAP_CREATE, &map);
  say("%s", answer >= 0 ? "works" : strerrorname_np(errno));
}

static void perf(int type, int config) {
  struct perf_event_attr event = {.type = type, .size = sizeof event, .config = config, .exclude_kernel = 1};
  long fd = syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
  if (fd < 0) {
    say("%s", strerrorname_np(errno));
    return;
  }
  for (volatile int i = 0; i < 1000000; i++) {}
  uint64_t count = 0;
  must(read(fd, &count, sizeof count), "read");
  say(count > 0 ? "counts" : "counts nothing");
}

static void perf_software(void) { perf(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK); }
static void perf_hardware(void) { perf(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES); }
static void perf_nobody(void) {
  be_nobody();
  perf(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK);
}

static void tracefs(void) {
  must(write_text("/sys/kernel/tracing/trace_marker", "fidelity\n"), "trace_marker");
  static char names[65536];
  must(read_text("/sys/kernel/tracing/available_tracers", names, sizeof names), "available_tracers");
  say("%s", names);
}

/// One request of io_uring; answers its result.
static int submit(struct io_uring_sqe request) {
  struct io_uring_params set = {0};
  int ring = must(syscall(SYS_io_uring_setup, 4, &set), "io_uring_setup");
  char *queue = mmap(NULL, set.sq_off.array + set.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
  char *done = mmap(NULL, set.cq_off.cqes + set.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
  struct io_uring_sqe *entries = mmap(NULL, set.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  must(queue == MAP_FAILED || done == MAP_FAILED || entries == MAP_FAILED ? -1 : 0, "mmap");
  entries[0] = request;
  ((uint32_t *)(queue + set.sq_off.array))[0] = 0;
  __atomic_store_n((uint32_t *)(queue + set.sq_off.tail), 1, __ATOMIC_RELEASE);
  must(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
  return ((struct io_uring_cqe *)(done + set.cq_off.cqes))[0].res;
}

static void uring_nop(void) {
  holds(submit((struct io_uring_sqe){.opcode = IORING_OP_NOP}) == 0, "the request succeeds");
  say("works");
}

static void uring_read(void) {
  int fd = must(open("f", O_RDWR | O_CREAT, 0644), "open");
  must(write(fd, "hello", 5), "write");
  char buffer[8];
  int got = submit((struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)buffer, .len = 8});
  say(got == 5 ? "works" : "%d", got);
}

const struct probe tracing[] = {
    {"bpf-map", bpf_map},
    {"bpf-socket", bpf_socket},
    {"bpf-pin", bpf_pin},
    {"bpf-tracepoint", bpf_tracepoint},
    {"bpf-user", unprivileged_bpf},
    {"perf-software", perf_software},
    {"perf-hardware", perf_hardware},
    {"perf-user", perf_nobody},
    {"tracefs", tracefs},
    {"io-uring-nop", uring_nop},
    {"io-uring-read", uring_read},
    {0},
};
