#!/bin/sh
# Runs in a container that has booted: installs, uses, upgrades, removes and purges the packages.
set -ex
dpkg -i /trial/old/*.deb
printf 'daemon = "/run/memlane"\nanonymous = "loopback"\n' >/etc/memlane/memlane-broker.toml
systemctl start memlaned memlane-console memlane-machines memlane-broker
until memlane volume create db --size 8MiB; do sleep 1; done
old=$(systemctl show -p MainPID --value memlaned)
dpkg -i --force-confold /trial/new/*.deb
until memlane volume show db; do sleep 1; done
[ "$(systemctl show -p MainPID --value memlaned)" != "$old" ]
systemctl is-active memlaned memlane-console memlane-machines memlane-broker
memlane vm list 2>&1 | grep libvirt; grep loopback /etc/memlane/memlane-broker.toml
cd /usr/share && ls man/man3/memlane.h.3.gz man/man8/memlaned.8.gz man/man8/memlane-machines.8.gz man/man1/memlane-volume-create.1.gz && ls bash-completion/completions/memlane-console zsh/vendor-completions/_memlane-console
if dpkg --purge --force-depends memlane; then exit 1; fi
systemctl stop memlane-broker; for name in $(memlane volume list -o NAME | sed 1d); do memlane volume delete --force "$name"; done
dpkg --remove $(dpkg-query -W -f '${Package} ' 'memlane*') && [ ! -e /run/memlane ] && [ -e /var/lib/memlane-console ]
dpkg --purge memlane memlane-dev memlane-console memlane-csi memlane-machines memlane-broker
[ -z "$(getent group memlane; getent passwd memlane-console; getent passwd memlane-broker; ls -d /etc/memlane /run/memlane* /usr/bin/memlane* /var/lib/memlane* 2>/dev/null; ls -l /proc/[0-9]*/exe | grep memlane)" ]
echo finished
