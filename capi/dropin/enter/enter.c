/*
 * softib-enter: becomes a program that sees a host of the fabric in /sys and /etc/hosts.
 *
 *   softib-enter [-v] [-u FD] [-r FD] -t TREE -- PATH ARGV0 [ARG...]
 *   softib-enter -p [-n] -t TREE
 *   softib-enter -m FD [-u FD] [-w FD] -i NAME,MTU,IPV4/BITS,IPV6/BITS [-i ...]
 *
 *   -t  folder with the host's files, laid out as they are to appear: TREE/sys/class/infiniband, TREE/etc/hosts, ...
 *   -u  the fabric's user namespace, which is joined; without it only a mount namespace is made
 *   -r  socket: gets a descriptor of a file system that ends with the mount namespace
 *   -v  says what does not work; it never keeps the program from running
 *   -p  tries all of it, says so on standard output, and stays until standard input ends, for somebody to take hold
 * of the namespaces
 *   -n  with -p: in a user namespace of its own
 *   -w  a network namespace, which is joined
 *   -m  socket: a network is made, in a namespace of its own or in that of -w, and what belongs to it is sent there
 *   -i  an interface of that network
 *
 * It is C, and has one thread, because a process with several cannot join a user namespace.
 *
 * The mount namespace is a copy of the caller's: the program sees what its caller sees, and what TREE has on top. It
 * ends with the last process in it. The user namespace is shared by all programs of the fabric: between two
 * namespaces the kernel lets nobody read another's memory, which is how programs exchange large messages.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Folders in which the user can make nothing: what TREE adds is shown beside what is there. Not all is worth failing
 * for. */
static const struct {
	const char *dir;
	bool needed;
} shadowed[] = {{"/dev", false}, {"/sys/devices", true}, {"/sys/class", true}};

/* Files that TREE replaces. */
static const char *const replaced[] = {"/etc/hosts"};

/* The last of the shadowed folders is the file system that tells the end. */
#define WITNESS "/sys/class"

static bool verbose;
static bool in_net; /* the network is joined that was to be */

static bool fails(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* fails says what did not work, with errno, to those who asked. */
static bool fails(const char *format, ...)
{
	int saved = errno;
	va_list args;

	if (verbose) {
		fputs("softib: ", stderr);
		va_start(args, format);
		vfprintf(stderr, format, args);
		va_end(args);
		fprintf(stderr, ": %s\n", strerror(saved));
	}
	errno = saved;
	return false;
}

static bool path_of(char *out, const char *a, const char *b, const char *c)
{
	if (snprintf(out, PATH_MAX, "%s%s%s%s", a, b, *c ? "/" : "", c) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return false;
	}
	return true;
}

/* seal makes a mount read-only. Flags that the mount it was copied from has must stay. */
static void seal(const char *target)
{
	static const struct {
		unsigned long have, want;
	} flags[] = {
		{ST_NOSUID, MS_NOSUID}, {ST_NODEV, MS_NODEV}, {ST_NOEXEC, MS_NOEXEC},
		{ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME},
	};
	unsigned long keep = 0;
	struct statvfs v;

	if (statvfs(target, &v) != 0)
		return;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (v.f_flag & flags[i].have)
			keep |= flags[i].want;
	/* Where it is refused, the files' own modes protect them from all but root. */
	if (mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | keep, NULL) != 0)
		fails("%s stays writable", target);
}

/* graft shows source, relative to the working folder, at target, which is made in an empty folder. */
static bool graft(const char *source, const char *target, bool sealed)
{
	struct stat st;
	char text[PATH_MAX];
	ssize_t n;
	int fd;

	if (lstat(source, &st) != 0)
		return false;
	if (S_ISLNK(st.st_mode)) {
		n = readlink(source, text, sizeof text - 1);
		if (n < 0)
			return false;
		text[n] = '\0';
		return symlink(text, target) == 0;
	}
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(target, 0755) != 0)
			return false;
	} else {
		fd = open(target, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
		if (fd < 0)
			return false;
		close(fd);
	}
	/* What is mounted below comes along: the kernel does not let an ordinary user uncover what a mount hides. */
	if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) != 0)
		return false;
	if (sealed)
		seal(target);
	return true;
}

/* The device that makes terminals looks for the folder pts beside itself, and a mount of it alone has nothing beside.
 * So it is shown by a link into the machine's whole folder. */
#define TERMINALS "ptmx"
#define MACHINE ".machine"

/* link_terminals does so in dir. The working folder is what dir had; what covers that now comes along, and goes. */
static bool link_terminals(const char *dir)
{
	char target[PATH_MAX];

	return path_of(target, dir, "", MACHINE) && graft(".", target, false) && umount2(target, MNT_DETACH) == 0 &&
		path_of(target, dir, "", TERMINALS) && symlink(MACHINE "/" TERMINALS, target) == 0;
}

