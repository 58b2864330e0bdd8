#!/bin/sh
# Boots the Debian in a folder, in namespaces and a control group of its own, until it powers off: boot.sh FOLDER SECONDS
set -e
if [ "$3" != inside ]; then
    group=$(mktemp -d "$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)/memlane-boot.XXXXXX")
    trap 'echo 1 >"$group/cgroup.kill"; for try in $(seq 50); do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.2; done' EXIT
    sh -c 'echo $$ >"$0/cgroup.procs"; exec timeout "$3" unshare -m -p -f -n -i -u -C --kill-child sh "$1" "$2" "$3" inside' \
        "$group" "$0" "$1" "$2" || true
    exit
fi
mount --make-rprivate /
mount --bind "$1" "$1" && cd "$1"
mount -t proc proc proc && mount --bind proc/sys proc/sys && mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in dev run tmp; do mount -t tmpfs tmpfs $folder; done
mkdir dev/shm dev/pts && mount -t devpts devpts dev/pts && ln -s pts/ptmx dev/ptmx && ln -s /proc/self/fd dev/fd
# Nodes of its own: systemd gives the console another owner and mode, and the host's are for all.
stat -c 'mknod -m 666 .%n c %Hr %Lr' /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fuse | sh -e && mknod dev/console c 1 3
pivot_root . mnt
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . sh -c 'umount -l /mnt && exec /lib/systemd/systemd'
