//! Random bodies of requests, generated from their descriptions, with the positions of their
//! lengths.

use std::ops::Range;

use kafka::shapes::{Count, Field, Kind, RequestShape};
use model::Random;

/// Exclusive upper bound of an array's elements, and of unknown fields in a tagged section.
const COUNT_LIMIT: usize = 4;

/// Exclusive upper bound of short strings. Long ones need two bytes for their compact length.
const SHORT_CHARS_LIMIT: usize = 12;
const LONG_CHARS_LIMIT: usize = 300;

/// A body that decoders accept and encode to the same bytes.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lengths: Vec<Length>,
}

/// A length or a count in a body.
#[derive(Clone)]
pub(crate) struct Length {
    pub(crate) range: Range<usize>,
    pub(crate) form: LengthForm,
    pub(crate) value: i64,
}

#[derive(Clone, Copy)]
pub(crate) enum LengthForm {
    Int8,
    Int16,
    Int32,
    Compact,
}

impl LengthForm {
    /// Encodes the value, truncated to the size of its type.
    pub(crate) fn encode(self, value: i64) -> Vec<u8> {
        let bytes = value.to_be_bytes();
        match self {
            Self::Int8 => bytes[7..].to_vec(),
            Self::Int16 => bytes[6..].to_vec(),
            Self::Int32 => bytes[4..].to_vec(),
            Self::Compact => encode_compact(value),
        }
    }
}

impl Body {
    pub(crate) fn random(shape: &RequestShape, version: i16, random: &mut Random) -> Self {
        let mut writer = BodyWriter::new(shape, version, random);
        writer.structure(shape.fields());
        writer.body
    }

    /// Generates a body in which every occurrence of `null_field` is null, and no other field is.
    pub(crate) fn with_null(
        shape: &RequestShape,
        version: i16,
        null_field: &Field,
        random: &mut Random,
    ) -> Self {
        let mut writer = BodyWriter::new(shape, version, random);
        writer.null_field = Some(null_field);
        writer.structure(shape.fields());
        writer.body
    }

    /// Returns the bytes with one length replaced.
    pub(crate) fn with_length(&self, length: &Length, value: i64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.splice(length.range.clone(), length.form.encode(value));
        bytes
    }
}

struct BodyWriter<'test> {
    version: i16,
    is_flexible: bool,
    /// If set, only this field is null and no array is empty. Otherwise nulls are random.
    null_field: Option<&'test Field>,
    random: &'test mut Random,
    body: Body,
}

impl<'test> BodyWriter<'test> {
    fn new(shape: &RequestShape, version: i16, random: &'test mut Random) -> Self {
        let is_flexible = shape.is_flexible(version);
        Self { version, is_flexible, null_field: None, random, body: Body::default() }
    }

    fn structure(&mut self, fields: &[Field]) {
        let version = self.version;
        for field in fields.iter().filter(|it| it.is_in(version) && it.tag.is_none()) {
            let is_null = match self.null_field {
                Some(null_field) => std::ptr::eq(field, null_field),
                None => field.may_be_null(version) && self.random.one_in(3),
            };
            self.field(field, is_null);
        }
        if self.is_flexible {
            self.tagged_section(fields);
        }
    }

    fn field(&mut self, field: &Field, is_null: bool) {
        if field.count == Count::One {
            return self.value(field, is_null);
        }
        if is_null {
            return self.length(LengthForm::Int32, None);
        }
        let count = self.random.index(COUNT_LIMIT).max(usize::from(self.null_field.is_some()));
        self.length(LengthForm::Int32, Some(count));
        for _ in 0..count {
            self.value(field, false);
        }
    }

