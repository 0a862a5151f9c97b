/* The wall clock of a process, moved by what another writes into a file: for LD_PRELOAD.

   SHIFTED_CLOCK_FILE names a file with 8 bytes, nanoseconds as a signed number of this machine. Only the real-time
   clocks are moved; monotonic ones, and with them every duration and time-out, stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *moved;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("SHIFTED_CLOCK_FILE");
  real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) moved = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_gettime) real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real_gettime(clock, now);
  if (!failed && moved && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t all = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *moved;
    now->tv_sec = all / 1000000000;
    now->tv_nsec = all % 1000000000;
  }
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec fine;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &fine)) return -1;
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *there) {
  struct timespec fine;
  if (clock_gettime(CLOCK_REALTIME, &fine)) return (time_t)-1;
  if (there) *there = fine.tv_sec;
  return fine.tv_sec;
}
