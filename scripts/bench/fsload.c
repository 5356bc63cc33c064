/*
 * fsload: makes one kind of load on a directory and prints how many seconds it took.
 *
 * A compiled program, because at 4 KiB a call an interpreter would cost more than the filesystem under test.
 * Each verb prints one number, the seconds (CLOCK_MONOTONIC) of the load alone: set-up and the start of the process
 * don't count. A call that fails ends the program with status 1 and the call's name and error.
 *
 *   fsload seqread FILE              reads FILE from its start to its end, 128 KiB a call
 *   fsload randread FILE COUNT       reads FILE once, untimed, then COUNT times 4 KiB at random places of it
 *   fsload save FILE COUNT           COUNT times: open for write, truncate, write 64 KiB, close
 *   fsload savesync FILE COUNT       the same with fsync before close
 *   fsload create DIR COUNT          makes COUNT files of 4 KiB in DIR, named f0, f1, ...
 *   fsload unlink DIR COUNT          removes them again
 *   fsload walk DIR                  reads the tree below DIR and calls lstat on each entry
 *   fsload fill FILE MIB             writes MIB MiB of bytes that don't compress or repeat, and closes
 *   fsload fillsync FILE MIB         the same with fsync before close
 *   fsload edit FILE OFFSET          opens FILE read-write, overwrites 4 KiB at OFFSET; the close is not timed
 *   fsload tree DIR DIRS FILES SIZE DISTINCT   makes DIRS directories of FILES files of SIZE bytes, of DISTINCT contents
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SAVE = 64 * 1024, CHUNK = 128 * 1024, MIB = 1024 * 1024 };

static void die(const char *call, const char *path)
{
	fprintf(stderr, "fsload: %s %s: %s\n", call, path, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* xorshift64*: fast and the same on every run, so that each filesystem gets the same load. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1DULL;
}

static void fill_random(char *buf, size_t len, uint64_t seed)
{
	uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
	for (size_t i = 0; i + 8 <= len; i += 8) {
		uint64_t r = next_random(&state);
		memcpy(buf + i, &r, 8);
	}
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		die("open", path);
	return fd;
}

static void write_or_die(int fd, const char *buf, size_t len, const char *path)
{
	while (len > 0) {
		ssize_t n = write(fd, buf, len);
		if (n <= 0)
			die("write", path);
		buf += n;
		len -= (size_t)n;
	}
}

static void close_or_die(int fd, const char *path)
{
	if (close(fd) != 0)
		die("close", path);
}

static double seqread(const char *path)
{
	static char buf[CHUNK];
	double start = now();
	int fd = open_or_die(path, O_RDONLY);
	ssize_t n;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		;
	if (n < 0)
		die("read", path);
	close_or_die(fd, path);
	return now() - start;
}

static double randread(const char *path, long count)
{
	static char buf[PAGE];
	struct stat st;
	int fd = open_or_die(path, O_RDONLY);
	if (fstat(fd, &st) != 0)
		die("fstat", path);
	while (read(fd, buf, PAGE) > 0)
		;
	uint64_t pages = (uint64_t)st.st_size / PAGE, state = 42;
	double start = now();
	for (long i = 0; i < count; i++)
		if (pread(fd, buf, PAGE, (off_t)(next_random(&state) % pages * PAGE)) != PAGE)
			die("pread", path);
	double took = now() - start;
	close_or_die(fd, path);
	return took;
}

static double save(const char *path, long count, int sync)
{
	static char buf[SAVE];
	double took = 0;
	for (long i = 0; i < count; i++) {
		fill_random(buf, sizeof buf, (uint64_t)now() * 1000 + (uint64_t)i);
		double start = now();
		int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);
		write_or_die(fd, buf, sizeof buf, path);
		if (sync && fsync(fd) != 0)
			die("fsync", path);
		close_or_die(fd, path);
		took += now() - start;
	}
	return took;
}

static double create(const char *dir, long count)
{
	static char buf[PAGE];
	char path[4096];
	double took = 0;
	for (long i = 0; i < count; i++) {
		snprintf(path, sizeof path, "%s/f%ld", dir, i);
		fill_random(buf, sizeof buf, (uint64_t)(now() * 1e6));
		double start = now();
		int fd = open_or_die(path, O_WRONLY | O_CREAT | O_EXCL);
		write_or_die(fd, buf, sizeof buf, path);
		close_or_die(fd, path);
		took += now() - start;
	}
	return took;
}

static double unlink_all(const char *dir, long count)
{
	char path[4096];
	double start = now();
	for (long i = 0; i < count; i++) {
		snprintf(path, sizeof path, "%s/f%ld", dir, i);
		if (unlink(path) != 0)
			die("unlink", path);
	}
	return now() - start;
}

static void walk_below(int fd, const char *name)
{
	DIR *dir = fdopendir(fd);
	if (!dir)
		die("opendir", name);
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		struct stat st;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			die("lstat", entry->d_name);
		if (S_ISDIR(st.st_mode)) {
			int sub = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (sub < 0)
				die("open", entry->d_name);
			walk_below(sub, entry->d_name);
		}
	}
	closedir(dir);
}

static double walk(const char *path)
{
	double start = now();
	walk_below(open_or_die(path, O_RDONLY | O_DIRECTORY), path);
	return now() - start;
}

/* Random once and stamped for each MiB: no two blocks are equal, and making them costs next to nothing. */
static double fill(const char *path, long mib, int sync)
{
	static char buf[MIB];
	fill_random(buf, sizeof buf, (uint64_t)(now() * 1e6));
	double start = now();
	int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);
	for (long i = 0; i < mib; i++) {
		memcpy(buf, &i, sizeof i);
		write_or_die(fd, buf, sizeof buf, path);
	}
	if (sync && fsync(fd) != 0)
		die("fsync", path);
	close_or_die(fd, path);
	return now() - start;
}