    fn value(&mut self, field: &Field, is_null: bool) {
        match field.kind {
            // Decoders accept any byte except 0 as true.
            Kind::Bool => self.body.bytes.push(u8::from(self.random.one_in(2))),
            Kind::Int8 => self.fill(1),
            Kind::Int16 => self.fill(2),
            Kind::Int32 => self.fill(4),
            Kind::Int64 | Kind::Float64 => self.fill(8),
            Kind::Uuid => self.fill(16),
            Kind::String => self.text(LengthForm::Int16, is_null),
            Kind::Bytes => self.text(LengthForm::Int32, is_null),
            Kind::Structure(fields) => {
                if field.count == Count::One && field.may_be_null(self.version) {
                    self.put_length(LengthForm::Int8, if is_null { -1 } else { 1 });
                }
                if !is_null {
                    self.structure(fields);
                }
            }
        }
    }

    /// Writes a random string, or a byte string that contains one.
    fn text(&mut self, form: LengthForm, is_null: bool) {
        if is_null {
            return self.length(form, None);
        }
        let is_long = self.random.one_in(16);
        let limit = if is_long { LONG_CHARS_LIMIT } else { SHORT_CHARS_LIMIT };
        let count = self.random.index(limit);
        let text: String = (0..count).map(|_| self.random.pick(&['a', 'z', '-', 'ß'])).collect();
        self.length(form, Some(text.len()));
        self.body.bytes.extend(text.as_bytes());
    }

    fn fill(&mut self, count: usize) {
        let start = self.body.bytes.len();
        self.body.bytes.resize(start + count, 0);
        self.random.fill(&mut self.body.bytes[start..]);
    }

    /// Writes a random subset of the known tagged fields with non-default values, because encoders
    /// omit defaults, and some unknown fields.
    fn tagged_section(&mut self, fields: &[Field]) {
        let mut known: Vec<&Field> =
            fields.iter().filter(|it| it.tag.is_some() && it.is_in(self.version)).collect();
        known.retain(|_| self.random.one_in(2));
        known.sort_by_key(|field| field.tag);
        let unknown_count = self.random.index(COUNT_LIMIT);
        let count = known.len() + unknown_count;
        self.put_length(LengthForm::Compact, i64::try_from(count).expect("they are few"));
        for field in known {
            let tag = field.tag.expect("only those with a tag were kept");
            self.tagged(tag, |writer| writer.field(field, false));
        }
        let mut tag = fields.iter().filter_map(|it| it.tag).max().map_or(0, |highest| highest + 1);
        for _ in 0..unknown_count {
            let byte_count = self.random.index(SHORT_CHARS_LIMIT);
            self.tagged(tag, |writer| writer.fill(byte_count));
            tag += 1 + u32::try_from(self.random.below(1000)).expect("it is small");
        }
    }

    fn tagged(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.body);
        write(self);
        let inner = std::mem::replace(&mut self.body, before);
        self.body.bytes.extend(encode_compact(i64::from(tag)));
        let size = i64::try_from(inner.bytes.len()).expect("it is in memory");
        self.put_length(LengthForm::Compact, size);
        let start = self.body.bytes.len();
        self.body.bytes.extend(inner.bytes);
        let moved = |it: Length| {
            let range = start + it.range.start..start + it.range.end;
            Length { range, ..it }
        };
        self.body.lengths.extend(inner.lengths.into_iter().map(moved));
    }

    /// Writes a length, which flexible versions encode as a compact one. `None` is null.
    fn length(&mut self, classic: LengthForm, length: Option<usize>) {
        let length = length.map_or(-1, |it| i64::try_from(it).expect("it is in memory"));
        match self.is_flexible {
            true => self.put_length(LengthForm::Compact, length + 1),
            false => self.put_length(classic, length),
        }
    }

    fn put_length(&mut self, form: LengthForm, value: i64) {
        let start = self.body.bytes.len();
        self.body.bytes.extend(form.encode(value));
        let range = start..self.body.bytes.len();
        self.body.lengths.push(Length { range, form, value });
    }
}

/// Encodes an unsigned varint. Negative numbers are truncated to 32 bits.
fn encode_compact(value: i64) -> Vec<u8> {
    let mut left = value & i64::from(u32::MAX);
    let mut bytes = Vec::new();
    loop {
        let [.., low] = (left & 0x7F).to_be_bytes();
        left >>= 7;
        if left == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
