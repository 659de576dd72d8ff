/*
 * Tries to get out of a view, one way at a time: `escape NAME ARGUMENT...` prints `NAME refused REASON` or
 * `NAME done`, and whatever it could read of what is hidden. Written for tests/linux/views.test.ts, which runs
 * each try twice: in a sealed view, where it must be refused, and where root may do it, where it must work.
 *
 * SECRET is the absolute path of the hidden file, FOLDER the hidden folder above it, PARENT the folder above that.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECRET "/srv/shop/data/secret.txt"
#define FOLDER "/srv/shop/data"
#define PARENT "/srv/shop"
#define PLACE "/opt/place"

struct handle { unsigned bytes; int type; unsigned char data[128]; };

static int done = 0, reason = 0;
static void good(void) { done = 1; }
static void bad(void) { if (!reason) reason = errno; }
static int check(long result) { if (result < 0) bad(); else good(); return result >= 0; }

/* Prints a file, if it can be read. */
static int show_at(int folder, const char *path) {
  char text[200];
  int file = openat(folder, path, O_RDONLY | O_NONBLOCK);
  if (file < 0) { bad(); return 0; }
  ssize_t length = read(file, text, sizeof text);
  close(file);
  if (length <= 0) { if (length < 0) bad(); return 0; }
  printf("read %.*s\n", (int)length, text);
  good();
  return 1;
}
static int show(const char *path) { return show_at(AT_FDCWD, path); }

/* Ways around the mounts. */
static void try_umount(void) {
  umount2(FOLDER, 0); umount2(FOLDER, MNT_DETACH); umount2(PARENT, MNT_DETACH);
  mount(NULL, FOLDER, NULL, MS_REMOUNT | MS_BIND, NULL);
  struct { uint64_t set, clear, propagation, ids; } none = {0, 1 | 2 | 4 | 8, 0, 0};
  syscall(SYS_mount_setattr, AT_FDCWD, FOLDER, 0, &none, sizeof none);
  mount(FOLDER, PLACE, NULL, MS_MOVE, NULL);
  show(SECRET);
}
static void try_umount_in_copies(void) {
  /* In a copy of the tree, in a namespace of its own, and in one more user namespace. */
  mount("/srv", PLACE, NULL, MS_BIND | MS_REC, NULL);
  umount2(PLACE "/shop/data", MNT_DETACH);
  show(PLACE "/shop/data/secret.txt");
  umount2(PLACE, MNT_DETACH);
  if (!unshare(CLONE_NEWNS)) { umount2(FOLDER, MNT_DETACH); show(SECRET); }
  if (!unshare(CLONE_NEWUSER | CLONE_NEWNS)) { umount2(FOLDER, MNT_DETACH); umount2("/", MNT_DETACH); show(SECRET); }
}
static void try_bind(void) {
  if (!mount("/srv", PLACE, NULL, MS_BIND, NULL)) { show(PLACE "/shop/data/secret.txt"); umount2(PLACE, MNT_DETACH); } else bad();
  if (!mount("/", PLACE, NULL, MS_BIND, NULL)) { show(PLACE SECRET); umount2(PLACE, MNT_DETACH); } else bad();
  int tree = syscall(SYS_open_tree, AT_FDCWD, "/srv", 1);
  if (tree >= 0) show_at(tree, "shop/data/secret.txt"); else bad();
}
static void try_overlay(void) {
  static const char *const lower[][2] = {{"/", SECRET}, {"/srv", "/shop/data/secret.txt"}, {PARENT, "/data/secret.txt"}};
  for (int i = 0; i < 3; i++) {
    char options[200], path[300];
    snprintf(options, sizeof options, "lowerdir=%s:/opt/empty", lower[i][0]);
    if (mount("overlay", PLACE, "overlay", 0, options)) { bad(); continue; }
    snprintf(path, sizeof path, PLACE "%s", lower[i][1]);
    show(path);
    umount2(PLACE, MNT_DETACH);
  }
}
static void try_rename(void) {
  /* The cover must not stay behind when what is above it moves. */
  rename(FOLDER, PARENT "/moved"); show(PARENT "/moved/secret.txt"); rename(PARENT "/moved", FOLDER);
  rename(PARENT, "/srv/moved"); show("/srv/moved/data/secret.txt"); rename("/srv/moved", PARENT);
  rmdir(FOLDER); show(SECRET);
  if (!done) bad();
}
static void try_pivot(void) {
  if (unshare(CLONE_NEWNS)) { bad(); return; }
  mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  if (!mount("/home", "/home", NULL, MS_BIND, NULL) && !chdir("/home") && !syscall(SYS_pivot_root, ".", ".")) {
    umount2(".", MNT_DETACH);
    show(SECRET); show("srv/shop/data/secret.txt");
  } else bad();
}
static void try_chroot(void) {
  /* Up and up from a folder outside of the new root, as far as it goes: below the root lies the initramfs. */
  int top = open("/", O_RDONLY);
  if (chroot("/opt")) { bad(); return; }
  if (fchdir(top)) { bad(); return; }
  for (int i = 0; i < 50; i++) if (chdir("..")) break;
  show("srv/shop/data/secret.txt"); show("init"); show("pins"); show("module-disk/modules.dep");
  if (!done) { errno = EXDEV; bad(); }
}
static void try_new_root_mount(void) {
  /* Everything that a file system could be made of the same disk by. */
  mknod("/opt/disk", S_IFBLK | 0600, makedev(atoi(getenv("DISK_MAJOR")), 0));
  static const char *const sources[] = {"/dev/vda", "/opt/disk", "/dev/root"};
  for (int i = 0; i < 3; i++) {
    if (mount(sources[i], PLACE, "ext4", 0, NULL)) { bad(); continue; }
    show(PLACE SECRET);
    umount2(PLACE, MNT_DETACH);
  }
  unlink("/opt/disk");
}

