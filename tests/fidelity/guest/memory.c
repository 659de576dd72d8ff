// Probes of memory, IPC and time.
#include "probe.h"
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <linux/rtc.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <semaphore.h>
#include <sys/auxv.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <time.h>

static void memfd_seal(void) {
  int fd = must(memfd_create("m", MFD_ALLOW_SEALING), "memfd_create");
  must(ftruncate(fd, 4096), "ftruncate");
  must(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), "seal");
  holds(write(fd, "x", 1) < 0 && errno == EPERM, "a sealed file cannot be written");
  say("works");
}

static void memfd_exec(void) {
  int fd = must(memfd_create("m", MFD_CLOEXEC), "memfd_create");
  int own = must(open("/proc/self/exe", O_RDONLY), "open");
  char buffer[65536];
  for (long got; (got = read(own, buffer, sizeof buffer)) > 0;) must(write(fd, buffer, got), "write");
  pid_t child = must(fork(), "fork");
  if (child == 0) {
    char *argv[] = {"probe", "no-such-probe", NULL};
    dup2(open("/dev/null", O_WRONLY), 2);
    fexecve(fd, argv, environ);
    _exit(99);
  }
  int status;
  waitpid(child, &status, 0);
  say(WIFEXITED(status) && WEXITSTATUS(status) == 2 ? "works" : "did not run");
}

static void huge_pages(void) {
  must(write_text("/proc/sys/vm/nr_hugepages", "4"), "set nr_hugepages");
  void *page = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (page == MAP_FAILED) must(-1, "mmap");
  memset(page, 1, 2 << 20);
  int fd = must(memfd_create("h", MFD_HUGETLB), "memfd");
  must(ftruncate(fd, 2 << 20), "ftruncate");
  must(write_text("/proc/sys/vm/nr_hugepages", "0"), "reset");
  say("works");
}

static void transparent_huge_pages(void) {
  char mode[128];
  must(read_text("/sys/kernel/mm/transparent_hugepage/enabled", mode, sizeof mode), "read");
  void *page = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(madvise(page, 8 << 20, MADV_HUGEPAGE), "madvise");
  memset(page, 1, 8 << 20);
  say("%s", mode);
}

static void lock_memory(void) {
  void *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(mlock(page, 1 << 20), "mlock");
  must(mlockall(MCL_CURRENT), "mlockall");
  say("works");
}

static void lock_memory_nobody(void) {
  be_nobody();
  lock_memory();
}

static void protection_keys(void) {
  int key = pkey_alloc(0, 0);
  say("%s", key >= 0 ? "works" : strerrorname_np(errno));
}

static void memory_policy(void) {
  must(syscall(SYS_set_mempolicy, MPOL_PREFERRED, NULL, 0), "set_mempolicy");
  int mode;
  must(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), "get_mempolicy");
  say("works");
}

static void fault_descriptor(int flags) {
  int fd = must(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags), "userfaultfd");
  struct uffdio_api api = {.api = UFFD_API};
  must(ioctl(fd, UFFDIO_API, &api), "api");
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register range = {.range = {(uintptr_t)page, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  must(ioctl(fd, UFFDIO_REGISTER, &range), "register");
  struct uffdio_zeropage zero = {.range = {(uintptr_t)page, 4096}};
  must(ioctl(fd, UFFDIO_ZEROPAGE, &zero), "zeropage");
  say("works");
}

static void userfaultfd_root(void) { fault_descriptor(0); }

static void userfaultfd_nobody(void) {
  be_nobody();
  fault_descriptor(UFFD_USER_MODE_ONLY);
}

static void posix_queue(void) {
  struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 64};
  mqd_t queue = must(mq_open("/fidelity", O_RDWR | O_CREAT, 0600, &attributes), "mq_open");
  must(mq_send(queue, "hello", 5, 1), "mq_send");
  struct stat found;
  must(stat("/dev/mqueue/fidelity", &found), "its file in /dev/mqueue");
  must(mq_unlink("/fidelity"), "mq_unlink");
  say("works");
}

static void posix_shared(void) {
  int fd = must(shm_open("/fidelity", O_RDWR | O_CREAT, 0600), "shm_open");
  must(ftruncate(fd, 1 << 20), "ftruncate");
  must(shm_unlink("/fidelity"), "shm_unlink");
  sem_t *semaphore = sem_open("/fidelity", O_CREAT, 0600, 1);
  must(semaphore == SEM_FAILED ? -1 : 0, "sem_open");
  sem_unlink("/fidelity");
  say("works");
}

static void system_v(void) {
  int memory_id = must(shmget(IPC_PRIVATE, 1 << 20, 0600), "shmget");
  must(shmctl(memory_id, IPC_RMID, NULL), "shmctl");
  int queue = must(msgget(IPC_PRIVATE, 0600), "msgget");
  must(msgctl(queue, IPC_RMID, NULL), "msgctl");
  int semaphore = must(semget(IPC_PRIVATE, 1, 0600), "semget");
  must(semctl(semaphore, 0, IPC_RMID), "semctl");
  say("works");
}

