//! Private memory of the process, which excludes the pool's region.

use std::{fs, io};

/// Anonymous resident memory of the process, as counted by the kernel: the memory of an engine and
/// of everything around it, without the region.
pub fn private_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    parse(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "RssAnon is missing in /proc/self/status")
    })
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_what_belongs_to_no_file() {
        let status = "VmRSS:\t  900 kB\nRssAnon:\t     512 kB\nRssFile:\t 300 kB\n";
        assert_eq!(parse(status), Some(512 << 10));
        assert_eq!(parse("VmRSS: 900 kB\n"), None);
    }

    #[test]
    fn memory_that_is_used_is_counted() {
        let before = private_bytes().expect("the kernel tells");
        let block = std::hint::black_box(vec![1_u8; 8 << 20]);
        let after = private_bytes().expect("the kernel tells");
        drop(block);
        assert!(after >= before + (4 << 20), "{before} and {after}");
    }
}