/* Devices and the kernel. */
static void try_device(void) {
  char block[512];
  mkdir("/opt/nodes", 0755);
  mount("tmpfs", "/opt/nodes", "tmpfs", 0, NULL);
  static const char *const places[] = {"/opt/disk", "/opt/nodes/disk", "/dev/disk-copy"};
  for (int i = 0; i < 3; i++) {
    if (mknod(places[i], S_IFBLK | 0600, makedev(atoi(getenv("DISK_MAJOR")), 0))) bad();
    int disk = open(places[i], O_RDONLY);
    if (disk < 0) { bad(); continue; }
    if (pread(disk, block, sizeof block, 1024) == sizeof block) good();
    close(disk);
    unlink(places[i]);
  }
  umount2("/opt/nodes", MNT_DETACH);
  /* A node that lies in the image already. */
  int left = open("/opt/left-node", O_RDONLY);
  check(left);
}
static void try_kernel_files(void) {
  static const char *const kinds[] = {"debugfs", "tracefs", "securityfs", "bpf", "configfs", "devtmpfs", "pstore"};
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (mount(kinds[i], PLACE, kinds[i], 0, NULL)) { bad(); continue; }
    good(); printf("mounted %s\n", kinds[i]);
    umount2(PLACE, MNT_DETACH);
  }
}
static void try_module(const char *file) {
  int module = open(file, O_RDONLY);
  if (module < 0) { bad(); return; }
  if (syscall(SYS_finit_module, module, "", 4) && errno != EEXIST) bad(); else good();
  syscall(SYS_delete_module, "dummy", O_NONBLOCK);
}
static void try_bpf(void) {
  struct bpf_insn program[] = {{.code = 0xb7}, {.code = 0x95}};
  union bpf_attr load = {.prog_type = BPF_PROG_TYPE_TRACEPOINT, .insn_cnt = 2, .insns = (uintptr_t)program, .license = (uintptr_t)"GPL"};
  union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  check(syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load));
  check(syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
}
static void try_memory(void) {
  char byte;
  static const char *const files[] = {"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port"};
  mknod("/opt/mem", S_IFCHR | 0600, makedev(1, 1));
  for (int i = 0; i < 5; i++) {
    int file = open(i < 4 ? files[i] : "/opt/mem", O_RDONLY);
    if (file < 0) { bad(); continue; }
    if (read(file, &byte, 1) == 1) good();
    close(file);
  }
  unlink("/opt/mem");
}
static void parse(const char *text, struct handle *handle) {
  unsigned value;
  handle->type = atoi(text);
  text = strchr(text, ':') + 1;
  handle->bytes = strlen(text) / 2;
  for (unsigned i = 0; i < handle->bytes; i++) { sscanf(text + 2 * i, "%2x", &value); handle->data[i] = value; }
}
static void try_handle(const char *text) {
  struct handle handle, root = {8, 1, {2}};
  static const char *const mounts[] = {"/", "/srv", "/home", "/tmp", "/dev/null"};
  parse(text, &handle);
  for (int i = 0; i < 5; i++) {
    int mount = open(mounts[i], O_RDONLY);
    int file = syscall(SYS_open_by_handle_at, mount, &handle, O_RDONLY);
    if (file < 0) bad(); else show_at(AT_FDCWD, ({ static char p[40]; sprintf(p, "/proc/self/fd/%d", file); p; }));
    int top = syscall(SYS_open_by_handle_at, mount, &root, O_RDONLY | O_DIRECTORY);
    if (top < 0) bad(); else show_at(top, SECRET + 1);
  }
}
static void print_handle(void) {
  struct handle handle = {.bytes = 128};
  int id;
  if (syscall(SYS_name_to_handle_at, AT_FDCWD, SECRET, &handle, &id, 0)) { perror("handle"); exit(1); }
  printf("%d:", handle.type);
  for (unsigned i = 0; i < handle.bytes; i++) printf("%02x", handle.data[i]);
  printf("\n");
}
static void try_key(const char *serial) {
  char text[200] = "";
  long length = syscall(SYS_keyctl, 11, atoi(serial), text, sizeof text - 1);
  if (length > 0) { good(); printf("read %s\n", text); } else bad();
  if (syscall(SYS_keyctl, 8, atoi(serial), -3) >= 0 && syscall(SYS_keyctl, 11, atoi(serial), text, sizeof text - 1) > 0) { good(); printf("read %s\n", text); } else bad();
  FILE *keys = fopen("/proc/keys", "r");
  char line[300];
  while (keys && fgets(line, sizeof line, keys)) if (strstr(line, "outside-key")) { good(); printf("listed\n"); }
}
static void try_sysctl(void) {
  static const char *const files[] = {"/proc/sys/kernel/modprobe", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
    "/proc/sys/vm/drop_caches", "/proc/sys/kernel/ns_last_pid", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/block/vda/queue/read_ahead_kb"};
  const char *const only = getenv("ONLY_OPEN");
  for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
    int file = open(files[i], O_WRONLY);
    if (file < 0) { bad(); continue; }
    if (only || write(file, "/opt/evil", 9) > 0) { good(); printf("wrote %s\n", files[i]); } else bad();
    close(file);
  }
}
static void try_proc(const char *pid) {
  char path[300];
  mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND, NULL);
  umount2("/proc", MNT_DETACH);
  if (mount("proc", PLACE, "proc", 0, NULL)) bad();
  snprintf(path, sizeof path, PLACE "/%s/root" SECRET, pid); show(path);
  snprintf(path, sizeof path, "/proc/%s/root" SECRET, pid); show(path);
  int trigger = open(PLACE "/sysrq-trigger", O_WRONLY);
  if (trigger >= 0) { good(); printf("sysrq\n"); } else bad();
  umount2(PLACE, MNT_DETACH);
}

