/*
 * The bare agent of the benchmarks: process 1 of a guest, answering lines on the `ctl` port of the
 * virtio-serial device. No product code. It shows what the machine itself costs, without HTTP/2,
 * streams, users, limits or errors. Built by bare/machine.mjs: cc -static -O2.
 *
 *   PING                 -> PONG
 *   MOUNT                -> MOUNT ok | MOUNT <error>     /dev/vda on /mnt, and what a shell needs below
 *   EXEC <bash line>     -> its output, then EXIT <code> on a line of its own
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void load_modules(void) {
  FILE *list = fopen("/modules.list", "r");
  char path[256];
  while (list && fgets(path, sizeof path, list)) {
    path[strcspn(path, "\n")] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0) printf("module %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
  }
  if (list) fclose(list);
}

/* The port's device is named in sysfs; it appears shortly after the driver is there. */
static int open_port(const char *wanted) {
  for (int tries = 0; tries < 400; tries++, usleep(5000)) {
    DIR *ports = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    while (ports && (entry = readdir(ports))) {
      char path[300], name[64] = "";
      snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      ssize_t got = read(fd, name, sizeof name - 1);
      close(fd);
      name[got > 0 ? got : 0] = 0;
      name[strcspn(name, "\n")] = 0;
      if (strcmp(name, wanted)) continue;
      snprintf(path, sizeof path, "/dev/%s", entry->d_name);
      closedir(ports);
      return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    if (ports) closedir(ports);
  }
  return -1;
}

static void write_all(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t done = write(fd, bytes, length);
    if (done < 0 && errno == EAGAIN) { usleep(100); continue; }
    if (done < 0) return;
    bytes += done;
    length -= done;
  }
}

static void do_mount(int port) {
  char answer[128];
  if (mount("/dev/vda", "/mnt", "ext4", 0, "") != 0) {
    write_all(port, answer, snprintf(answer, sizeof answer, "MOUNT %s\n", strerror(errno)));
    return;
  }
  mount("proc", "/mnt/proc", "proc", 0, 0);
  mount("sys", "/mnt/sys", "sysfs", 0, 0);
  mount("dev", "/mnt/dev", "devtmpfs", 0, 0);
  write_all(port, "MOUNT ok\n", 9);
}

static void do_exec(int port, const char *line) {
  int output[2], status;
  char bytes[65536];
  if (pipe2(output, O_CLOEXEC) != 0) return;
  pid_t child = vfork();
  if (child == 0) {
    dup2(output[1], 1);
    dup2(output[1], 2);
    if (chroot("/mnt") != 0 || chdir("/") != 0) _exit(99);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    /* LANG as the image says: without it bash loads no locale. */
    execle("/bin/bash", "bash", "-c", line, (char *)0,
           (char *[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", 0});
    _exit(98);
  }
  close(output[1]);
  ssize_t got;
  while ((got = read(output[0], bytes, sizeof bytes)) > 0) write_all(port, bytes, got);
  close(output[0]);
  waitpid(child, &status, 0);
  write_all(port, bytes, snprintf(bytes, sizeof bytes, "\nEXIT %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

static void answer(int port, const char *line) {
  if (!strcmp(line, "PING")) write_all(port, "PONG\n", 5);
  else if (!strcmp(line, "MOUNT")) do_mount(port);
  else if (!strncmp(line, "EXEC ", 5)) do_exec(port, line + 5);
}

int main(void) {
  const char *folders[] = {"/proc", "/sys", "/dev", "/mnt"};
  for (int i = 0; i < 4; i++) mkdir(folders[i], 0755);
  mount("proc", "/proc", "proc", 0, 0);
  mount("sys", "/sys", "sysfs", 0, 0);
  mount("dev", "/dev", "devtmpfs", 0, 0);
  load_modules();

  int port = open_port("ctl");
  /* SIGIO comes when the host connects and when it sends. Blocked and waited for, so that the agent
     neither polls (a port without a host is always ready) nor sleeps. */
  sigset_t io;
  sigemptyset(&io);
  sigaddset(&io, SIGIO);
  sigprocmask(SIG_BLOCK, &io, 0);
  fcntl(port, F_SETOWN, getpid());
  fcntl(port, F_SETFL, fcntl(port, F_GETFL) | O_ASYNC);
  printf("bare agent waits %d\n", port);
  fflush(stdout);

  static char buffer[65536];
  size_t length = 0;
  for (;;) {
    ssize_t got = read(port, buffer + length, sizeof buffer - length - 1);
    if (got <= 0) {
      int number;
      sigwait(&io, &number);
      continue;
    }
    length += got;
    buffer[length] = 0;
    char *end;
    while ((end = strchr(buffer, '\n'))) {
      *end = 0;
      answer(port, buffer);
      length -= end + 1 - buffer;
      memmove(buffer, end + 1, length + 1);
    }
  }
}
