//! Sizes as text: `4KiB`, `10GiB`, `10G`, `4096`.
//!
//! All units are powers of 1024, and `G` means GiB. Decimal units (`GB`) are ambiguous in practice
//! and therefore rejected.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use units::UNITS;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A size in bytes. Serialized to JSON as a number; parsed from a number or a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Formats the size for people: three significant digits in the largest unit that fits, such as
    /// `1.53 GiB`.
    pub fn rounded(self) -> String {
        units::three_digits(self.0)
    }
}

/// Formats a count with its noun, whose plural ends with `s`: `1 block`, `2 blocks`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Formats the size exactly, in the largest unit that divides it, so that the text parses to the
/// same size.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match UNITS.into_iter().find(|&(_, shift)| shift > 0 && divides(shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Error for an invalid size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("invalid size {0:?}; use a whole number and a unit, for example 4KiB, 512M or 10GiB")]
    NotANumber(String),
    #[error("unknown unit {0:?}; use B, KiB, MiB, GiB, TiB or PiB (K, M, G, T, P for short)")]
    UnknownUnit(String),
    #[error("size {0:?} is too large")]
    TooLarge(String),
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        if digits.is_empty() || unit.starts_with(['.', ',']) {
            return Err(SizeError::NotANumber(text.to_owned()));
        }
        let shift = unit_shift(unit.trim_start())?;
        let too_large = || SizeError::TooLarge(text.to_owned());
        let count: u64 = digits.parse().map_err(|_| too_large())?;
        count.checked_mul(1 << shift).map(Self).ok_or_else(too_large)
    }
}

fn unit_shift(unit: &str) -> Result<u32, SizeError> {
    if unit.is_empty() {
        return Ok(0);
    }
    UNITS
        .into_iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(&name[..1]))
        .map(|(_, shift)| shift)
        .ok_or_else(|| SizeError::UnknownUnit(unit.to_owned()))
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes or a size such as \"10GiB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size cannot be negative"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

impl PartialSchema for ByteSize {
    fn schema() -> RefOr<Schema> {
        let bytes = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(1))
            .description(Some("bytes"));
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^0*[1-9][0-9]* *([KMGTP]i?B|[KMGTPB])?$"))
            .description(Some("a whole number and a unit that is a power of 1024; G means GiB"))
            .examples(["4KiB", "10GiB", "10G"]);
        OneOfBuilder::new().item(bytes).item(text).into()
    }
}

impl ToSchema for ByteSize {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Size")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let counts = [0, 1, 2].map(|count| counted(count, "block"));
        assert_eq!(counts, ["0 blocks", "1 block", "2 blocks"]);
    }

    #[track_caller]
    fn check(text: &str, bytes: u64) {
        assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
    }

    #[test]
    fn a_size_is_a_number_and_a_unit_of_1024() {
        check("0", 0);
        check("4096", 4096);
        check("4096B", 4096);
        check("4KiB", 4 << 10);
        check("4 kib", 4 << 10);
        check("512M", 512 << 20);
        check("10G", 10 << 30);
        check("10GiB", 10 << 30);
        check("64TiB", 64 << 40);
        check("1P", 1 << 50);
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_text_in_the_message() {
        let refused = |text: &str| text.parse::<ByteSize>().expect_err("no size").to_string();
        for text in ["", "GiB", "-1", "1.5GiB", "ten"] {
            assert!(refused(text).contains("invalid size"), "{text:?}: {}", refused(text));
        }
        for text in ["10GB", "10X", "10Gi"] {
            assert!(refused(text).contains("unit"), "{text:?}: {}", refused(text));
        }
        for text in ["99999999999999999999", "16384P"] {
            assert!(refused(text).contains("too large"), "{text:?}: {}", refused(text));
        }
    }

    #[test]
    fn a_printed_size_reads_back_as_the_same_size() {
        for bytes in [0, 1, 511, 4096, 4097, 1 << 20, (1 << 30) + (1 << 20), u64::MAX] {
            check(&ByteSize(bytes).to_string(), bytes);
        }
        assert_eq!(ByteSize(10 << 30).to_string(), "10GiB");
    }

    #[test]
    fn a_rounded_size_has_three_significant_digits() {
        let rounded = |bytes| ByteSize(bytes).rounded();
        assert_eq!(rounded(0), "0 B");
        assert_eq!(rounded(1023), "1023 B");
        assert_eq!(rounded(1536), "1.50 KiB");
        assert_eq!(rounded(15 << 20 | 1 << 19), "15.5 MiB");
        assert_eq!(rounded(150 << 30), "150 GiB");
        assert_eq!(rounded(u64::MAX), "16383 PiB");
    }

    #[test]
    fn json_takes_a_number_or_a_text_and_gives_a_number() {
        let read = |json: &str| serde_json::from_str::<ByteSize>(json).map_err(|e| e.to_string());
        assert_eq!(read("4096"), Ok(ByteSize(4096)));
        assert_eq!(read("\"4KiB\""), Ok(ByteSize(4096)));
        assert!(read("-1").is_err_and(|error| error.contains("cannot be negative")));
        assert!(read("true").is_err_and(|error| error.contains("such as \"10GiB\"")));
        assert_eq!(serde_json::to_string(&ByteSize(4096)).ok().as_deref(), Some("4096"));
    }
}