/* Processes and sockets outside. */
static void try_proc_root(void) {
  char path[400];
  struct dirent *entry;
  DIR *proc = opendir("/proc");
  while (proc && (entry = readdir(proc))) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    snprintf(path, sizeof path, "/proc/%s/root" SECRET, entry->d_name); show(path);
    snprintf(path, sizeof path, "/proc/%s/cwd" SECRET, entry->d_name); show(path);
  }
  errno = EACCES; bad();
}
static void try_nsenter(const char *pid) {
  char path[100];
  static const char *const names[] = {"mnt", "user", "pid", "net", "ipc", "uts", "cgroup"};
  const char *const pids[] = {"1", pid};
  for (int i = 0; i < 14; i++) {
    snprintf(path, sizeof path, "/proc/%s/ns/%s", pids[i / 7], names[i % 7]);
    int space = open(path, O_RDONLY);
    if (space < 0) { bad(); continue; }
    pid_t child = fork();
    if (!child) _exit(setns(space, 0) ? 1 : show(SECRET) ? fflush(stdout), 0 : 2);
    int status; waitpid(child, &status, 0);
    if (status == 0) good();
  }
}
static void try_ptrace(const char *pid) {
  const int target = atoi(pid), pids[] = {target, 1};
  char text[16];
  for (int i = 0; i < 2; i++) {
    if (ptrace(PTRACE_SEIZE, pids[i], 0, 0)) bad(); else { good(); ptrace(PTRACE_DETACH, pids[i], 0, 0); }
    struct iovec local = {text, sizeof text}, remote = {(void *)0x400000, sizeof text};
    if (syscall(SYS_process_vm_readv, pids[i], &local, 1, &remote, 1, 0) < 0) bad(); else good();
    int process = syscall(SYS_pidfd_open, pids[i], 0);
    if (process < 0) bad(); else if (syscall(SYS_pidfd_getfd, process, 0, 0) < 0) bad(); else good();
  }
}
static void try_signal(const char *pid) {
  check(kill(atoi(pid), 0));
  if (getenv("ONLY_OPEN")) return;
  /* Process 1 here must not mind; the agent must not notice. */
  kill(1, SIGKILL); kill(1, SIGSTOP); kill(1, SIGTERM);
}
static void try_abstract(void) {
  char text[200];
  struct sockaddr_un name = {AF_UNIX, "\0outside-socket"};
  int client = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(client, (void *)&name, sizeof(sa_family_t) + 1 + 14)) { bad(); return; }
  ssize_t length = read(client, text, sizeof text);
  if (length > 0) { printf("read %.*s\n", (int)length, text); good(); }
}
static void serve_abstract(const char *text) {
  struct sockaddr_un name = {AF_UNIX, "\0outside-socket"};
  int server = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(server, (void *)&name, sizeof(sa_family_t) + 1 + 14) || listen(server, 5)) { perror("listen"); exit(1); }
  printf("listening\n"); fflush(stdout);
  for (;;) { int client = accept(server, NULL, NULL); if (write(client, text, strlen(text)) < 0) perror("write"); close(client); }
}

