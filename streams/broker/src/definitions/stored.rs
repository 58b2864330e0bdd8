//! Storage format of a definition.

use std::borrow::Cow;

use anyhow::Context;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sql::{Definition, DefinitionKind};

/// Value of a record. The name is the key.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored<'a> {
    kind: DefinitionKind,
    statement: Cow<'a, str>,
    owner: Cow<'a, str>,
    version: u64,
}

impl Stored<'_> {
    pub(super) fn bytes_of(definition: &Definition) -> Bytes {
        let Definition { kind, statement, owner, version, .. } = definition;
        let (statement, owner) = (Cow::Borrowed(&**statement), Cow::Borrowed(&**owner));
        let stored = Stored { kind: *kind, statement, owner, version: *version };
        serde_json::to_vec(&stored).expect("it is plain data").into()
    }

    pub(super) fn read(name: &str, value: &[u8]) -> anyhow::Result<Definition> {
        let stored: Stored<'_> = serde_json::from_slice(value)
            .with_context(|| format!("cannot read the definition of {name:?}"))?;
        let Stored { kind, statement, owner, version } = stored;
        let (statement, owner) = (statement.into_owned(), owner.into_owned());
        Ok(Definition { name: name.to_owned(), kind, statement, owner, version })
    }
}
