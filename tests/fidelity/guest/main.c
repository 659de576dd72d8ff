// `probe ID`: runs one C probe of the fidelity table. Linked statically, so that it runs in any image.
#include "probe.h"
#include <grp.h>
#include <stdarg.h>

void say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  putchar('\n');
  fflush(stdout);
}

long must(long result, const char *what) {
  if (result < 0) {
    const char *name = strerrorname_np(errno);
    say("%s: %s", what, name ? name : "unknown errno");
    exit(3);
  }
  return result;
}

void holds(int truth, const char *what) {
  if (!truth) {
    say("not so: %s", what);
    exit(3);
  }
}

void be_nobody(void) {
  must(setgroups(0, NULL), "setgroups");
  must(setresgid(65534, 65534, 65534), "setresgid");
  must(setresuid(65534, 65534, 65534), "setresuid");
}

long write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fd;
  long written = write(fd, text, strlen(text));
  int error = errno;
  close(fd);
  errno = error;
  return written;
}

long read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fd;
  long got = read(fd, text, size - 1);
  close(fd);
  if (got < 0) return got;
  while (got > 0 && text[got - 1] == '\n') got--;
  text[got] = 0;
  return got;
}

void in_child(void (*work)(void)) {
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    work();
    exit(0);
  }
  int status;
  must(waitpid(child, &status, 0), "waitpid");
  if (WIFSIGNALED(status)) {
    say("ended by signal %d", WTERMSIG(status));
    exit(3);
  }
  if (WEXITSTATUS(status) != 0) exit(3);
}

int main(int argc, char **argv) {
  const struct probe *const all[] = {files, memory, network, processes, namespaces, tracing};
  if (argc != 2) return 2;
  for (size_t list = 0; list < sizeof all / sizeof *all; list++)
    for (const struct probe *one = all[list]; one->id; one++)
      if (!strcmp(one->id, argv[1])) {
        one->run();
        return 0;
      }
  fprintf(stderr, "there is no probe %s\n", argv[1]);
  return 2;
}