/* Descriptors that came with the start: none but the standard ones, and no way up from any. */
static void try_descriptors(void) {
  char path[300], target[300];
  struct dirent *entry;
  DIR *folder = opendir("/proc/self/fd");
  while (folder && (entry = readdir(folder))) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (atoi(entry->d_name) != dirfd(folder)) printf("descriptor %s %.*s\n", entry->d_name, (int)(length > 0 ? length : 0), target);
    strcat(path, "/../../../.." SECRET); show(path);
  }
  for (int fd = 0; fd < 1024; fd++) { show_at(fd, "../../../.." SECRET); show_at(fd, SECRET + 1); }
}

/* A FUSE mount that never answers, and one over the hidden folder. */
static int fuse_at(const char *place) {
  char options[100];
  int device = open("/dev/fuse", O_RDWR);
  if (device < 0) return -1;
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
  return mount("never", place, "fuse", 0, options) ? -1 : device;
}
static void try_fuse(void) {
  int device = fuse_at(FOLDER);
  if (device < 0) bad();
  close(device);
  umount2(FOLDER, MNT_DETACH);
  show(SECRET);
}
static void hang(const char *place) {
  if (fuse_at(place) < 0) { perror("fuse"); exit(1); }
  printf("mounted\n"); fflush(stdout);
  for (;;) pause();
}