/* graft_all grafts every entry of the folder `from` into the folder dir; entries that `but` has are left out. */
static bool graft_all(int from, const char *dir, int but, bool sealed)
{
	char target[PATH_MAX];
	struct dirent *e;
	struct stat st;
	int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d || fchdir(from) != 0) {
		if (d)
			closedir(d);
		return false;
	}
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (but >= 0 && fstatat(but, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (!sealed && !strcmp(e->d_name, TERMINALS) && fstatat(from, TERMINALS, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISCHR(st.st_mode)) {
			if (!link_terminals(dir))
				fails("%s/%s", dir, TERMINALS);
			continue;
		}
		if (!path_of(target, dir, "", e->d_name) || !graft(e->d_name, target, sealed)) {
			/* One entry less of the machine's own is no reason to go without the host's. */
			if (sealed) {
				closedir(d);
				return false;
			}
			fails("%s", target);
		}
	}
	closedir(d);
	return true;
}

/* shadow covers dir with a file system that has what dir had and what the tree adds. */
static bool shadow(const char *tree, const char *dir)
{
	char added[PATH_MAX];
	int was = -1, add = -1;
	bool ok = false;

	if (!path_of(added, tree, dir, ""))
		return fails("%s", tree);
	was = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	add = open(added, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (was < 0 || add < 0)
		fails("%s", was < 0 ? dir : added);
	else if (mount("softib", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=0") != 0)
		fails("a file system at %s", dir);
	else if (!graft_all(add, dir, -1, true) || !graft_all(was, dir, add, false)) {
		fails("%s", dir);
		/* Better the machine's own than half of it. */
		umount2(dir, MNT_DETACH);
	} else {
		seal(dir);
		ok = true;
	}
	if (was >= 0)
		close(was);
	if (add >= 0)
		close(add);
	return ok;
}

static bool replace(const char *tree, const char *file)
{
	char with[PATH_MAX];

	if (!path_of(with, tree, file, ""))
		return fails("%s", tree);
	if (mount(with, file, NULL, MS_BIND, NULL) != 0)
		return fails("%s", file);
	seal(file);
	return true;
}

/* own_sys shows the interfaces of the network that was joined in /sys/class/net, which are those of whoever mounts it.
 * What is mounted below the former one and has nothing to do with networks, groups of control, stays. Where the kernel
 * refuses it, programs that look there see the machine's. */
static void own_sys(void)
{
	static const char kept[] = "/sys/fs/cgroup";
	int fd = open(kept, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[64];

	if (mount("softib", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
		fails("/sys of the network");
	else if (fd >= 0) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (mount(path, kept, NULL, MS_BIND | MS_REC, NULL) != 0)
			fails("%s", kept);
	}
	if (fd >= 0)
		close(fd);
}

/* furnish shows the tree. The working folder stays. */
static bool furnish(const char *tree)
{
	int home = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool ok = true;

	/* Nothing that happens here is to be seen outside; what is mounted outside later is to be seen here. */
	if (home < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
		fails("a mount namespace of its own");
		if (home >= 0)
			close(home);
		return false;
	}
	if (in_net)
		own_sys();
	for (size_t i = 0; i < sizeof shadowed / sizeof *shadowed; i++)
		ok &= shadow(tree, shadowed[i].dir) || !shadowed[i].needed;
	for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
		replace(tree, replaced[i]); /* not every machine has the file */
	if (fchdir(home) != 0)
		ok = fails("the working folder");
	close(home);
	return ok;
}

static bool put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return n == (ssize_t)strlen(text);
}

/* new_user makes a user namespace in which the user is who they were. */
static bool new_user(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER) != 0)
		return fails("a user namespace");
	/* Who may not set groups may map their own; kernels before 3.19 have no such file, and no such rule. */
	if (!put("/proc/self/setgroups", "deny") && errno != ENOENT)
		return fails("/proc/self/setgroups");
	snprintf(map, sizeof map, "%u %u 1", uid, uid);
	if (!put("/proc/self/uid_map", map))
		return fails("/proc/self/uid_map");
	snprintf(map, sizeof map, "%u %u 1", gid, gid);
	if (!put("/proc/self/gid_map", map))
		return fails("/proc/self/gid_map");
	return true;
}

/* drop gives up what the namespace gave. */
static void drop(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];

	memset(none, 0, sizeof none);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) != 0)
		fails("giving up capabilities");
}

/* Interfaces of one network, and descriptors that tell of it. */
#define INTERFACES_MAX 16
#define SENT_MAX (INTERFACES_MAX + 6)

