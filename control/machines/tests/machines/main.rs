//! End-to-end tests of machines with the command line, and a real libvirt, QEMU and daemon.

mod clones;
mod consoles;
mod disks;
mod fixture;
mod freeze;
mod life;
mod starting;
