//! Boot order: the disk, or the CD-ROM if the disk is not bootable.

use anyhow::{Result, ensure};
use api::MachinesCreated;
use system::{NbdClient, Request};

use crate::fixture::{Fixture, PLAIN, lacks};

const SECTOR_BYTES: usize = 512;
const DISC_SECTOR_BYTES: usize = 2048;

/// Sectors of the disc as in El Torito: two descriptors, the terminator, the catalogue, the code.
const DISC_DESCRIPTOR: u8 = 16;
const DISC_BOOT_RECORD: u8 = 17;
const DISC_END: u8 = 18;
const DISC_CATALOGUE: u8 = 19;
const DISC_CODE: u8 = 20;
const DISC_SECTORS: usize = 64;

/// A boot sector that writes to the first serial port and then halts.
fn boot_sector(text: &str) -> Vec<u8> {
    // mov dx, 0x3f8
    let mut code = vec![0xba, 0xf8, 0x03];
    for letter in text.bytes() {
        // mov al, letter; out dx, al
        code.extend([0xb0, letter, 0xee]);
    }
    // hlt; jmp to it
    code.extend([0xf4, 0xeb, 0xfd]);
    code.resize(SECTOR_BYTES, 0);
    code[SECTOR_BYTES - 2..].copy_from_slice(&[0x55, 0xaa]);
    code
}

/// A bootable CD-ROM image with the code.
fn disc(code: &[u8]) -> Vec<u8> {
    let mut disc = vec![0; DISC_SECTORS * DISC_SECTOR_BYTES];
    let mut put = |sector: u8, at: usize, bytes: &[u8]| {
        let begin = usize::from(sector) * DISC_SECTOR_BYTES + at;
        disc[begin..begin + bytes.len()].copy_from_slice(bytes);
    };
    put(DISC_DESCRIPTOR, 0, b"\x01CD001\x01");
    put(DISC_BOOT_RECORD, 0, b"\x00CD001\x01EL TORITO SPECIFICATION");
    put(DISC_BOOT_RECORD, 0x47, &[DISC_CATALOGUE, 0, 0, 0]);
    put(DISC_END, 0, b"\xffCD001\x01");
    // The words of the validation entry add up to zero.
    put(DISC_CATALOGUE, 0, &[1]);
    put(DISC_CATALOGUE, 0x1c, &[0xaa, 0x55, 0x55, 0xaa]);
    // Default entry: no emulation, four sectors of 512 bytes at the sector of the code.
    put(DISC_CATALOGUE, 0x20, &[0x88, 0, 0, 0, 0, 0, 4, 0, DISC_CODE, 0, 0, 0]);
    put(DISC_CODE, 0, code);
    disc
}

#[test]
fn a_machine_starts_from_its_disk_and_else_from_its_disc() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let fixture = Fixture::start(PLAIN)?;
    fixture.boot_file("disc.iso", &disc(&boot_sector("FROM-DISC\n")))?;
    let more = ["--cdrom", "disc.iso", "--memory", "64MiB", "--start"];
    let empty = [&["create", "desk", "--size", "16MiB"], &more[..]].concat();
    let _: MachinesCreated = fixture.ask(&empty)?;
    fixture.wait_for_console("desk", "FROM-DISC", 1)?;

    fixture.daemon.memlane("volume create system --size 16MiB")?;
    let mut client = NbdClient::connect(&fixture.daemon.nbd_socket(), "system")?;
    client.ask(&Request::Write { offset: 0, data: boot_sector("FROM-DISK\n") })?;
    drop(client);
    let full = [&["create", "host", "--volume", "system"], &more[..]].concat();
    let _: MachinesCreated = fixture.ask(&full)?;
    fixture.wait_for_console("host", "FROM-DISK", 1)?;
    ensure!(!fixture.console("host").contains("FROM-DISC"), "{}", fixture.console("host"));
    fixture.vm(&["kill", "desk", "host"]).check()?;
    fixture.vm(&["delete", "desk", "host", "--with-volumes"]).check()?;
    fixture.finish()
}