/* hand sends descriptors. */
static bool hand(int socket, const int *fds, size_t n)
{
	char byte = 0;
	struct iovec io = {&byte, 1};
	union {
		char room[CMSG_SPACE(SENT_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = CMSG_SPACE(n * sizeof *fds)};
	struct cmsghdr *c;

	memset(&control, 0, sizeof control);
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof *fds);
	memcpy(CMSG_DATA(c), fds, n * sizeof *fds);
	return sendmsg(socket, &m, MSG_NOSIGNAL) >= 0;
}

/* testify sends a descriptor of the file system that ends with the namespace. */
static void testify(int socket)
{
	int fd = open(WITNESS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		fails("%s", WITNESS);
		return;
	}
	if (!hand(socket, &fd, 1))
		fails("the fabric does not hear of this program");
	close(fd);
}

/* may_new_user lets a child try. A process that has made a namespace in which it may not be who it was is nobody there,
 * for good: root of a container without CAP_SETFCAP is such a one. */
static bool may_new_user(void)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(!new_user());
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return fails("a user namespace");
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* join_user enters the fabric's user namespace. A program of the fabric that starts another is in that namespace
 * already, and one in a container is in another: neither has a right in it, and makes one below its own. Long
 * messages then go by pipes. */
static bool join_user(int user)
{
	return setns(user, CLONE_NEWUSER) == 0 || (may_new_user() && new_user());
}

/* enter joins or makes the namespaces. in_user says whether capabilities come from a namespace, and have to go. */
static bool enter(int user, int net, bool *in_user)
{
	if (user >= 0) {
		if (!join_user(user))
			return false;
		*in_user = true;
	}
	if (net >= 0) {
		if (setns(net, CLONE_NEWNET) != 0)
			return fails("the network");
		in_net = true;
	}
	if (unshare(CLONE_NEWNS) != 0)
		return fails("a mount namespace");
	return true;
}

/* address puts text with its length in bits into the host's interface; it is of either family. */
static bool address(const char *name, char *text)
{
	struct ifreq r = {0};
	struct {
		struct in6_addr addr;
		unsigned bits;
		int index;
	} r6 = {.index = if_nametoindex(name)}; /* struct in6_ifreq, whose header does not go with libc's */
	struct sockaddr_in *in = (struct sockaddr_in *)&r.ifr_addr;
	char *slash = strchr(text, '/');
	int fd, saved;
	bool ok;

	if (!slash) {
		errno = EINVAL;
		return false;
	}
	*slash = '\0';
	if (inet_pton(AF_INET6, text, &r6.addr) == 1) {
		r6.bits = atoi(slash + 1);
		fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		ok = fd >= 0 && ioctl(fd, SIOCSIFADDR, &r6) == 0;
	} else {
		snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
		in->sin_family = AF_INET;
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		ok = fd >= 0 && inet_pton(AF_INET, text, &in->sin_addr) == 1 && ioctl(fd, SIOCSIFADDR, &r) == 0;
		in->sin_addr.s_addr = htonl(~0u << (32 - atoi(slash + 1)));
		ok = ok && ioctl(fd, SIOCSIFNETMASK, &r) == 0;
	}
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return ok;
}

/* raise_up takes an interface up, with an MTU unless that is 0. */
static bool raise_up(const char *name, int mtu)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), saved;
	bool ok = fd >= 0;

	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
	if (ok && mtu) {
		r.ifr_mtu = mtu;
		ok = ioctl(fd, SIOCSIFMTU, &r) == 0;
	}
	ok = ok && ioctl(fd, SIOCGIFFLAGS, &r) == 0;
	r.ifr_flags |= IFF_UP;
	ok = ok && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return ok;
}

/* groups_by has multicasts leave by an interface if a program names none, as they do where there is a gateway. */
static bool groups_by(char *name)
{
	struct rtentry r = {.rt_flags = RTF_UP, .rt_dev = name};
	struct sockaddr_in *to = (struct sockaddr_in *)&r.rt_dst, *mask = (struct sockaddr_in *)&r.rt_genmask;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), saved;
	bool ok;

	to->sin_family = mask->sin_family = AF_INET;
	to->sin_addr.s_addr = htonl(0xe0000000);
	mask->sin_addr.s_addr = htonl(0xf0000000);
	ok = fd >= 0 && ioctl(fd, SIOCADDRT, &r) == 0;
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return ok;
}

/* interface makes one, as text says: a TUN device, which leaves checksums and segments of TCP to whoever has the
 * descriptor. */
