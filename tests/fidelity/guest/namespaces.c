// Probes of namespaces, mounts and control groups.
#include "probe.h"
#include <dirent.h>
#include <linux/mount.h>

#define TRY(call) must(call, #call)

static void map_ids(uid_t uid, gid_t gid) {
  char line[64];
  must(write_text("/proc/self/setgroups", "deny"), "setgroups");
  snprintf(line, sizeof line, "0 %u 1", uid);
  must(write_text("/proc/self/uid_map", line), "uid_map");
  snprintf(line, sizeof line, "0 %u 1", gid);
  must(write_text("/proc/self/gid_map", line), "gid_map");
}

static void user_namespace(void) {
  be_nobody();
  must(prctl(PR_SET_DUMPABLE, 1), "dumpable");
  must(unshare(CLONE_NEWUSER), "unshare");
  map_ids(65534, 65534);
  holds(getuid() == 0, "uid is 0 inside");
  say("works");
}

static void all_namespaces(void) {
  be_nobody();
  must(prctl(PR_SET_DUMPABLE, 1), "dumpable");
  must(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWTIME), "unshare");
  map_ids(65534, 65534);
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    must(getpid() == 1 ? 0 : -1, "pid 1");
    must(mount("proc", "/proc", "proc", 0, NULL), "mount proc");
    must(mount("tmpfs", "/mnt", "tmpfs", 0, NULL), "mount tmpfs");
    must(sethostname("inside", 6), "sethostname");
    _exit(0);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  if (status == 0) say("works");
}

static void root_namespaces(void) {
  must(unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP), "unshare");
  say("works");
}

