// Probes of processes: what a command is given (limits, capabilities, groups), and what it may do.
#include "probe.h"
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <poll.h>
#include <pty.h>
#include <sys/io.h>
#include <sys/klog.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <termios.h>

static void limits(void) {
  static const char *const names[] = {"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock",
                                      "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"};
  char text[32] = "";
  read_text("/proc/sys/kernel/threads-max", text, sizeof text);
  rlim_t threads = strtoul(text, NULL, 10) / 2, memory = sysconf(_SC_PHYS_PAGES) * 4096UL;
  for (int i = 0; i < 16; i++) {
    struct rlimit64 limit;
    must(prlimit64(0, i, NULL, &limit), names[i]);
    char values[2][32];
    rlim_t both[2] = {limit.rlim_cur, limit.rlim_max};
    for (int k = 0; k < 2; k++) {
      if (both[k] == RLIM64_INFINITY) strcpy(values[k], "unlimited");
      // Follows from the size of memory, to a page.
      else if (both[k] == threads) strcpy(values[k], "threads-max/2");
      else if (i == RLIMIT_MEMLOCK && labs((long)(both[k] - memory / 8)) < (long)memory / 1000) strcpy(values[k], "memory/8");
      else snprintf(values[k], sizeof values[k], "%lu", both[k]);
    }
    say("%s %s %s", names[i], values[0], values[1]);
  }
}

static void raise_limits(void) {
  struct rlimit64 more = {1048576, 1048576};
  must(prlimit64(0, RLIMIT_NOFILE, &more, NULL), "raise NOFILE");
  must(setpriority(PRIO_PROCESS, 0, -10), "nice -10");
  must(write_text("/proc/self/oom_score_adj", "-500"), "lower oom_score_adj");
  say("works");
}

static void status_lines(const char *const *wanted) {
  static char text[16384];
  must(read_text("/proc/self/status", text, sizeof text), "read");
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    for (const char *const *one = wanted; *one; one++)
      if (!strncmp(line, *one, strlen(*one))) {
        for (char *c = line; *c; c++)
          if (*c == '\t') *c = ' ';
        say("%s", line);
      }
}

static void capabilities(void) {
  status_lines((const char *const[]){"Cap", "NoNewPrivs:", "Seccomp:", "Uid:", "Gid:", NULL});
  say("securebits %d, keep caps %d, dumpable %d", prctl(PR_GET_SECUREBITS), prctl(PR_GET_KEEPCAPS), prctl(PR_GET_DUMPABLE));
}

static void signals(void) {
  status_lines((const char *const[]){"SigBlk:", "SigIgn:", "SigCgt:", NULL});
}

static void inherited(void) {
  char score[32] = "", adjust[32] = "", root[256] = "";
  read_text("/proc/self/oom_score_adj", adjust, sizeof adjust);
  read_text("/proc/self/timerslack_ns", score, sizeof score);
  long length = readlink("/proc/self/root", root, sizeof root - 1);
  mode_t mask = umask(0);
  int open_files = 0;
  for (int fd = 3; fd < 1024; fd++) open_files += fcntl(fd, F_GETFD) >= 0;
  say("umask %04o, oom_score_adj %s, timer slack %s, root %.*s, nice %d, policy %d, %d files inherited", mask, adjust,
      score, (int)length, root, getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), open_files);
}

static void processors(void) {
  cpu_set_t set;
  must(sched_getaffinity(0, sizeof set, &set), "affinity");
  say("%d of %ld online, %ld configured", CPU_COUNT(&set), sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF));
}

static void scheduling(void) {
  struct sched_param fifo = {.sched_priority = 10};
  must(sched_setscheduler(0, SCHED_FIFO, &fifo), "SCHED_FIFO");
  must(sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}), "SCHED_OTHER");
  struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; }
      deadline = {.size = 48, .policy = 6, .runtime = 1000000, .deadline = 10000000, .period = 10000000};
  must(syscall(SYS_sched_setattr, 0, &deadline, 0), "SCHED_DEADLINE");
  must(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 4)), "ioprio");
  say("works");
}

static volatile int shared = 41;