/* Looks into every process that appears, from the moment it has a number: `lurk SECONDS`. */
static void lurk(const char *seconds) {
  static char seen[1 << 22];
  static const char *const ways[] = {"root" SECRET, "cwd" SECRET, "fd/3/../../../.." SECRET, "fd/0/../../.." SECRET};
  char path[400], target[300];
  long looked = 0;
  time_t end = time(NULL) + atoi(seconds);
  DIR *proc = opendir("/proc");
  while (time(NULL) < end && access("/opt/stop-lurking", F_OK)) {
    struct dirent *entry;
    rewinddir(proc);
    while ((entry = readdir(proc))) {
      int pid = atoi(entry->d_name);
      if (pid <= 1 || pid == getpid() || pid >= (int)sizeof seen || seen[pid]) continue;
      seen[pid] = 1; looked++;
      for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 4; i++) {
          snprintf(path, sizeof path, "/proc/%d/%s", pid, ways[i]);
          show(path);
        }
        for (int fd = 0; fd < 110; fd += round ? 100 : 1) {
          snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
          ssize_t length = readlink(path, target, sizeof target - 1);
          if (length > 0 && fd > 2) {
            target[length] = 0;
            if (strncmp(target, "pipe:", 5) && strncmp(target, "/proc", 5) && strncmp(target, "/usr", 4) && strncmp(target, "/etc", 4) && strncmp(target, "/lib", 4))
              printf("caught %d descriptor %d %s\n", pid, fd, target);
          }
        }
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length > 0) { target[length] = 0; if (!strncmp(target, "/init", 5)) printf("caught %d as the agent\n", pid); }
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        if (length < 0 && !access(path, R_OK)) {
          int memory = open(path, O_RDONLY);
          char text[4096]; ssize_t got = memory >= 0 ? read(memory, text, sizeof text - 1) : 0;
          if (memory >= 0) close(memory);
          if (got > 0) { text[got] = 0; if (strstr(text, "TERM=linux")) printf("caught %d environment of the agent\n", pid); }
        }
        if (length > 0) break;
      }
    }
  }
  printf("looked at %ld\n", looked);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "", *argument = argc > 2 ? argv[2] : "";
  struct { const char *name; void (*without)(void); void (*with)(const char *); } tries[] = {
    {"umount", try_umount, 0}, {"umount-in-copies", try_umount_in_copies, 0}, {"bind", try_bind, 0},
    {"overlay", try_overlay, 0}, {"rename", try_rename, 0}, {"pivot", try_pivot, 0}, {"chroot", try_chroot, 0},
    {"new-root-mount", try_new_root_mount, 0}, {"device", try_device, 0}, {"kernel-files", try_kernel_files, 0},
    {"module", 0, try_module}, {"bpf", try_bpf, 0}, {"memory", try_memory, 0}, {"handle", 0, try_handle},
    {"key", 0, try_key}, {"sysctl", try_sysctl, 0}, {"proc", 0, try_proc}, {"proc-root", try_proc_root, 0},
    {"nsenter", 0, try_nsenter}, {"ptrace", 0, try_ptrace}, {"signal", 0, try_signal}, {"abstract", try_abstract, 0},
    {"descriptors", try_descriptors, 0}, {"fuse", try_fuse, 0},
  };
  setvbuf(stdout, NULL, _IOLBF, 0);
  mkdir(PLACE, 0755); mkdir("/opt/empty", 0755);
  if (!strcmp(name, "print-handle")) { print_handle(); return 0; }
  if (!strcmp(name, "add-key")) {
    long key = syscall(SYS_add_key, "user", "outside-key", argument, strlen(argument), -4);
    syscall(SYS_keyctl, 5, key, 0x3f3f0000);
    printf("%ld\n", key);
    return key < 0;
  }
  if (!strcmp(name, "serve-abstract")) serve_abstract(argument);
  if (!strcmp(name, "hang")) hang(argument);
  if (!strcmp(name, "lurk")) { lurk(argument); return 0; }
  for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
    if (strcmp(name, tries[i].name)) continue;
    alarm(60);
    if (tries[i].with) tries[i].with(argument); else tries[i].without();
    if (done) printf("%s done\n", name); else printf("%s refused %s\n", name, reason ? strerror(reason) : "nothing to see");
    return 0;
  }
  fprintf(stderr, "no such try: %s\n", name);
  return 2;
}
