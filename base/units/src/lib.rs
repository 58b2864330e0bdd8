//! Size of a block, and formatting of sizes for messages, in the largest binary unit that fits.
//!
//! Sizes are parsed by `api::ByteSize`, not here.
#![forbid(unsafe_code)]

use std::fmt;

/// Size of a block: the unit of mapping, deduplication and compression, and of writes to stable
/// storage.
pub const BLOCK_BYTES: usize = 4096;

/// Binary units by name and power of two, the largest first.
pub const UNITS: [(&str, u32); 6] =
    [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// A size in bytes, formatted for messages: `32 MiB` if that is exact, otherwise with three
/// significant digits, `1.53 GiB`, rounded down so that free space is never overstated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = unit_of(self.0);
        match self.0.trailing_zeros() >= shift {
            true => write!(f, "{} {unit}", self.0 >> shift),
            false => f.write_str(&three_digits(self.0)),
        }
    }
}

/// Formats three significant digits in the largest unit that fits, even if fewer were exact: `1.00
/// GiB`. Intended for columns of numbers.
pub fn three_digits(bytes: u64) -> String {
    let (unit, shift) = unit_of(bytes);
    if shift == 0 {
        return format!("{bytes} {unit}");
    }
    let hundredths = (u128::from(bytes) * 100) >> shift;
    match hundredths {
        0..1_000 => format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{} {unit}", hundredths / 100, hundredths % 100 / 10),
        _ => format!("{} {unit}", hundredths / 100),
    }
}

/// The largest unit that is not larger than `bytes`.
fn unit_of(bytes: u64) -> (&'static str, u32) {
    UNITS.into_iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(("B", 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_exact_where_that_is_short() {
        let text = |bytes| Size(bytes).to_string();
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(32 << 20), "32 MiB");
        assert_eq!(text((32 << 20) + 4096), "32.0 MiB");
        assert_eq!(text((32 << 20) - 4096), "31.9 MiB");
        assert_eq!(text(3 << 39), "1.50 TiB");
    }

    #[test]
    fn columns_have_three_digits() {
        assert_eq!(three_digits(0), "0 B");
        assert_eq!(three_digits(1536), "1.50 KiB");
        assert_eq!(three_digits(15 << 20 | 1 << 19), "15.5 MiB");
        assert_eq!(three_digits(150 << 30), "150 GiB");
        assert_eq!(three_digits(u64::MAX), "16383 PiB");
    }
}
