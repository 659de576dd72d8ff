/*
 * Copies the pages that a stopped process has changed of a private mapping of a file: the memory of a bare machine. No product
 * code. Built and started by bare/save.mjs before the machine is stopped, so that its own start costs no pause.
 *
 *   copy-pages PID MAPPED-FILE TARGET     waits for a line, copies each page to its place in TARGET, prints the bytes
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { page = 4096, entries = 65536, piece = 1 << 20 };

static void fail(const char *what) {
  fprintf(stderr, "copy-pages: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int open_of(const char *pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
  int fd = open(path, O_RDONLY);
  if (fd < 0) fail(path);
  return fd;
}

/* Where the private mapping of the file begins, and its bytes. */
static uint64_t find_mapping(const char *pid, const char *file, uint64_t *bytes) {
  struct stat wanted;
  if (stat(file, &wanted) != 0) fail(file);
  FILE *maps = fdopen(open_of(pid, "maps"), "r");
  char line[512], flags[8];
  unsigned long from, to, inode;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, flags, &inode) != 4) continue;
    if (inode != wanted.st_ino || flags[3] != 'p' || to - from != (uint64_t)wanted.st_size) continue;
    fclose(maps);
    *bytes = to - from;
    return from;
  }
  errno = ENOENT;
  fail("the mapping");
  return 0;
}

/* In memory or in swap, and not the file's: the kernel's admin-guide/mm/pagemap. */
static int is_changed(uint64_t entry) { return entry >> 62 != 0 && !(entry >> 61 & 1); }

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  static uint64_t seen[entries];
  static char bytes[piece];
  uint64_t length, copied = 0, start = find_mapping(argv[1], argv[2], &length);
  int pagemap = open_of(argv[1], "pagemap"), memory = open_of(argv[1], "mem");
  int target = open(argv[3], O_WRONLY);
  if (target < 0) fail(argv[3]);
  if (getchar() == EOF) return 0;
  for (uint64_t first = 0; first < length / page; first += entries) {
    uint64_t count = length / page - first < entries ? length / page - first : entries;
    if (pread(pagemap, seen, count * 8, (start / page + first) * 8) != (ssize_t)(count * 8)) fail("pagemap");
    for (uint64_t i = 0; i < count;) {
      if (!is_changed(seen[i])) { i++; continue; }
      uint64_t begin = i;
      while (i < count && is_changed(seen[i]) && (i - begin) * page < piece) i++;
      uint64_t at = (first + begin) * page, size = (i - begin) * page;
      if (pread(memory, bytes, size, start + at) != (ssize_t)size) fail("memory");
      if (pwrite(target, bytes, size, at) != (ssize_t)size) fail(argv[3]);
      copied += size;
    }
  }
  printf("%lu\n", copied);
  return 0;
}
