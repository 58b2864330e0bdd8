//! Machines on volumes from outside, by the command line: with a real libvirt, QEMU and daemon.

mod clones;
mod consoles;
mod disks;
mod fixture;
mod freeze;
mod life;
mod starting;
