//! Wire format of requests and responses.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/images`, `/v1/packs`, `/v1/journal` | a line `NAME SIZE` for each object |
//! | `GET /v1/KIND/NAME?offset=O&length=L` | these bytes |
//! | `PUT /v1/KIND/NAME` | empty: the manifest or extract is stored |
//! | `PUT /v1/journal/NAME?look=N` | `taken` or `free`: the number N, once the extract is stored |
//! | `PUT /v1/packs/NAME?offset=O`, with `&length=L` for the last part | empty |
//! | `POST /v1/images/NAME` | empty: the manifest is durable |
//! | `DELETE /v1/KIND/NAME` | empty: the object does not exist any more |
//! | `DELETE /v1/journal`, with a line NAME for each extract | empty: none of them exists |
//!
//! A removal of extracts that names none tells whether the server knows this request: it is refused
//! as invalid by those of earlier releases, which do not read its body.
//!
//! Every response has the header `memlane-store: 1`. An error response also has the header
//! `memlane-error` with the kind of error, and a text.

use hyper::StatusCode;
use image::{EXTRACT_BYTES_MAX, ExtractName, ImageErrorKind, ObjectName};

/// Header of every response, with the version of this protocol.
pub(crate) const VERSION_HEADER: &str = "memlane-store";
pub(crate) const VERSION: &str = "1";

/// Header with the kind of an error.
pub(crate) const ERROR_HEADER: &str = "memlane-error";

/// Prefix of every path.
pub(crate) const PREFIX: &str = "/v1/";

/// Answers to `look`.
pub(crate) const FREE: &str = "free";
pub(crate) const TAKEN: &str = "taken";

/// Unit of offsets and of the lengths of bodies.
pub(crate) const ALIGNMENT_BYTES: u64 = 4096;

/// Maximum length of one read.
pub(crate) const READ_BYTES_MAX: usize = 4 << 20;

/// Maximum length of a part of a pack.
pub(crate) const PART_BYTES_MAX: usize = 4 << 20;

/// Maximum number of extracts that one request removes.
pub(crate) const REMOVED_COUNT_MAX: usize = 4096;

/// Length of the line of an extract in a removal: 32, 10 and 10 digits.
const REMOVED_LINE_BYTES: usize = 32 + 1 + 10 + 1 + 10 + 1;

/// Maximum length of the body of a removal of extracts.
pub(crate) const REMOVED_BYTES_MAX: u64 = (REMOVED_COUNT_MAX * REMOVED_LINE_BYTES) as u64;

/// Maximum length of a manifest.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// Minimum transfer rate. Slower transfers time out.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Images,
    Packs,
    Journal,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Images, Self::Packs, Self::Journal];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Packs => "packs",
            Self::Journal => "journal",
        }
    }

    /// Parses the name of an object of this kind. Accepts only canonical names.
    pub(crate) fn object(self, name: &str) -> Option<ObjectName> {
        Some(match self {
            Self::Images => {
                let number = name.parse().ok()?;
                (image_name(number) == name).then_some(ObjectName::Image(number))?
            }
            Self::Packs => ObjectName::Pack(name.parse().ok()?),
            Self::Journal => ObjectName::Extract(name.parse().ok()?),
        })
    }
}

/// Target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    All(Kind),
    One(ObjectName),
}

impl Target {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix(PREFIX)?;
        let (word, name) = path.split_once('/').map_or((path, None), |(kind, it)| (kind, Some(it)));
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word)?;
        match name {
            None => Some(Self::All(kind)),
            Some(name) => kind.object(name).map(Self::One),
        }
    }
}

pub(crate) fn image_name(number: u32) -> String {
    format!("{number:010}")
}

/// Path of an object, below the prefix.
pub(crate) fn path_of(object: ObjectName) -> String {
    match object {
        ObjectName::Image(number) => format!("images/{}", image_name(number)),
        ObjectName::Pack(name) => format!("packs/{name}"),
        ObjectName::Extract(name) => format!("journal/{name}"),
    }
}

/// Body of a removal of extracts.
pub(crate) fn removal_of(names: &[ExtractName]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// Parses the body of a removal of extracts. Accepts only canonical names.
pub(crate) fn extracts_in(removal: &[u8]) -> Option<Vec<ExtractName>> {
    let lines = std::str::from_utf8(removal).ok()?.split_terminator('\n');
    lines.map(|line| line.parse().ok()).collect()
}

/// Returns the decimal value of a parameter, or `None` if it is missing. Fails if it is invalid.
pub(crate) fn parameter(query: &str, name: &str) -> Result<Option<u64>, ()> {
    let mut values = query.split('&').filter_map(|pair| pair.split_once('='));
    match values.find(|(key, _)| *key == name) {
        None => Ok(None),
        Some((_, value)) if value.bytes().all(|byte| byte.is_ascii_digit()) => {
            value.parse().map(Some).map_err(|_| ())
        }
        Some(_) => Err(()),
    }
}

/// Maximum length of the body that creates an object, or a part of it.
pub(crate) fn body_bytes_max(object: ObjectName) -> u64 {
    match object {
        ObjectName::Image(_) => MANIFEST_BYTES_MAX,
        ObjectName::Pack(_) => PART_BYTES_MAX as u64,
        ObjectName::Extract(_) => u64::from(EXTRACT_BYTES_MAX) + ALIGNMENT_BYTES,
    }
}

/// Maximum time to transfer this number of bytes, without the fixed part.
pub(crate) fn transfer_seconds_max(bytes: u64) -> u64 {
    bytes / BYTES_PER_SECOND_MIN
}

/// Kind of an error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    Image(ImageErrorKind),
    /// The server is overloaded or its disk hangs. The client may retry.
    Busy,
    /// The client's certificate has a name that the server does not accept.
    Client,
}