static int interface(char *text)
{
	struct ifreq r = {0};
	char *rest = text, *name = strsep(&rest, ","), *mtu = strsep(&rest, ","), *ip, path[128];
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK), size = 10; /* struct virtio_net_hdr */

	if (fd < 0) {
		fails("/dev/net/tun");
		return -1;
	}
	r.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
	if (ioctl(fd, TUNSETIFF, &r) != 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) != 0 ||
		ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0 || !mtu || !raise_up(name, atoi(mtu))) {
		fails("interface %s", name);
		goto failed;
	}
	/* What tells a sender that nobody has an address comes from the sender's own, as if the kernel had said it. */
	snprintf(path, sizeof path, "/proc/sys/net/ipv4/conf/%s/accept_local", name);
	if (!put(path, "1"))
		fails("%s", path);
	while ((ip = strsep(&rest, ",")))
		if (*ip && !address(name, ip)) {
			fails("address %s of interface %s", ip, name);
			goto failed;
		}
	return fd;
failed:
	close(fd);
	return -1;
}

/* make_net makes a network, or adds to that of -w, and sends: the namespace, a socket that tells of its addresses, the
 * files that tell of its multicast groups and of its connections, and the interfaces. */
static int make_net(int socket_fd, int user, int net, char **interfaces, int count)
{
	int fds[SENT_MAX] = {-1}, n = 0;
	struct sockaddr_nl group = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
	char range[64];

	verbose = true;
	if (user >= 0 && !join_user(user))
		return 1;
	if (net >= 0 ? setns(net, CLONE_NEWNET) != 0 : unshare(CLONE_NEWNET) != 0) {
		fails("a network namespace");
		return 1;
	}
	if (net < 0) {
		if (!raise_up("lo", 0)) {
			fails("interface lo");
			return 1;
		}
		/* ping needs no privilege then. */
		snprintf(range, sizeof range, user >= 0 ? "%u %u" : "0 2147483647", getegid(), getegid());
		if (!put("/proc/sys/net/ipv4/ping_group_range", range))
			fails("ping_group_range");
	}
	fds[n++] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	fds[n++] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	fds[n++] = open("/proc/self/net/igmp", O_RDONLY | O_CLOEXEC);
	fds[n++] = open("/proc/self/net/igmp6", O_RDONLY | O_CLOEXEC);
	fds[n++] = open("/proc/self/net/tcp", O_RDONLY | O_CLOEXEC);
	fds[n++] = open("/proc/self/net/tcp6", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < n; i++)
		if (fds[i] < 0) {
			fails("what tells of the network");
			return 1;
		}
	if (bind(fds[1], (struct sockaddr *)&group, sizeof group) != 0) {
		fails("news of addresses");
		return 1;
	}
	for (int i = 0; i < count; i++)
		if ((fds[n++] = interface(interfaces[i])) < 0)
			return 1;
	if (net < 0 && count > 0 && !groups_by(interfaces[0])) /* strsep has left the name alone there */
		fails("multicasts by %s", interfaces[0]);
	if (!hand(socket_fd, fds, n)) {
		fails("handing over the network");
		return 1;
	}
	return 0;
}

static int probe(const char *tree, bool fresh)
{
	char byte;

	verbose = true;
	if (fresh && !new_user())
		return 1;
	if (unshare(CLONE_NEWNS) != 0) {
		fails("a mount namespace");
		return 1;
	}
	if (!furnish(tree))
		return 1;
	if (write(STDOUT_FILENO, "ok\n", 3) != 3)
		return 1;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

static int usage(void)
{
	fputs("softib-enter: started by softib exec; next: softib exec --help\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	const char *tree = NULL;
	char *interfaces[INTERFACES_MAX];
	int c, user = -1, report = -1, net = -1, made = -1, count = 0;
	bool probing = false, fresh = false, in_user = false;

	while ((c = getopt(argc, argv, "+vpnu:r:t:w:m:i:")) != -1) {
		switch (c) {
		case 'v': verbose = true; break;
		case 'p': probing = true; break;
		case 'n': fresh = true; break;
		case 'u': user = atoi(optarg); break;
		case 'r': report = atoi(optarg); break;
		case 't': tree = optarg; break;
		case 'w': net = atoi(optarg); break;
		case 'm': made = atoi(optarg); break;
		case 'i':
			if (count == INTERFACES_MAX)
				return usage();
			interfaces[count++] = optarg;
			break;
		default: return usage();
		}
	}
	if (made >= 0)
		return make_net(made, user, net, interfaces, count);
	if (!tree || *tree != '/')
		return usage();
	if (probing)
		return probe(tree, fresh);
	if (argc - optind < 2)
		return usage();
	if (enter(user, net, &in_user) && furnish(tree) && report >= 0)
		testify(report);
	/* Without its network a program would speak to somebody else. */
	if (net >= 0 && !in_net) {
		fprintf(stderr, "softib: the network of the host: %s\n", strerror(errno));
		return 1;
	}
	if (in_user)
		drop();
	if (user >= 0)
		close(user);
	if (net >= 0)
		close(net);
	if (report >= 0)
		close(report);
	execv(argv[optind], argv + optind + 1);
	fprintf(stderr, "softib: %s: %s\n", argv[optind], strerror(errno));
	return 1;
}
