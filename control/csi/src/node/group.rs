//! Group ownership of a volume's files (fsGroup).
//!
//! All files are changed once, the top folder last. If the top folder already belongs to the group,
//! nothing is scanned. Symbolic links are not followed, because programs in pods may replace them
//! concurrently.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, chownat, fchmod, fchown, fstat, openat,
};
use rustix::io::Errno;
use tonic::Status;

use super::programs::failed;

/// Maximum depth of folders. Each level takes a descriptor.
const DEPTH_MAX: usize = 512;

/// Permissions of the group. Folders get the setgid bit, so that new files inherit the group.
const FILE_BITS: u32 = 0o060;
const FOLDER_BITS: u32 = 0o2070;

/// Gives all files below `top` to the group, unless that has been done.
pub(super) fn give(top: &Path, group: &str) -> Result<(), Status> {
    let number = group.parse().map_err(|_| {
        Status::invalid_argument(format!("invalid fsGroup {group:?}: not a number"))
    })?;
    let gid = Gid::from_raw(number);
    let io = |error: Errno| failed("change the group of", top, &error.into());
    let folder = File::open(top).map_err(|error| failed("open", top, &error))?;
    let found = fstat(&folder).map_err(io)?;
    if found.st_gid == number && found.st_mode & FOLDER_BITS == FOLDER_BITS {
        return Ok(());
    }
    let folder = OwnedFd::from(folder);
    give_below(&folder, gid).map_err(io)?;
    give_one(&folder, gid, &found).map_err(io)
}

/// A folder whose entries are being changed.
struct Level {
    folder: OwnedFd,
    entries: Dir,
    found: Stat,
}

fn give_below(top: &OwnedFd, gid: Gid) -> Result<(), Errno> {
    let mut levels = vec![level(top.try_clone().map_err(|_| Errno::MFILE)?)?];
    while let Some(last) = levels.last_mut() {
        let Some(entry) = last.entries.read() else {
            let done = levels.pop().expect("there is a last one");
            // The top folder is changed last.
            if !levels.is_empty() {
                give_one(&done.folder, gid, &done.found)?;
            }
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        if let Some(folder) = give_entry(&last.folder, name.to_owned(), gid)? {
            if levels.len() == DEPTH_MAX {
                return Err(Errno::LOOP);
            }
            levels.push(level(folder)?);
        }
    }
    Ok(())
}

fn level(folder: OwnedFd) -> Result<Level, Errno> {
    let (entries, found) = (Dir::read_from(&folder)?, fstat(&folder)?);
    Ok(Level { folder, entries, found })
}

/// Changes one file. A folder is returned instead, for the caller to descend into.
fn give_entry(folder: &OwnedFd, name: CString, gid: Gid) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, &name, flags, Mode::empty()) {
        Ok(file) => file,
        // The file was deleted concurrently.
        Err(Errno::NOENT) => return Ok(None),
        // A symbolic link, socket or device.
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
            return match chownat(folder, &name, None, Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(None),
                given => given.map(|()| None),
            };
        }
        Err(error) => return Err(error),
    };
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return Ok(Some(file));
    }
    give_one(&file, gid, &found)?;
    Ok(None)
}

fn give_one(file: &OwnedFd, gid: Gid, found: &Stat) -> Result<(), Errno> {
    fchown(file, None, Some(gid))?;
    let bits = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => FOLDER_BITS,
        FileType::RegularFile => FILE_BITS,
        _ => return Ok(()),
    };
    fchmod(file, Mode::from_raw_mode(found.st_mode & 0o7777 | bits))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn group_and_mode(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).expect("it is there");
        (found.gid(), found.mode() & 0o7777)
    }

    #[test]
    fn files_are_given_to_the_group_once_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = folder.path().join("outside");
        fs::write(&outside, "x").expect("a file");
        let before = group_and_mode(&outside);
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("a/b")).expect("folders");
        let file = top.join("a/b/file");
        fs::write(&file, "x").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        symlink(&outside, top.join("a/link")).expect("a link");
        // Any user may give files to groups of which it is a member.
        let own = rustix::process::getegid().as_raw();
        give(&top, &own.to_string()).expect("it is given");
        assert_eq!(group_and_mode(&file), (own, 0o660));
        assert_eq!(group_and_mode(&top.join("a/b")).1 & FOLDER_BITS, FOLDER_BITS);
        assert_eq!(group_and_mode(&top).1 & FOLDER_BITS, FOLDER_BITS);
        assert_eq!(group_and_mode(&outside), before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        give(&top, &own.to_string()).expect("it was given");
        assert_eq!(group_and_mode(&file).1, 0o600, "nothing is looked at a second time");
        assert!(give(&top, "staff").is_err());
    }
}
