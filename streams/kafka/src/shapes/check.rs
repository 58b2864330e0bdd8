//! Validation of a body against its description. Reads each byte at most once and allocates
//! nothing.

use kafka_protocol::messages::ApiKey;

use super::requests::describe;
use super::schema::{Count, Field, Kind};

/// A body that is malformed for its request and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{api_key:?} request of version {version} is malformed at byte {offset}, in {field}")]
pub struct ShapeError {
    pub api_key: ApiKey,
    pub version: i16,
    /// Name of the field that was being read, as in Kafka's schemas.
    pub field: &'static str,
    /// Number of bytes of the body read so far.
    pub offset: usize,
    #[source]
    pub fault: ShapeFault,
}

/// Fault in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeFault {
    #[error("unsupported version of the request")]
    Undescribed,
    #[error("{needed} bytes are needed, but only {left} remain")]
    Cut { needed: usize, left: usize },
    #[error("invalid length {0}")]
    NegativeLength(i32),
    #[error("null value for a non-nullable field")]
    Null,
    #[error("a nullable struct must begin with 1 or -1, not {0}")]
    Presence(i8),
    #[error("too many array elements and tagged fields; the limit is {elements_max}")]
    TooManyElements { elements_max: usize },
    #[error("a varint is longer than 32 bits")]
    LongNumber,
    #[error("tag {0} is out of order")]
    TagOrder(u32),
    #[error("tag {0} is not valid in this version")]
    TagVersion(u32),
    #[error("the size of tagged field {0} does not match its content")]
    TagSize(u32),
}

/// Validates the lengths and counts in the body of a request, which follows the request's header.
///
/// - `elements_max` bounds the elements of all arrays together, where tagged fields count as
///   elements. This bounds the memory that the decoder allocates in addition to the body.
/// - The decoder accepts a valid body, unless a string in it is not UTF-8.
/// - Trailing bytes are ignored, as in Apache Kafka: librdkafka appends three to requests for the
///   metadata of all topics.
/// - Takes time proportional to the body. Fails at the first fault.
pub fn check(
    api_key: ApiKey,
    version: i16,
    body: &[u8],
    elements_max: usize,
) -> Result<(), ShapeError> {
    let Some(shape) = describe(api_key, version) else {
        let fault = ShapeFault::Undescribed;
        return Err(ShapeError { api_key, version, field: "the header", offset: 0, fault });
    };
    let is_flexible = shape.is_flexible(version);
    let mut walk = Walk {
        version,
        is_flexible,
        left: body,
        elements_max,
        elements_left: elements_max,
        field: "the body",
    };
    walk.body(shape.fields()).map_err(|fault| {
        let offset = body.len() - walk.left.len();
        ShapeError { api_key, version, field: walk.field, offset, fault }
    })
}

struct Walk<'body> {
    version: i16,
    is_flexible: bool,
    left: &'body [u8],
    elements_max: usize,
    elements_left: usize,
    /// Name of the current field, for errors.
    field: &'static str,
}

