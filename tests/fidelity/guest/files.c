// Probes of files and file systems. They run in a fresh folder on the root file system.
#include "probe.h"
#include <linux/fs.h>
#include <linux/limits.h>
#include <sys/acct.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/quota.h>
#include <sys/swap.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <sys/sysmacros.h>

static void say_nothing(void) {}

static int make(const char *name) { return must(open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644), name); }

static void o_tmpfile(void) {
  int fd = must(open(".", O_TMPFILE | O_RDWR, 0600), "open");
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  must(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), "linkat");
  say("works");
}

static void rename_flags(void) {
  make("a"), make("b");
  must(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE), "exchange");
  long refused = syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE);
  holds(refused < 0 && errno == EEXIST, "no-replace is EEXIST");
  must(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "c", RENAME_WHITEOUT), "whiteout");
  say("works");
}

static void punch_hole(void) {
  int fd = make("f");
  char block[65536];
  memset(block, 1, sizeof block);
  must(write(fd, block, sizeof block), "write");
  must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192), "punch");
  holds(lseek(fd, 0, SEEK_HOLE) == 4096, "the hole is found");
  must(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 4096, 8192), "collapse");
  must(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096), "zero");
  say("works");
}

static void copy_range(void) {
  int from = make("from"), to = make("to");
  must(write(from, "hello", 5), "write");
  loff_t at = 0;
  must(copy_file_range(from, &at, to, NULL, 5, 0), "copy_file_range");
  long cloned = ioctl(to, FICLONE, from);
  say("copied; clone %s", cloned == 0 ? "works" : strerrorname_np(errno));
}

static void statx_fields(void) {
  make("f");
  struct statx found;
  must(statx(AT_FDCWD, "f", 0, STATX_ALL | 0x1000 | 0x2000, &found), "statx");
  say("birth time %s, mount id %s, direct io %s", found.stx_mask & STATX_BTIME ? "yes" : "no",
      found.stx_mask & 0x1000 ? "yes" : "no", found.stx_mask & 0x2000 ? "yes" : "no");
}

static void handles(void) {
  make("f");
  struct { struct file_handle head; char bytes[MAX_HANDLE_SZ]; } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
  int mount_id;
  must(name_to_handle_at(AT_FDCWD, "f", &handle.head, &mount_id, 0), "name_to_handle_at");
  int folder = must(open(".", O_RDONLY), "open");
  must(open_by_handle_at(folder, &handle.head, O_RDONLY), "open_by_handle_at");
  say("works");
}

static void fanotify(void) {
  int watch = must(fanotify_init(FAN_CLASS_CONTENT | FAN_NONBLOCK, O_RDONLY), "init");
  must(fanotify_mark(watch, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, AT_FDCWD, "."), "mark");
  close(make("f"));
  char events[4096];
  must(read(watch, events, sizeof events), "read");
  say("works");
}

static void inotify(void) {
  int watch = must(inotify_init1(IN_NONBLOCK), "init");
  must(inotify_add_watch(watch, ".", IN_CREATE), "add");
  make("new");
  char events[4096];
  must(read(watch, events, sizeof events), "read");
  say("works");
}

static void leases_and_locks(void) {
  int fd = make("f");
  must(flock(fd, LOCK_EX | LOCK_NB), "flock");
  struct flock lock = {.l_type = F_WRLCK};
  must(fcntl(fd, F_OFD_SETLK, &lock), "OFD lock");
  must(fcntl(fd, F_SETLEASE, F_WRLCK), "lease");
  int folder = must(open(".", O_RDONLY), "open");
  must(fcntl(folder, F_NOTIFY, DN_CREATE), "dnotify");
  say("works");
}

static void xattrs(void) {
  make("f");
  must(setxattr("f", "user.a", "1", 1, 0), "user");
  must(setxattr("f", "trusted.a", "1", 1, 0), "trusted");
  must(setxattr("f", "security.a", "1", 1, 0), "security");
  say("user, trusted, security");
}

static void immutable(void) {
  int fd = make("f"), flags = FS_IMMUTABLE_FL, none = 0;
  must(ioctl(fd, FS_IOC_SETFLAGS, &flags), "set");
  long removed = unlink("f");
  int error = errno;
  must(ioctl(fd, FS_IOC_SETFLAGS, &none), "clear");
  holds(removed < 0 && error == EPERM, "an immutable file cannot be removed");
  say("works");
}

