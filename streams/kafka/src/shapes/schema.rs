//! Constructors for descriptions of requests, modelled on Kafka's message schemas.

use kafka_protocol::messages::ApiKey;

/// Description of one request's body: its fields, and the versions that have them.
#[derive(Clone, Copy, Debug)]
pub struct RequestShape {
    pub api_key: ApiKey,
    versions: Versions,
    flexible_since: i16,
    fields: &'static [Field],
}

/// A field of a request or of a nested structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub count: Count,
    /// Tag of a field in the tagged section of flexible versions.
    pub tag: Option<u32>,
    versions: Versions,
    null_since: i16,
}

/// Encoding of a value. Lengths of strings and bytes are compact in flexible versions.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Structure(&'static [Field]),
}

/// Multiplicity of a field: a single value or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    One,
    Array,
}

#[derive(Clone, Copy, Debug)]
struct Versions {
    first: i16,
    last: i16,
}

/// Greater than any version.
const NEVER: i16 = i16::MAX;

impl RequestShape {
    /// Returns the described versions.
    pub fn versions(&self) -> std::ops::RangeInclusive<i16> {
        self.versions.first..=self.versions.last
    }

    /// Returns whether lengths are compact and structures end with a tagged section (KIP-482).
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }

    /// Returns the fields of all versions, in the order on the wire.
    pub fn fields(&self) -> &'static [Field] {
        self.fields
    }

    pub(super) const fn flexible_since(self, version: i16) -> Self {
        Self { flexible_since: version, ..self }
    }

    pub(super) const fn of(self, fields: &'static [Field]) -> Self {
        Self { fields, ..self }
    }
}

impl Field {
    /// Returns whether `version` has the field.
    pub fn is_in(&self, version: i16) -> bool {
        self.versions.first <= version && version <= self.versions.last
    }

    /// Returns whether `version` allows null for the value or the array.
    pub fn may_be_null(&self, version: i16) -> bool {
        version >= self.null_since
    }

    pub(super) const fn since(self, first: i16) -> Self {
        Self { versions: Versions { first, ..self.versions }, ..self }
    }

    pub(super) const fn until(self, last: i16) -> Self {
        Self { versions: Versions { last, ..self.versions }, ..self }
    }

    pub(super) const fn or_null(self) -> Self {
        self.or_null_since(0)
    }

    pub(super) const fn or_null_since(self, version: i16) -> Self {
        Self { null_since: version, ..self }
    }

    pub(super) const fn tagged(self, tag: u32) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// Turns the field into a structure, or an array of structures, with these fields.
    pub(super) const fn of(self, fields: &'static [Field]) -> Self {
        Self { kind: Kind::Structure(fields), ..self }
    }
}

/// Describes a request without fields, in versions `first` to `last`, none of which is flexible.
pub(super) const fn request(api_key: ApiKey, first: i16, last: i16) -> RequestShape {
    let versions = Versions { first, last };
    RequestShape { api_key, versions, flexible_since: NEVER, fields: &[] }
}

pub(super) const fn bool(name: &'static str) -> Field {
    one(name, Kind::Bool)
}

pub(super) const fn int8(name: &'static str) -> Field {
    one(name, Kind::Int8)
}

pub(super) const fn int16(name: &'static str) -> Field {
    one(name, Kind::Int16)
}

pub(super) const fn int32(name: &'static str) -> Field {
    one(name, Kind::Int32)
}

pub(super) const fn int64(name: &'static str) -> Field {
    one(name, Kind::Int64)
}

pub(super) const fn float64(name: &'static str) -> Field {
    one(name, Kind::Float64)
}

pub(super) const fn uuid(name: &'static str) -> Field {
    one(name, Kind::Uuid)
}

pub(super) const fn string(name: &'static str) -> Field {
    one(name, Kind::String)
}

pub(super) const fn bytes(name: &'static str) -> Field {
    one(name, Kind::Bytes)
}

pub(super) const fn structure(name: &'static str) -> Field {
    one(name, Kind::Structure(&[]))
}

pub(super) const fn int8s(name: &'static str) -> Field {
    array_of(name, Kind::Int8)
}

pub(super) const fn int32s(name: &'static str) -> Field {
    array_of(name, Kind::Int32)
}

pub(super) const fn int64s(name: &'static str) -> Field {
    array_of(name, Kind::Int64)
}

pub(super) const fn strings(name: &'static str) -> Field {
    array_of(name, Kind::String)
}

pub(super) const fn array(name: &'static str) -> Field {
    array_of(name, Kind::Structure(&[]))
}

const fn one(name: &'static str, kind: Kind) -> Field {
    let versions = Versions { first: 0, last: NEVER };
    Field { name, kind, count: Count::One, tag: None, versions, null_since: NEVER }
}

const fn array_of(name: &'static str, kind: Kind) -> Field {
    Field { count: Count::Array, ..one(name, kind) }
}