const KINDS: [(WireError, &str, StatusCode); 10] = [
    (WireError::Busy, "busy", StatusCode::SERVICE_UNAVAILABLE),
    (WireError::Client, "client", StatusCode::FORBIDDEN),
    (WireError::Image(ImageErrorKind::NotFound), "not-found", StatusCode::NOT_FOUND),
    (WireError::Image(ImageErrorKind::AlreadyExists), "exists", StatusCode::CONFLICT),
    (WireError::Image(ImageErrorKind::Damaged), "damaged", StatusCode::UNPROCESSABLE_ENTITY),
    (WireError::Image(ImageErrorKind::NoSpace), "no-space", StatusCode::INSUFFICIENT_STORAGE),
    (WireError::Image(ImageErrorKind::Denied), "denied", StatusCode::FORBIDDEN),
    (WireError::Image(ImageErrorKind::Locked), "locked", StatusCode::LOCKED),
    (WireError::Image(ImageErrorKind::Invalid), "invalid", StatusCode::BAD_REQUEST),
    (WireError::Image(ImageErrorKind::Unavailable), "unavailable", StatusCode::BAD_GATEWAY),
];

impl WireError {
    /// Returns the name and the status of this kind.
    pub(crate) fn name(self) -> (&'static str, StatusCode) {
        let unavailable = &KINDS[KINDS.len() - 1];
        let (_, name, status) = KINDS.iter().find(|(it, ..)| *it == self).unwrap_or(unavailable);
        (name, *status)
    }

    /// Returns the kind of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, it, _)| *it == name).map(|(kind, ..)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use image::PackName;

    use super::*;

    #[test]
    fn each_object_is_found_by_its_path() {
        let objects = [
            ObjectName::Image(7),
            ObjectName::Pack(PackName { writer: 5 << 100, index: 9 }),
            ObjectName::Extract(ExtractName { writer: 3, segment: 2, offset: 4096 }),
        ];
        for object in objects {
            let path = format!("{PREFIX}{}", path_of(object));
            assert_eq!(Target::parse(&path), Some(Target::One(object)), "{path}");
        }
        assert_eq!(Target::parse("/v1/packs"), Some(Target::All(Kind::Packs)));
    }

    #[test]
    fn paths_that_name_nothing_are_refused() {
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v2/images",
            "/v1/images/",
            "/v1/images/7",
            "/v1/images/+000000007",
            "/v1/images/0000000007/",
            "/v1/images/../packs/0000000007",
            "/v1/packs/..",
            "/v1/packs/../../etc/passwd",
            "/v1/packs/%2e%2e",
            "/v1/journal/.new-1",
            "/v1/lock",
            "//v1/images",
        ] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_removal_has_the_names_of_extracts_and_nothing_else() {
        let name = |segment| ExtractName { writer: 3, segment, offset: u32::MAX };
        let names: Vec<_> = (1..).map(name).take(REMOVED_COUNT_MAX).collect();
        let removal = removal_of(&names);
        assert_eq!(removal.len() as u64, REMOVED_BYTES_MAX);
        assert_eq!(extracts_in(removal.as_bytes()), Some(names));
        assert_eq!(extracts_in(b""), Some(Vec::new()));
        let one = name(1);
        for body in [
            "\n".to_owned(),
            format!("\n{one}\n"),
            format!("{one}\n\n"),
            format!("{one}\r\n"),
            format!(" {one}\n"),
            format!("{one},{one}\n"),
            format!("{one}\n../{one}\n"),
            format!("{one}\n{}\n", one.to_string().to_uppercase().replace("-0", "-")),
        ] {
            assert_eq!(extracts_in(body.as_bytes()), None, "{body:?}");
        }
        assert_eq!(extracts_in(&[0xFF, b'\n']), None);
    }

    #[test]
    fn each_kind_of_error_has_a_name_of_its_own() {
        for (kind, name, status) in KINDS {
            assert_eq!((WireError::named(name), kind.name()), (Some(kind), (name, status)));
        }
        let other = WireError::Image(ImageErrorKind::Fenced).name();
        assert_eq!(other.0, "unavailable");
    }

    #[test]
    fn parameters_are_whole_numbers() {
        assert_eq!(parameter("offset=12&length=5", "length"), Ok(Some(5)));
        assert_eq!(parameter("offset=12", "length"), Ok(None));
        for query in
            ["offset=", "offset=-1", "offset=+1", "offset=1x", "offset=99999999999999999999"]
        {
            assert_eq!(parameter(query, "offset"), Err(()), "{query}");
        }
    }
}
