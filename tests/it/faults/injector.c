/*
 * Makes one call of a process fail, or the last one of its life: to be preloaded (LD_PRELOAD, ld.so(8)).
 *
 * It counts calls that concern files below a directory, over all threads. Who tests shares a file with it, mapped as
 * `struct control`, and says there which call of which sort is to fail and how. Only calls that go through the C
 * library are seen: the program and its SQLite make all of theirs so.
 *
 *   INJECT_CONTROL  the shared file
 *   INJECT_BELOW    the directory
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The order is that of `Call` in injector.rs. */
enum call {
	OPEN, READ, WRITE, SYNC, RENAME, LINK, UNLINK, MKDIR, COPY, TRUNCATE, UTIMES, CALLS
};

/* The order is that of `How` in injector.rs. */
enum how { COUNT, ERROR_ONCE, ERROR_SINCE, KILL_BEFORE, KILL_AFTER };

struct control {
	_Atomic uint64_t how, call, number, error;
	_Atomic uint64_t hit; /* whether the fault has come */
	_Atomic uint64_t seen[CALLS];
	_Atomic uint64_t armed; /* nothing is counted before */
	char where[PATH_MAX]; /* the file of the call that was hit */
};

static struct control *control;
static char below[PATH_MAX];
static size_t below_length;

__attribute__((constructor)) static void start(void)
{
	const char *file = getenv("INJECT_CONTROL"), *dir = getenv("INJECT_BELOW");
	if (!file || !dir)
		return;
	snprintf(below, sizeof below, "%s/", dir);
	below_length = strlen(below);
	int fd = open(file, O_RDWR | O_CLOEXEC);
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		perror(file);
		_exit(99);
	}
	close(fd);
	control = at;
	/* Children are programs of others. */
	unsetenv("LD_PRELOAD");
}

/* Writes the path of a descriptor, or of a name in a directory. */
static void path_of(int dir, const char *name, char *path)
{
	path[0] = 0;
	size_t length = 0;
	if (name && name[0] == '/') {
		snprintf(path, PATH_MAX, "%s", name);
		return;
	}
	if (dir != AT_FDCWD) {
		char link[32];
		snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
		ssize_t count = readlink(link, path, PATH_MAX - 1);
		length = count < 0 ? 0 : (size_t)count;
		path[length] = 0;
	}
	if (name && length > 0)
		snprintf(path + length, PATH_MAX - length, "/%s", name);
}

static _Noreturn void die(void)
{
	for (;;)
		kill(getpid(), SIGKILL);
}

/* What is to happen to a call. */
struct verdict {
	int error; /* it fails with this errno; 0: it is made */
	int last;  /* the process dies after it */
};

static struct verdict judge(enum call call, int dir, const char *name)
{
	struct verdict verdict = {0, 0};
	if (!control || !atomic_load(&control->armed))
		return verdict;
	int saved = errno;
	char path[PATH_MAX];
	path_of(dir, name, path);
	if (strncmp(path, below, below_length) == 0) {
		uint64_t number = atomic_fetch_add(&control->seen[call], 1);
		uint64_t how = atomic_load(&control->how), at = atomic_load(&control->number);
		int meant = atomic_load(&control->call) == (uint64_t)call && how != COUNT;
		if (meant && (number == at || (how == ERROR_SINCE && number > at))) {
			if (!atomic_exchange(&control->hit, 1))
				snprintf(control->where, sizeof control->where, "%s", path);
			if (how == KILL_BEFORE)
				die();
			verdict.error = how == KILL_AFTER ? 0 : (int)atomic_load(&control->error);
			verdict.last = how == KILL_AFTER;
		}
	}
	errno = saved;
	return verdict;
}

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	if (!found)
		_exit(98);
	return found;
}