static void tracing_child(void) {
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    _exit(shared);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  must(ptrace(PTRACE_POKEDATA, child, &shared, 42), "poke");
  struct user_regs_struct registers;
  must(ptrace(PTRACE_GETREGS, child, NULL, &registers), "registers");
  must(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), "step");
  must(waitpid(child, &status, 0), "waitpid");
  int seen = 0;
  struct iovec local = {&seen, sizeof seen}, remote = {(void *)&shared, sizeof shared};
  must(process_vm_readv(child, &local, 1, &remote, 1, 0), "process_vm_readv");
  must(ptrace(PTRACE_CONT, child, NULL, NULL), "continue");
  must(waitpid(child, &status, 0), "waitpid");
  holds(seen == 42 && WEXITSTATUS(status) == 42, "the written value is seen");
  say("works");
}

static void descriptors(void) {
  pid_t child = must(fork(), "fork");
  if (child == 0) pause();
  int fd = must(syscall(SYS_pidfd_open, child, 0), "pidfd_open");
  must(syscall(SYS_pidfd_getfd, fd, 0, 0), "pidfd_getfd");
  must(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0), "pidfd_send_signal");
  struct pollfd one = {.fd = fd, .events = POLLIN};
  holds(poll(&one, 1, 5000) == 1, "its end is seen");
  say("works");
}

static void subreaper(void) {
  must(prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    if (fork() == 0) {
      usleep(100000);
      _exit(7);
    }
    _exit(0);
  }
  int status, sevens = 0;
  while (wait(&status) > 0) sevens += WEXITSTATUS(status) == 7;
  say(sevens == 1 ? "works" : "the orphan went elsewhere");
}

static void orphan(void) {
  // Whose child does an orphan become? On a machine, that of process 1 or of what stands in for it.
  int ends[2];
  must(pipe(ends), "pipe");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    if (fork() == 0) {
      pid_t before = getppid();
      for (int i = 0; i < 500 && getppid() == before; i++) usleep(10000);
      int parent = getppid();
      must(write(ends[1], &parent, sizeof parent), "write");
      _exit(0);
    }
    usleep(50000);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  int parent;
  must(read(ends[0], &parent, sizeof parent), "read");
  say("process %d", parent);
}

static void install(const struct sock_filter *code, size_t count, unsigned flags, long *listener) {
  struct sock_fprog program = {.len = count, .filter = (struct sock_filter *)code};
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
  long answer = must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program), "seccomp");
  if (listener) *listener = answer;
}

#define ON_GETPPID(action)                                                              \
  {                                                                                     \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, action), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) \
  }

static void seccomp_filter(void) {
  const struct sock_filter code[] = ON_GETPPID(SECCOMP_RET_ERRNO | EXDEV);
  install(code, 4, 0, NULL);
  holds(syscall(SYS_getppid) == -1 && errno == EXDEV, "the filter answers");
  say("works");
}

static void seccomp_listener(void) {
  const struct sock_filter code[] = ON_GETPPID(SECCOMP_RET_USER_NOTIF);
  long listener;
  install(code, 4, SECCOMP_FILTER_FLAG_NEW_LISTENER, &listener);
  pid_t child = must(fork(), "fork");
  if (child == 0) _exit(syscall(SYS_getppid) == 77 ? 0 : 1);
  struct seccomp_notif asked = {0};
  must(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked), "receive");
  struct seccomp_notif_resp answer = {.id = asked.id, .val = 77};
  must(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer), "answer");
  int status;
  waitpid(child, &status, 0);
  say(status == 0 ? "works" : "the answer did not arrive");
}

static void landlock(void) {
  long version = must(syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION), "version");
  struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
  int fd = must(syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0), "create");
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
  must(syscall(SYS_landlock_restrict_self, fd, 0), "restrict");
  holds(open("/etc/passwd", O_RDONLY) < 0 && errno == EACCES, "reading is refused");
  say("version %ld", version);
}

static void keyrings(void) {
  long key = must(syscall(SYS_add_key, "user", "fidelity", "secret", 6, KEY_SPEC_USER_KEYRING), "add_key");
  char text[16];
  must(syscall(SYS_keyctl, KEYCTL_SETPERM, key, 0x3f3f0000), "setperm");
  must(syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text), "read");
  must(syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_USER_KEYRING), "unlink");
  must(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, "fidelity"), "join session");
  say("works");
}