static double edit(const char *path, long offset)
{
	static char buf[PAGE];
	fill_random(buf, sizeof buf, (uint64_t)(now() * 1e6));
	double start = now();
	int fd = open_or_die(path, O_RDWR);
	if (pwrite(fd, buf, sizeof buf, offset) != (ssize_t)sizeof buf)
		die("pwrite", path);
	double took = now() - start;
	close_or_die(fd, path);
	return took;
}

static double tree(const char *root, char **arg)
{
	long dirs = atol(arg[0]), files = atol(arg[1]), size = atol(arg[2]), distinct = atol(arg[3]);
	char path[4096], *buf = calloc(1, (size_t)size + 8);
	double start = now();
	if (!buf)
		die("calloc", root);
	for (long d = 0; d < dirs; d++) {
		snprintf(path, sizeof path, "%s/d%04ld", root, d);
		if (mkdir(path, 0755) != 0)
			die("mkdir", path);
		for (long f = 0; f < files; f++) {
			snprintf(path, sizeof path, "%s/d%04ld/file%04ld.dat", root, d, f);
			fill_random(buf, (size_t)size, (uint64_t)((d * files + f) % distinct) + 1);
			int fd = open_or_die(path, O_WRONLY | O_CREAT | O_EXCL);
			write_or_die(fd, buf, (size_t)size, path);
			close_or_die(fd, path);
		}
	}
	free(buf);
	return now() - start;
}

static double run(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	const char *path = argc > 2 ? argv[2] : "";
	long number = argc > 3 ? atol(argv[3]) : 0;
	if (!strcmp(verb, "seqread"))
		return seqread(path);
	if (!strcmp(verb, "randread"))
		return randread(path, number);
	if (!strcmp(verb, "save") || !strcmp(verb, "savesync"))
		return save(path, number, !strcmp(verb, "savesync"));
	if (!strcmp(verb, "create"))
		return create(path, number);
	if (!strcmp(verb, "unlink"))
		return unlink_all(path, number);
	if (!strcmp(verb, "walk"))
		return walk(path);
	if (!strcmp(verb, "fill") || !strcmp(verb, "fillsync"))
		return fill(path, number, !strcmp(verb, "fillsync"));
	if (!strcmp(verb, "edit"))
		return edit(path, number);
	if (!strcmp(verb, "tree") && argc == 7)
		return tree(path, argv + 3);
	fprintf(stderr, "fsload: no such load; the head of fsload.c lists them\n");
	exit(2);
}

int main(int argc, char **argv)
{
	printf("%.6f\n", run(argc, argv));
	return 0;
}