/* Judges a call of a sort on a file, and makes it by the C library's function of this name. */
#define JUDGED(sort, dir, at, name, ...)                      \
	do {                                                      \
		struct verdict verdict = judge(sort, dir, at);        \
		if (verdict.error) {                                  \
			errno = verdict.error;                            \
			return -1;                                        \
		}                                                     \
		__typeof__(REAL(name)(__VA_ARGS__)) result = REAL(name)(__VA_ARGS__); \
		if (verdict.last)                                     \
			die();                                            \
		return result;                                        \
	} while (0)

static mode_t mode_of(int flags, va_list rest)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPENS(name)                                           \
	int name(const char *path, int flags, ...)                \
	{                                                         \
		va_list rest;                                         \
		va_start(rest, flags);                                \
		mode_t mode = mode_of(flags, rest);                   \
		va_end(rest);                                         \
		JUDGED(OPEN, AT_FDCWD, path, name, path, flags, mode); \
	}
#define OPENS_AT(name)                                        \
	int name(int dir, const char *path, int flags, ...)       \
	{                                                         \
		va_list rest;                                         \
		va_start(rest, flags);                                \
		mode_t mode = mode_of(flags, rest);                   \
		va_end(rest);                                         \
		JUDGED(OPEN, dir, path, name, dir, path, flags, mode); \
	}
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t read(int fd, void *to, size_t count) { JUDGED(READ, fd, NULL, read, fd, to, count); }
ssize_t pread(int fd, void *to, size_t count, off_t at) { JUDGED(READ, fd, NULL, pread, fd, to, count, at); }
ssize_t pread64(int fd, void *to, size_t count, off64_t at) { JUDGED(READ, fd, NULL, pread64, fd, to, count, at); }
ssize_t write(int fd, const void *from, size_t count) { JUDGED(WRITE, fd, NULL, write, fd, from, count); }
ssize_t pwrite(int fd, const void *from, size_t count, off_t at)
{
	JUDGED(WRITE, fd, NULL, pwrite, fd, from, count, at);
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at)
{
	JUDGED(WRITE, fd, NULL, pwrite64, fd, from, count, at);
}

int fsync(int fd) { JUDGED(SYNC, fd, NULL, fsync, fd); }
int fdatasync(int fd) { JUDGED(SYNC, fd, NULL, fdatasync, fd); }

int rename(const char *from, const char *to) { JUDGED(RENAME, AT_FDCWD, from, rename, from, to); }
int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	JUDGED(RENAME, from_dir, from, renameat, from_dir, from, to_dir, to);
}
int link(const char *from, const char *to) { JUDGED(LINK, AT_FDCWD, from, link, from, to); }
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	JUDGED(LINK, from_dir, from, linkat, from_dir, from, to_dir, to, flags);
}
int unlink(const char *path) { JUDGED(UNLINK, AT_FDCWD, path, unlink, path); }
int unlinkat(int dir, const char *path, int flags) { JUDGED(UNLINK, dir, path, unlinkat, dir, path, flags); }
int mkdir(const char *path, mode_t mode) { JUDGED(MKDIR, AT_FDCWD, path, mkdir, path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { JUDGED(MKDIR, dir, path, mkdirat, dir, path, mode); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags)
{
	JUDGED(COPY, to, NULL, copy_file_range, from, from_at, to, to_at, count, flags);
}
int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	va_start(rest, request);
	void *argument = va_arg(rest, void *);
	va_end(rest);
	if (request != FICLONE)
		return REAL(ioctl)(fd, request, argument);
	JUDGED(COPY, fd, NULL, ioctl, fd, request, argument);
}

int ftruncate(int fd, off_t length) { JUDGED(TRUNCATE, fd, NULL, ftruncate, fd, length); }
int ftruncate64(int fd, off64_t length) { JUDGED(TRUNCATE, fd, NULL, ftruncate64, fd, length); }
int futimens(int fd, const struct timespec times[2]) { JUDGED(UTIMES, fd, NULL, futimens, fd, times); }
int utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
	JUDGED(UTIMES, dir, path, utimensat, dir, path, times, flags);
}