static void session_keyring(void) {
  char text[128] = "";
  must(syscall(SYS_keyctl, KEYCTL_DESCRIBE, KEY_SPEC_SESSION_KEYRING, text, sizeof text), "describe");
  say("%s", strrchr(text, ';') ? strrchr(text, ';') + 1 : text);
}

static void terminals(void) {
  int master, slave;
  char name[64];
  must(openpty(&master, &slave, name, NULL, NULL), "openpty");
  struct stat node, maker;
  must(stat(name, &node), "stat");
  must(stat("/dev/ptmx", &maker), "stat /dev/ptmx");
  struct winsize size = {.ws_row = 40, .ws_col = 100};
  must(ioctl(master, TIOCSWINSZ, &size), "size");
  must(write(master, "x", 1), "write");
  say("group %d, mode %o, ptmx %o", (int)node.st_gid, node.st_mode & 0777, maker.st_mode & 0777);
}

static void ports(void) {
  must(iopl(3), "iopl");
  must(ioperm(0x80, 1, 1), "ioperm");
  int mem = open("/dev/mem", O_RDONLY);
  int kcore = open("/proc/kcore", O_RDONLY);
  say("iopl works, /dev/mem %s, /proc/kcore %s", mem >= 0 ? "opens" : strerrorname_np(errno),
      kcore >= 0 ? "opens" : strerrorname_np(errno));
}

static void modules(void) {
  char garbage[64] = "no module";
  long answer = syscall(SYS_init_module, garbage, sizeof garbage, "");
  say("garbage: %s", answer == 0 ? "loaded" : strerrorname_np(errno));
}

static void kernel_log(void) {
  static char text[1 << 20];
  must(klogctl(3, text, sizeof text - 1), "read all");
  char *begin = strstr(text, "Linux version ");
  say("%.20s...", begin ? begin : "no first line");
}

static void kernel_log_device(void) {
  int fd = must(open("/dev/kmsg", O_RDWR | O_NONBLOCK), "open");
  must(lseek(fd, 0, SEEK_END), "seek");
  must(write(fd, "<7>fidelity\n", 12), "write");
  char text[8192];
  must(read(fd, text, sizeof text), "read");
  struct stat node;
  must(stat("/dev/kmsg", &node), "stat");
  say("works, mode %o", node.st_mode & 0777);
}

static void privileged(void) {
  long kexec = syscall(SYS_kexec_load, 0, 0, NULL, 0);
  say("kexec_load %s", kexec == 0 ? "works" : strerrorname_np(errno));
  long hang = vhangup();
  say("vhangup %s", hang == 0 ? "works" : strerrorname_np(errno));
  long name = setdomainname("(none)", 6);
  say("setdomainname %s", name == 0 ? "works" : strerrorname_np(errno));
  long sethost = 0;
  char host[65];
  gethostname(host, sizeof host);
  sethost = sethostname(host, strlen(host));
  say("sethostname %s", sethost == 0 ? "works" : strerrorname_np(errno));
  long cad = reboot(RB_DISABLE_CAD);
  say("reboot(CAD off) %s", cad == 0 ? "works" : strerrorname_np(errno));
}

const struct probe processes[] = {
    {"limits", limits},
    {"raise-limits", raise_limits},
    {"capabilities", capabilities},
    {"signals", signals},
    {"inherited", inherited},
    {"processors", processors},
    {"scheduling", scheduling},
    {"ptrace", tracing_child},
    {"pidfd", descriptors},
    {"subreaper", subreaper},
    {"orphan", orphan},
    {"seccomp", seccomp_filter},
    {"seccomp-notify", seccomp_listener},
    {"landlock", landlock},
    {"keyrings", keyrings},
    {"session-keyring", session_keyring},
    {"pty", terminals},
    {"io-ports", ports},
    {"init-module", modules},
    {"dmesg", kernel_log},
    {"kmsg", kernel_log_device},
    {"privileged", privileged},
    {0},
};