impl Walk<'_> {
    fn body(&mut self, fields: &[Field]) -> Result<(), ShapeFault> {
        self.structure(fields)
    }

    fn structure(&mut self, fields: &[Field]) -> Result<(), ShapeFault> {
        for field in fields {
            if field.tag.is_none() && field.is_in(self.version) {
                self.field(field)?;
            }
        }
        if self.is_flexible { self.tagged_section(fields) } else { Ok(()) }
    }

    fn field(&mut self, field: &Field) -> Result<(), ShapeFault> {
        self.field = field.name;
        let may_be_null = field.may_be_null(self.version);
        if field.count == Count::One {
            return self.value(field.kind, may_be_null);
        }
        let Some(count) = self.length(may_be_null)? else { return Ok(()) };
        self.claim_elements(count)?;
        for _ in 0..count {
            self.value(field.kind, false)?;
        }
        Ok(())
    }

    fn value(&mut self, kind: Kind, may_be_null: bool) -> Result<(), ShapeFault> {
        let byte_count = match kind {
            Kind::Bool | Kind::Int8 => 1,
            Kind::Int16 => 2,
            Kind::Int32 => 4,
            Kind::Int64 | Kind::Float64 => 8,
            Kind::Uuid => 16,
            Kind::String => self.string_length(may_be_null)?.unwrap_or(0),
            Kind::Bytes => self.length(may_be_null)?.unwrap_or(0),
            Kind::Structure(fields) if may_be_null => return self.nullable_structure(fields),
            Kind::Structure(fields) => return self.structure(fields),
        };
        self.skip(byte_count)
    }

    fn nullable_structure(&mut self, fields: &[Field]) -> Result<(), ShapeFault> {
        match i8::from_be_bytes(self.take()?) {
            1 => self.structure(fields),
            -1 => Ok(()),
            other => Err(ShapeFault::Presence(other)),
        }
    }

    /// Validates a tagged section: tags are unique and ascending, each with the size of its value
    /// (KIP-482). The size must be correct because decoders ignore it for fields that they know.
    fn tagged_section(&mut self, fields: &[Field]) -> Result<(), ShapeFault> {
        self.field = "a tagged section";
        let count = self.compact_number()?;
        self.claim_elements(to_usize(count))?;
        let mut tag_last = None;
        for _ in 0..count {
            self.field = "a tagged section";
            let tag = self.compact_number()?;
            if tag_last.is_some_and(|last| tag <= last) {
                return Err(ShapeFault::TagOrder(tag));
            }
            tag_last = Some(tag);
            let size = to_usize(self.compact_number()?);
            let known = fields.iter().find(|field| field.tag == Some(tag));
            match known {
                Some(field) if field.is_in(self.version) => self.tagged_field(field, size)?,
                Some(_) => return Err(ShapeFault::TagVersion(tag)),
                None => self.skip(size)?,
            }
        }
        Ok(())
    }

    fn tagged_field(&mut self, field: &Field, size: usize) -> Result<(), ShapeFault> {
        let left_before = self.left.len();
        self.field(field)?;
        match field.tag {
            Some(tag) if left_before - self.left.len() != size => Err(ShapeFault::TagSize(tag)),
            _ => Ok(()),
        }
    }

    /// Subtracts `count` elements from the limit. Each takes at least one byte.
    fn claim_elements(&mut self, count: usize) -> Result<(), ShapeFault> {
        self.has(count)?;
        let elements_max = self.elements_max;
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(ShapeFault::TooManyElements { elements_max })?;
        Ok(())
    }

    /// Reads the length of a byte string or array; `None` is null.
    fn length(&mut self, may_be_null: bool) -> Result<Option<usize>, ShapeFault> {
        if self.is_flexible {
            return self.compact_length(may_be_null);
        }
        let length = i32::from_be_bytes(self.take()?);
        classic_length(length, may_be_null)
    }

    fn string_length(&mut self, may_be_null: bool) -> Result<Option<usize>, ShapeFault> {
        if self.is_flexible {
            return self.compact_length(may_be_null);
        }
        let length = i16::from_be_bytes(self.take()?);
        classic_length(i32::from(length), may_be_null)
    }

    /// Reads a compact length: the length plus one, or 0 for null.
    fn compact_length(&mut self, may_be_null: bool) -> Result<Option<usize>, ShapeFault> {
        match self.compact_number()?.checked_sub(1) {
            Some(length) => Ok(Some(to_usize(length))),
            None if may_be_null => Ok(None),
            None => Err(ShapeFault::Null),
        }
    }

    /// Reads an unsigned varint: seven bits per byte, least significant first. The high bit marks
    /// that more bytes follow.
    fn compact_number(&mut self) -> Result<u32, ShapeFault> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let [byte] = self.take()?;
            number |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        let [byte] = self.take()?;
        if byte > 0x0F { Err(ShapeFault::LongNumber) } else { Ok(number | u32::from(byte) << 28) }
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], ShapeFault> {
        let Some((taken, left)) = self.left.split_first_chunk() else {
            return Err(ShapeFault::Cut { needed: BYTES, left: self.left.len() });
        };
        self.left = left;
        Ok(*taken)
    }

    fn skip(&mut self, count: usize) -> Result<(), ShapeFault> {
        self.has(count)?;
        self.left = &self.left[count..];
        Ok(())
    }

    fn has(&self, count: usize) -> Result<(), ShapeFault> {
        let left = self.left.len();
        if count <= left { Ok(()) } else { Err(ShapeFault::Cut { needed: count, left }) }
    }
}

fn classic_length(length: i32, may_be_null: bool) -> Result<Option<usize>, ShapeFault> {
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length != -1 => Err(ShapeFault::NegativeLength(length)),
        Err(_) if may_be_null => Ok(None),
        Err(_) => Err(ShapeFault::Null),
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).expect("an index has 32 bits at least")
}