static void device_nodes(void) {
  must(mknod("null", S_IFCHR | 0666, makedev(1, 3)), "mknod");
  int fd = must(open("null", O_RDWR), "open");
  must(write(fd, "x", 1), "write");
  must(mknod("disk", S_IFBLK | 0600, makedev(7, 0)), "mknod block");
  say("works");
}

static void tmp_is_on_disk(void) {
  struct stat root, tmp;
  must(stat("/", &root), "stat /");
  must(stat("/tmp", &tmp), "stat /tmp");
  say("%s, mode %o", root.st_dev == tmp.st_dev ? "same file system as /" : "another file system", tmp.st_mode & 07777);
}

static void root_file_system(void) {
  struct statfs found;
  must(statfs("/", &found), "statfs");
  say("type %lx, block %ld, flags %lx", (long)found.f_type, (long)found.f_bsize, (long)found.f_flags);
}

static void many_files(void) {
  must(mkdir("many", 0755), "mkdir");
  int folder = must(open("many", O_RDONLY | O_DIRECTORY), "open");
  char name[32];
  for (int i = 0; i < 20000; i++) {
    snprintf(name, sizeof name, "file-%d", i);
    int fd = openat(folder, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(fd, "create");
    close(fd);
  }
  for (int i = 0; i < 20000; i++) {
    snprintf(name, sizeof name, "file-%d", i);
    must(unlinkat(folder, name, 0), "unlink");
  }
  must(rmdir("many"), "rmdir");
  say("20000 made and removed");
}

static void quota(void) {
  struct dqinfo info;
  long answer = quotactl(QCMD(Q_GETINFO, USRQUOTA), "/dev/vda", 0, (char *)&info);
  say("%s", answer == 0 ? "on" : strerrorname_np(errno));
}

static void process_accounting(void) {
  close(make("acct"));
  must(acct("acct"), "acct");
  in_child(say_nothing);
  must(acct(NULL), "acct off");
  struct stat found;
  must(stat("acct", &found), "stat");
  holds(found.st_size > 0, "a record was written");
  say("works");
}

static void long_paths(void) {
  char name[256];
  memset(name, 'x', 255);
  name[255] = 0;
  must(mkdir(name, 0755), "a name of 255 bytes");
  must(mkdir("\xff\xfe not utf-8", 0755), "bytes that are no UTF-8");
  int fd = make("sparse");
  must(ftruncate64(fd, 1LL << 40), "a sparse file of 1 TiB");
  must(pwrite64(fd, "x", 1, (1LL << 40) - 1), "write at its end");
  must(chown("sparse", 3000000, 4000000), "chown to an id over 65535");
  unlink("sparse");
  say("works");
}

static void direct_io(void) {
  int fd = must(open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644), "open");
  void *block = NULL;
  holds(posix_memalign(&block, 4096, 4096) == 0, "memory");
  memset(block, 7, 4096);
  must(write(fd, block, 4096), "write");
  must(fdatasync(fd), "fdatasync");
  must(syncfs(fd), "syncfs");
  say("works");
}

static void trim(void) {
  int root = must(open("/", O_RDONLY), "open");
  struct fstrim_range range = {.start = 0, .len = 1 << 20, .minlen = 0};
  long answer = ioctl(root, FITRIM, &range);
  say("%s", answer == 0 ? "works" : strerrorname_np(errno));
}

const struct probe files[] = {
    {"o-tmpfile", o_tmpfile},
    {"rename-flags", rename_flags},
    {"punch-hole", punch_hole},
    {"copy-range", copy_range},
    {"statx", statx_fields},
    {"file-handles", handles},
    {"fanotify", fanotify},
    {"inotify", inotify},
    {"locks-leases", leases_and_locks},
    {"xattrs", xattrs},
    {"immutable", immutable},
    {"mknod", device_nodes},
    {"tmp", tmp_is_on_disk},
    {"root-fs", root_file_system},
    {"many-files", many_files},
    {"quota", quota},
    {"acct", process_accounting},
    {"odd-names", long_paths},
    {"direct-io", direct_io},
    {"trim", trim},
    {0},
};