static void mounts(void) {
  must(unshare(CLONE_NEWNS), "unshare");
  TRY(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  TRY(mkdir("t", 0755));
  TRY(mount("tmpfs", "t", "tmpfs", 0, "size=1m"));
  TRY(mkdir("t/a", 0755)), TRY(mkdir("t/b", 0755));
  TRY(mount("t/a", "t/b", NULL, MS_BIND, NULL));
  TRY(mount("", "t/b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
  holds(mkdir("t/b/x", 0755) < 0 && errno == EROFS, "a read-only bind is read-only");
  TRY(umount2("t/b", 0));
  TRY(umount2("t", MNT_DETACH));
  say("tmpfs, bind, remount, umount");
}

static void new_mount_calls(void) {
  must(unshare(CLONE_NEWNS), "unshare");
  TRY(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  int context = must(syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
  must(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "1m", 0), "fsconfig");
  must(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "create");
  int fd = must(syscall(SYS_fsmount, context, 0, 0), "fsmount");
  TRY(mkdir("t", 0755));
  must(syscall(SYS_move_mount, fd, "", AT_FDCWD, "t", MOVE_MOUNT_F_EMPTY_PATH), "move_mount");
  say("works");
}

static void idmapped(void) {
  must(unshare(CLONE_NEWNS), "unshare");
  TRY(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  TRY(mkdir("from", 0755)), TRY(mkdir("to", 0755));
  TRY(mknod("from/f", S_IFREG | 0644, 0));
  int ends[2];
  TRY(pipe(ends));
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    unshare(CLONE_NEWUSER);
    if (write(ends[1], "x", 1)) pause();
  }
  char byte, path[64];
  TRY(read(ends[0], &byte, 1));
  snprintf(path, sizeof path, "/proc/%d/uid_map", child);
  must(write_text(path, "0 100000 65536"), "uid_map");
  snprintf(path, sizeof path, "/proc/%d/gid_map", child);
  must(write_text(path, "0 100000 65536"), "gid_map");
  snprintf(path, sizeof path, "/proc/%d/ns/user", child);
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = must(open(path, O_RDONLY), "open namespace")};
  int tree = must(syscall(SYS_open_tree, AT_FDCWD, "from", OPEN_TREE_CLONE), "open_tree");
  long set = syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
  int error = errno;
  kill(child, SIGKILL);
  errno = error;
  must(set, "mount_setattr");
  must(syscall(SYS_move_mount, tree, "", AT_FDCWD, "to", MOVE_MOUNT_F_EMPTY_PATH), "move_mount");
  struct stat found;
  TRY(stat("to/f", &found));
  say("uid %d", (int)found.st_uid);
}

static void overlay(void) {
  must(unshare(CLONE_NEWNS), "unshare");
  TRY(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  TRY(mkdir("l", 0755)), TRY(mkdir("u", 0755)), TRY(mkdir("w", 0755)), TRY(mkdir("m", 0755));
  TRY(mknod("l/f", S_IFREG | 0644, 0));
  TRY(mount("overlay", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w"));
  TRY(unlink("m/f"));
  struct stat whiteout;
  TRY(lstat("u/f", &whiteout));
  holds(S_ISCHR(whiteout.st_mode), "a removed file leaves a whiteout");
  say("works");
}

static void pivot(void) {
  must(unshare(CLONE_NEWNS), "unshare");
  TRY(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  TRY(mkdir("new", 0755));
  TRY(mount("tmpfs", "new", "tmpfs", 0, NULL));
  TRY(chdir("new"));
  must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
  TRY(umount2(".", MNT_DETACH));
  say("works");
}

static void propagation(void) {
  static char text[65536];
  static const char *const paths[] = {"/", "/dev", "/proc", "/run", "/sys"};
  for (int i = 0; i < 5; i++) {
    must(read_text("/proc/self/mountinfo", text, sizeof text), "read");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
      char path[4096], rest[4096];
      if (sscanf(line, "%*d %*d %*s %*s %4095s %*s %4095[^\n]", path, rest) != 2 || strcmp(path, paths[i])) continue;
      say("%s %s", path, !strncmp(rest, "shared", 6) ? "shared" : !strncmp(rest, "master", 6) ? "slave" : "private");
    }
  }
}

/// A group below the root of the hierarchy, as a container runtime makes one.
static void make_group(const char *name, char *path) {
  snprintf(path, 128, "/sys/fs/cgroup/%s-%d", name, getpid());
  must(mkdir(path, 0755), "mkdir in /sys/fs/cgroup");
}

static void set_group(const char *path, const char *file, const char *value) {
  char full[192];
  snprintf(full, sizeof full, "%s/%s", path, file);
  must(write_text(full, value), file);
}

static long group_value(const char *path, const char *file, const char *key) {
  char full[192], text[8192];
  snprintf(full, sizeof full, "%s/%s", path, file);
  must(read_text(full, text, sizeof text), file);
  char *found = strstr(text, key);
  return found ? strtol(found + strlen(key), NULL, 10) : -1;
}

static void memory_limit(void) {
  char path[128];
  make_group("memory", path);
  set_group(path, "memory.max", "33554432");
  must(write_text("/proc/sys/kernel/printk", "1"), "quiet console");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    set_group(path, "cgroup.procs", "0");
    write_text("/proc/self/oom_score_adj", "1000");
    memset(mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 128 << 20);
    _exit(0);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  long kills = group_value(path, "memory.events", "oom_kill ");
  must(rmdir(path), "rmdir");
  say("signal %d, %ld counted", WTERMSIG(status), kills);
}

static void process_limit(void) {
  char path[128];
  make_group("pids", path);
  set_group(path, "pids.max", "2");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    set_group(path, "cgroup.procs", "0");
    pid_t one = fork();
    if (one == 0) pause();
    pid_t two = fork();
    if (two == 0) pause();
    int refused = two < 0 && errno == EAGAIN;
    kill(one, SIGKILL);
    wait(NULL);
    _exit(refused ? 0 : 1);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  must(rmdir(path), "rmdir");
  say(status == 0 ? "the third is refused" : "no limit");
}

static void cpu_limit(void) {
  char path[128];
  make_group("cpu", path);
  set_group(path, "cpu.max", "10000 100000");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    set_group(path, "cgroup.procs", "0");
    for (;;) {}
  }
  usleep(600000);
  long throttled = group_value(path, "cpu.stat", "nr_throttled ");
  set_group(path, "cgroup.freeze", "1");
  set_group(path, "cgroup.kill", "1");
  must(waitpid(child, NULL, 0), "waitpid");
  must(rmdir(path), "rmdir");
  say(throttled > 0 ? "throttled, frozen, killed" : "not throttled");
}

static void delegated(void) {
  // A user who owns a group can divide it.
  char path[128], inner[160];
  make_group("delegated", path);
  must(chown(path, 65534, 65534), "chown");
  for (const char *const *file = (const char *const[]){"cgroup.procs", "cgroup.subtree_control", "cgroup.threads", NULL}; *file; file++) {
    char full[192];
    snprintf(full, sizeof full, "%s/%s", path, *file);
    must(chown(full, 65534, 65534), "chown");
  }
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    be_nobody();
    snprintf(inner, sizeof inner, "%s/inner", path);
    must(mkdir(inner, 0755), "mkdir");
    set_group(path, "cgroup.subtree_control", "+memory +pids");
    set_group(inner, "memory.max", "16777216");
    must(rmdir(inner), "rmdir");
    _exit(0);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  must(rmdir(path), "rmdir");
  if (status == 0) say("works");
}

static void own_group(void) {
  char line[4096];
  must(read_text("/proc/self/cgroup", line, sizeof line), "read");
  say("%s", line);
}

static void controllers(void) {
  char text[512];
  must(read_text("/sys/fs/cgroup/cgroup.controllers", text, sizeof text), "controllers");
  say("%s", text);
  char options[64] = "";
  static char table[65536];
  must(read_text("/proc/self/mountinfo", table, sizeof table), "read");
  char *line = strstr(table, "- cgroup2 ");
  if (line) sscanf(line, "- cgroup2 %*s %63s", options);
  say("%s", options);
}

const struct probe namespaces[] = {
    {"userns", user_namespace},
    {"userns-all", all_namespaces},
    {"namespaces-root", root_namespaces},
    {"mounts", mounts},
    {"mount-api", new_mount_calls},
    {"idmapped-mount", idmapped},
    {"overlay", overlay},
    {"pivot-root", pivot},
    {"propagation", propagation},
    {"cgroup-memory", memory_limit},
    {"cgroup-pids", process_limit},
    {"cgroup-cpu", cpu_limit},
    {"cgroup-delegation", delegated},
    {"cgroup-own", own_group},
    {"cgroup-controllers", controllers},
    {0},
};
