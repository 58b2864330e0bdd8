//! The machine, as far as a run must know it before it begins.

use std::fs;

/// Memory that can be had without swapping, as the kernel estimates it; 0 when it does not tell.
pub(crate) fn memory_available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    meminfo_bytes(&text, "MemAvailable").unwrap_or(0)
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_line_of_its_name() {
        let text = "MemFree:  1 kB\nMemAvailable:   20 kB\n";
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(20 << 10));
        assert_eq!(meminfo_bytes(text, "Swap"), None);
    }
}
