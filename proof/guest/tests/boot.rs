//! The real programs in a separate virtual machine, under Debian's kernel, and the properties of
//! such a machine that tests rely on: its sockets are reachable from the host, and its power can be
//! cut.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use block_device::BlockDevice;
use guest::{Cut, Disk, Guest, GuestDaemon, GuestOptions, Image, ImageContents, VolatileDisk};
use system::{NbdClient, Random, Request};

const TIME_LIMIT: Duration = Duration::from_secs(240);

const PRODUCTS: &[&str] = &["memlaned", "memlane"];

const FIO: &str = "fio --name=v --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=4k \
                   --size=8M --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
                   --output=/tmp/fio";

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;
const DISK_BYTES: u64 = 16 << 20;

fn boot(programs: &'static [&'static str], disks: Vec<Disk>) -> Result<Guest> {
    let image = Image::build(ImageContents { products: PRODUCTS, programs, modules: &[] })?;
    let begun = Instant::now();
    let guest = Guest::boot(&image, &GuestOptions::small(disks))?;
    eprintln!("measured: a guest is ready after {:.1?}", begun.elapsed());
    Ok(guest)
}

#[test]
fn an_attached_volume_carries_a_file_system_under_debians_kernel() -> Result<()> {
    let guest = boot(&["fio", "mkfs.ext4", "e2fsck"], Vec::new())?;
    let daemon = GuestDaemon::start(&guest, "--pool-size 256MiB")?;
    daemon.memlane("volume create v --size 64MiB")?;
    let device = daemon.memlane("attach v")?;
    let device = device.trim();
    guest.check(&format!("mkfs.ext4 -q {device} && mount {device} /mnt"), TIME_LIMIT)?;
    guest.check(&format!("{FIO} --filename=/mnt/f && umount /mnt"), TIME_LIMIT)?;
    guest.check(&format!("e2fsck -fn {device}"), TIME_LIMIT)?;
    daemon.memlane("detach v")?;
    daemon.stop()?;
    guest.power_off()
}

#[test]
fn a_server_in_the_guest_is_reached_through_a_socket_of_the_host() -> Result<()> {
    let mut guest = boot(&[], Vec::new())?;
    let socket = guest.forward(Path::new("/run/memlane/nbd.sock"))?;
    let daemon = GuestDaemon::start(&guest, "--pool-size 64MiB --no-fuse")?;
    daemon.memlane("volume create v --size 16MiB")?;
    let mut noise = vec![0; 1 << 20];
    Random::new(1).fill(&mut noise);
    let mut client = NbdClient::connect(&socket, "v")?;
    ensure!(client.size_bytes() == 16 << 20, "the volume has {} bytes", client.size_bytes());
    client.ask(&Request::Write { offset: 4096, data: noise.clone() })?;
    let length = u32::try_from(noise.len())?;
    let found = NbdClient::connect(&socket, "v")?.ask(&Request::Read { offset: 4096, length })?;
    ensure!(found == noise, "the volume holds something else");
    daemon.stop()?;
    guest.power_off()
}

#[test]
fn a_power_cut_takes_what_the_guest_did_not_flush_and_leaves_what_it_did() -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(DISK_BYTES)?;
    let disk = Arc::new(VolatileDisk::holding(file.path(), Duration::ZERO)?);
    let guest = boot(&[], vec![Disk::Volatile(Arc::clone(&disk))])?;
    let fill = "tr '\\0' x </dev/zero | dd of=/dev/vda bs=4096 count=16 iflag=fullblock";
    guest.check(&format!("{fill} seek=0 conv=fsync"), TIME_LIMIT)?;
    guest.check(&format!("{fill} seek=16 oflag=direct"), TIME_LIMIT)?;
    let blocks = || -> Result<Vec<u8>> {
        let mut bytes = vec![0; 32 * BLOCK_BYTES];
        disk.read(0, &mut bytes)?;
        let first = bytes.chunks(BLOCK_BYTES).map(|block| block.first().copied());
        first.collect::<Option<_>>().context("every block has a first byte")
    };
    ensure!(blocks()? == [b'x'; 32], "the guest wrote something else: {:?}", blocks()?);
    guest.cut_power()?;
    let at_stake = disk.cut_power(Cut::LosesAll, &mut Random::new(1))?;
    ensure!(at_stake == 16 * BLOCK_BYTES, "{at_stake} bytes were not flushed");
    let expected = [[b'x'; 16], [0; 16]].concat();
    ensure!(blocks()? == expected, "the cut left {:?}", blocks()?);
    Ok(())
}

#[test]
fn a_kernel_that_panics_while_it_starts_is_started_again_but_not_for_ever() -> Result<()> {
    let image = Image::build(ImageContents { products: &[], programs: &[], modules: &[] })?;
    let no_program = "rdinit=/none root=/dev/none";
    let options = GuestOptions { kernel_words: no_program, ..GuestOptions::small(Vec::new()) };
    let error = Guest::boot(&image, &options).err().context("it started without a program")?;
    ensure!(format!("{error:#}").contains("ended before it was ready"), "{error:#}");
    Ok(())
}
