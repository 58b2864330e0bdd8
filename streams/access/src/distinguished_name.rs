//! Distinguished name of a certificate's subject as text, in the RFC 2253 form that Java prints and
//! Kafka's access lists contain: most specific part first, `CN=alice,OU=team,O=Example`.
//!
//! Attribute types without a keyword are written as OIDs with the value's encoding in hexadecimal,
//! as in `1.2.840.113549.1.9.1=#1605612e622e63`. The certificate must have been verified. This
//! module parses its DER encoding (X.690) and returns `None` for unsupported encodings.

use std::fmt::Write;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;
/// Tag of the version field, which certificates of version 1 omit.
const VERSION: u8 = 0xa0;

/// Number of fields from the serial number to the subject: serial number, algorithm, issuer and
/// validity.
const FIELDS_BEFORE_SUBJECT: usize = 4;

/// Returns the subject of a DER-encoded certificate, or `None` if it is empty or unsupported.
pub(crate) fn subject_of(certificate: &[u8]) -> Option<String> {
    let certificate = Element::only(certificate, SEQUENCE)?;
    let (body, _) = Element::first(certificate.contents)?;
    let mut fields = Elements(body.of(SEQUENCE)?.contents).peekable();
    fields.next_if(|field| field.as_ref().is_some_and(|field| field.tag == VERSION));
    let subject = fields.nth(FIELDS_BEFORE_SUBJECT)??.of(SEQUENCE)?;
    let mut parts = Vec::new();
    for part in Elements(subject.contents) {
        let mut attributes = Vec::new();
        for attribute in Elements(part?.of(SET)?.contents) {
            attributes.push(text_of(&attribute?.of(SEQUENCE)?)?);
        }
        parts.push(attributes.join("+"));
    }
    parts.reverse();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// A DER element: tag, length, contents.
struct Element<'a> {
    tag: u8,
    contents: &'a [u8],
    /// Encoding including tag and length.
    whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// Parses the first element of `bytes`. Returns it and the remaining bytes.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&tag, rest) = bytes.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            // Three bytes of length suffice for any certificate.
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let is_short = (1..=3).contains(&digits.len());
            let length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (is_short.then_some(length)?, rest)
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        let whole = &bytes[..bytes.len() - rest.len()];
        Some((Self { tag, contents, whole }, rest))
    }

    /// Parses `bytes` as exactly one element with this tag.
    fn only(bytes: &'a [u8], tag: u8) -> Option<Self> {
        let (element, rest) = Self::first(bytes)?;
        if rest.is_empty() { element.of(tag) } else { None }
    }

    fn of(self, tag: u8) -> Option<Self> {
        (self.tag == tag).then_some(self)
    }
}

/// Iterator over consecutive elements. Yields `None` for a malformed element and then ends.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Option<Element<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let first = Element::first(self.0);
        self.0 = first.as_ref().map_or(&[], |(_, rest)| rest);
        Some(first.map(|(element, _)| element))
    }
}

/// Formats an attribute as `TYPE=value`.
fn text_of(attribute: &Element<'_>) -> Option<String> {
    let (kind, rest) = Element::first(attribute.contents)?;
    let kind = kind.of(OBJECT_ID)?.contents;
    let (value, rest) = Element::first(rest)?;
    if !rest.is_empty() {
        return None;
    }
    match keyword_of(kind) {
        Some(keyword) => Some(format!("{keyword}={}", escaped(&string_of(&value)?))),
        None => {
            let mut text = format!("{}=#", numbers_of(kind)?);
            for byte in value.whole {
                write!(text, "{byte:02x}").ok()?;
            }
            Some(text)
        }
    }
}

/// Returns the keyword of an attribute type (RFC 2253, section 2.3).
fn keyword_of(kind: &[u8]) -> Option<&'static str> {
    match kind {
        [0x55, 4, 3] => Some("CN"),
        [0x55, 4, 6] => Some("C"),
        [0x55, 4, 7] => Some("L"),
        [0x55, 4, 8] => Some("ST"),
        [0x55, 4, 9] => Some("STREET"),
        [0x55, 4, 10] => Some("O"),
        [0x55, 4, 11] => Some("OU"),
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => Some("DC"),
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => Some("UID"),
        _ => None,
    }
}

fn string_of(value: &Element<'_>) -> Option<String> {
    match value.tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
            str::from_utf8(value.contents).ok().map(str::to_owned)
        }
        BMP_STRING => {
            let (units, rest) = value.contents.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
        }
        _ => None,
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, letter) in value.chars().enumerate() {
        let is_outer_space = letter == ' ' && (index == 0 || index == last);
        if ",=+<>#;\"\\".contains(letter) || is_outer_space {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// Formats an OID in dotted decimal notation.
fn numbers_of(kind: &[u8]) -> Option<String> {
    let mut numbers = Vec::new();
    let mut number: u64 = 0;
    for byte in kind {
        number = number.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    if kind.last()? & 0x80 != 0 {
        return None;
    }
    let first = *numbers.first()?;
    let root = (first / 40).min(2);
    let mut text = format!("{root}.{}", first - root * 40);
    for number in &numbers[1..] {
        write!(text, ".{number}").ok()?;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(parts: Vec<(DnType, DnValue)>) -> Vec<u8> {
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind, value);
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn a_subject_has_the_form_that_java_prints() {
        let der = certificate(vec![
            (DnType::CountryName, utf8("DE")),
            (DnType::OrganizationName, utf8("Example, Inc.")),
            (DnType::CommonName, utf8(" a=b#c\\\u{fc} ")),
        ]);
        let expected = "CN=\\ a\\=b\\#c\\\\\u{fc}\\ ,O=Example\\, Inc.,C=DE";
        assert_eq!(subject_of(&der).expect("a subject"), expected);
    }

    #[test]
    fn other_types_are_numbers_and_bytes() {
        let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let value = DnValue::Ia5String("a@b.c".try_into().expect("it is ASCII"));
        let der = certificate(vec![(email, value), (DnType::CommonName, utf8("alice"))]);
        let expected = "CN=alice,1.2.840.113549.1.9.1=#16056140622e63";
        assert_eq!(subject_of(&der).expect("a subject"), expected);
    }

    #[test]
    fn what_is_cut_or_empty_has_no_subject() {
        assert_eq!(subject_of(&certificate(Vec::new())), None);
        let der = certificate(vec![(DnType::CommonName, utf8("alice"))]);
        for length in 0..der.len() {
            assert_eq!(subject_of(&der[..length]), None, "{length} bytes");
        }
    }
}
