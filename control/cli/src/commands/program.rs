//! Inspection of a program before it is run: whether it exists, and whether it will load the
//! library that bypasses the kernel.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum number of nested interpreters, as in the kernel.
const SCRIPT_DEPTH_MAX: usize = 4;

/// Maximum length of a script's first line, as in the kernel.
const FIRST_LINE_BYTES_MAX: u64 = 256;

/// Mode bits of set-user-ID and set-group-ID.
const GAINS_RIGHTS: u32 = 0o6000;

/// Reason for which a program runs without the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// It has no dynamic linker to load the library.
    Static,
    /// Its word size differs from the library's.
    OtherKind,
    GainsRights,
}

impl Unserved {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Static => "is statically linked and ignores LD_PRELOAD",
            Self::OtherKind => "is not a 64-bit program",
            Self::GainsRights => "is setuid or has file capabilities and ignores LD_PRELOAD",
        }
    }
}

/// Finds a program as the system would: by its path, or in `PATH`.
pub(super) fn find(name: &Path, search_path: Option<&std::ffi::OsStr>) -> io::Result<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return check(name).map(|()| name.to_owned());
    }
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in search_path.iter().flat_map(std::env::split_paths) {
        let path = folder.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            // A file without execute permission is skipped, and reported only if no other is found.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn check(path: &Path) -> io::Result<()> {
    let status = std::fs::metadata(path)?;
    match status.is_file() && status.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns the reason for which the program at `path` will run without the library, if that can be
/// detected. An unreadable file is left to the attempt to run it.
pub(super) fn unserved(path: &Path) -> Option<Unserved> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPT_DEPTH_MAX {
        let file = File::open(&path).ok()?;
        let status = file.metadata().ok()?;
        match interpreter(&file) {
            Some(interpreter) => path = interpreter,
            None if status.permissions().mode() & GAINS_RIGHTS != 0 => {
                return Some(Unserved::GainsRights);
            }
            None => return unserved_elf(&file),
        }
    }
    None
}

/// Interpreter of a script.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut line = Vec::new();
    file.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let words = std::str::from_utf8(line).ok()?;
    words.split_whitespace().next().map(PathBuf::from)
}

/// Inspects an ELF file (elf(5)). A dynamically linked program has a header with its linker.
fn unserved_elf(file: &File) -> Option<Unserved> {
    const CLASS_64: u8 = 2;
    const LINKER: u32 = 3;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if head[..4] != *b"\x7fELF" {
        return None;
    }
    if head[4] != CLASS_64 {
        return Some(Unserved::OtherKind);
    }
    let table = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let size = u64::from(u16::from_le_bytes([head[54], head[55]]));
    let count = u64::from(u16::from_le_bytes([head[56], head[57]]));
    for number in 0..count {
        let mut kind = [0; 4];
        let at = number.checked_mul(size)?.checked_add(table)?;
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_le_bytes(kind) == LINKER {
            return None;
        }
    }
    Some(Unserved::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one program header of the given kind.
    fn elf(class: u8, header_kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes.extend(header_kind.to_le_bytes());
        bytes.resize(64 + 56, 0);
        bytes
    }

    #[track_caller]
    fn check_unserved(contents: &[u8], mode: u32, expected: Option<Unserved>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        std::fs::write(&path, contents).expect("it is written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("it has a mode");
        assert_eq!(unserved(&path), expected);
    }

    #[test]
    fn programs_that_load_no_library_are_known() {
        check_unserved(&elf(2, 3), 0o755, None);
        check_unserved(&elf(2, 1), 0o755, Some(Unserved::Static));
        check_unserved(&elf(1, 3), 0o755, Some(Unserved::OtherKind));
        check_unserved(&elf(2, 3), 0o4755, Some(Unserved::GainsRights));
        check_unserved(b"", 0o755, None);
        check_unserved(b"#!/nosuch/interpreter -x\n", 0o755, None);
        let own = std::env::current_exe().expect("this program has a path");
        check_unserved(format!("#! {}\n", own.display()).as_bytes(), 0o755, unserved(&own));
    }

    #[test]
    fn programs_are_found_as_the_system_finds_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let search = Some(folder.path().as_os_str());
        let kind = |found: io::Result<PathBuf>| found.map_err(|error| error.kind());
        let path = folder.path().join("tool");
        assert_eq!(kind(find("tool".as_ref(), search)), Err(io::ErrorKind::NotFound));
        std::fs::write(&path, "").expect("it is written");
        assert_eq!(kind(find("tool".as_ref(), search)), Err(io::ErrorKind::PermissionDenied));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it has a mode");
        assert_eq!(kind(find("tool".as_ref(), search)), Ok(path.clone()));
        assert_eq!(kind(find(&path, None)), Ok(path));
        assert_eq!(kind(find("/nosuch".as_ref(), search)), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(find("/".as_ref(), search)), Err(io::ErrorKind::PermissionDenied));
    }
}