static void timers(void) {
  int fd = must(timerfd_create(CLOCK_BOOTTIME, 0), "timerfd_create");
  struct itimerspec soon = {.it_value.tv_nsec = 1000000};
  must(timerfd_settime(fd, 0, &soon, NULL), "timerfd_settime");
  uint64_t count;
  must(read(fd, &count, sizeof count), "read");
  must(timerfd_create(CLOCK_REALTIME_ALARM, 0), "alarm clock");
  timer_t timer;
  struct sigevent none = {.sigev_notify = SIGEV_NONE};
  must(timer_create(CLOCK_MONOTONIC, &none, &timer), "timer_create");
  say("works");
}

static void clock_steps(void) {
  struct timespec step, coarse;
  must(clock_getres(CLOCK_REALTIME, &step), "getres");
  must(clock_getres(CLOCK_MONOTONIC_COARSE, &coarse), "getres coarse");
  char source[64] = "";
  read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
  say("%ld ns, coarse %ld ns, source %s", step.tv_nsec, coarse.tv_nsec, source);
}

static void clock_runs(void) {
  // 2000 readings: never back, and the raw clock keeps pace with the other.
  struct timespec last, now, wall;
  clock_gettime(CLOCK_MONOTONIC, &last);
  for (int i = 0; i < 2000; i++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    holds(now.tv_sec > last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec >= last.tv_nsec), "time goes on");
    last = now;
  }
  clock_gettime(CLOCK_REALTIME, &wall);
  holds(wall.tv_sec > 1750000000, "the year is right");
  struct timespec boot;
  clock_gettime(CLOCK_BOOTTIME, &boot);
  holds(boot.tv_sec - now.tv_sec <= 1, "no time was spent asleep");
  say("works");
}

static void clock_set(void) {
  struct timespec now;
  must(clock_gettime(CLOCK_REALTIME, &now), "gettime");
  must(clock_settime(CLOCK_REALTIME, &now), "settime");
  struct timex state = {.modes = 0};
  int answer = must(adjtimex(&state), "adjtimex");
  say("can be set; %s", answer == TIME_ERROR ? "unsynchronised" : "synchronised");
}

static void real_time_clock(void) {
  int fd = must(open("/dev/rtc0", O_RDONLY), "open /dev/rtc0");
  struct rtc_time found;
  must(ioctl(fd, RTC_RD_TIME, &found), "read");
  struct tm parts = {.tm_year = found.tm_year, .tm_mon = found.tm_mon, .tm_mday = found.tm_mday,
                     .tm_hour = found.tm_hour, .tm_min = found.tm_min, .tm_sec = found.tm_sec};
  long apart = labs((long)timegm(&parts) - (long)time(NULL));
  say(apart <= 3 ? "agrees with the clock" : "differs from the clock");
}

static void randomness(void) {
  char bytes[32], available[32] = "";
  must(syscall(SYS_getrandom, bytes, sizeof bytes, 1 /* GRND_NONBLOCK */), "getrandom");
  read_text("/proc/sys/kernel/random/entropy_avail", available, sizeof available);
  int device = open("/dev/hwrng", O_RDONLY);
  say("%s bits, /dev/hwrng %s", available, device < 0 ? strerrorname_np(errno) : read(device, bytes, 8) == 8 ? "reads" : "is empty");
}

static void auxiliary(void) {
  say("vdso %s, page %ld, ticks %ld, secure %ld, rseq %s", getauxval(AT_SYSINFO_EHDR) ? "yes" : "no",
      getauxval(AT_PAGESZ), getauxval(AT_CLKTCK), getauxval(AT_SECURE), getauxval(27) ? "yes" : "no");
}

static void overcommit(void) {
  // 16 GiB of address space that is never touched.
  void *plain = mmap(NULL, 16UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int error = errno;
  void *lazy = mmap(NULL, 16UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  say("reserved %s, unreserved %s", plain == MAP_FAILED ? strerrorname_np(error) : "works",
      lazy == MAP_FAILED ? strerrorname_np(errno) : "works");
}

const struct probe memory[] = {
    {"memfd-seal", memfd_seal},
    {"memfd-exec", memfd_exec},
    {"huge-pages", huge_pages},
    {"thp", transparent_huge_pages},
    {"mlock", lock_memory},
    {"mlock-user", lock_memory_nobody},
    {"pkeys", protection_keys},
    {"mempolicy", memory_policy},
    {"userfaultfd", userfaultfd_root},
    {"userfaultfd-user", userfaultfd_nobody},
    {"mqueue", posix_queue},
    {"posix-shm", posix_shared},
    {"sysv-ipc", system_v},
    {"timers", timers},
    {"clock-steps", clock_steps},
    {"clock-runs", clock_runs},
    {"clock-set", clock_set},
    {"rtc", real_time_clock},
    {"random", randomness},
    {"auxv", auxiliary},
    {"overcommit", overcommit},
    {0},
};
