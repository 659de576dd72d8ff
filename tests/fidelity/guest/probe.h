// What all C probes use. A probe prints one short line: `works`, a value, or the step that failed and its errno.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct probe {
  const char *id;
  void (*run)(void);
};
extern const struct probe files[], memory[], network[], processes[], namespaces[], tracing[];

/// Prints the result.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// Answers a non-negative result; otherwise prints what failed and why, and ends the probe.
long must(long result, const char *what);
/// The same for something that is true or false.
void holds(int truth, const char *what);
/// Becomes uid and gid 65534 with no capabilities.
void be_nobody(void);
/// Writes to a file that exists.
long write_text(const char *path, const char *text);
/// Reads a file's beginning, without the newline at its end.
long read_text(const char *path, char *text, size_t size);
/// Runs `work` in a child and waits; ends the probe with what the child has said if it has not succeeded.
void in_child(void (*work)(void));
