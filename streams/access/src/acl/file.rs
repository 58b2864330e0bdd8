//! The file of access control lists, and changes to it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::acl::entry::Acl;
use crate::acl::list::{Acls, Decision};
use crate::error::{AccessError, AccessErrorKind};
use crate::policy_file::{FORMAT_VERSION, PolicyFile};
use crate::principal::Principal;

/// Maximum number of entries.
pub const ACL_COUNT_MAX: usize = 100_000;

const HEADING: &str = "# Access control lists of the broker. What no entry allows is denied.\n\
                       # Rewritten with each change; comments are not kept.";

/// Options of access control in the broker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclOptions {
    /// `super.users`: principals that may do everything, regardless of the entries.
    pub super_users: Vec<Principal>,
    pub without_file: WithoutFile,
}

/// Rights of principals while there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutFile {
    /// Everything, for every client that the listener accepts.
    AllowEveryone,
    /// Nothing, except for super users (`allow.everyone` is off).
    DenyEveryone,
}

/// Current access control lists, and the file that they were read from.
#[derive(Debug)]
pub struct AclFile {
    file: PolicyFile,
    options: AclOptions,
    acls: Arc<Acls>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AclTable {
    version: u32,
    #[serde(default)]
    acl: Vec<Acl>,
}

impl AclFile {
    /// Reads the file. Without a file, the options apply, and the first addition creates it.
    pub fn open(path: PathBuf, options: AclOptions) -> Result<Self, AccessError> {
        let mut file = PolicyFile::new(path);
        let text = file.read()?;
        let entries = text.as_deref().map(|text| parse(text, &file)).transpose()?;
        file.remember(text.as_deref());
        let acls = Arc::new(options.acls(entries));
        Ok(Self { file, options, acls })
    }

    /// Returns the current access control lists.
    pub fn acls(&self) -> &Arc<Acls> {
        &self.acls
    }

    /// Reads the file again. On an error, the current entries remain in effect. A deleted file is
    /// an error, too, because it would allow everything.
    pub fn reload(&mut self) -> Result<(), AccessError> {
        let text = self.file.read()?;
        if text.is_none() && self.file.was_there() {
            return Err(self.file.gone());
        }
        let entries = text.as_deref().map(|text| parse(text, &self.file)).transpose()?;
        self.file.remember(text.as_deref());
        self.acls = Arc::new(self.options.acls(entries));
        Ok(())
    }

    /// Adds entries atomically: all of them or, on an error, none. Existing entries are kept.
    pub fn add(&mut self, acls: impl IntoIterator<Item = Acl>) -> Result<(), AccessError> {
        let mut entries = self.acls.table().cloned().unwrap_or_default();
        for acl in acls {
            acl.check()?;
            entries.insert(acl);
        }
        if entries.len() > ACL_COUNT_MAX {
            let what = format!("too many access list entries; the limit is {ACL_COUNT_MAX}");
            return Err(AccessError::new(AccessErrorKind::Full, what));
        }
        self.replace(entries)
    }

    /// Removes entries atomically: all of them or, on an error, none.
    pub fn remove(&mut self, acls: &BTreeSet<Acl>) -> Result<(), AccessError> {
        let Some(entries) = self.acls.table() else { return Ok(()) };
        let rest = entries.difference(acls).cloned().collect();
        self.replace(rest)
    }

    fn replace(&mut self, entries: BTreeSet<Acl>) -> Result<(), AccessError> {
        if self.acls.table() == Some(&entries) {
            return Ok(());
        }
        let acl = entries.iter().cloned().collect();
        self.file.replace(HEADING, &AclTable { version: FORMAT_VERSION, acl })?;
        self.acls = Arc::new(self.options.acls(Some(entries)));
        Ok(())
    }
}

impl AclOptions {
    fn acls(&self, entries: Option<BTreeSet<Acl>>) -> Acls {
        let without_file = match self.without_file {
            WithoutFile::AllowEveryone => Decision::Allowed,
            WithoutFile::DenyEveryone => Decision::Denied,
        };
        Acls::new(entries, &self.super_users, without_file)
    }
}

fn parse(text: &str, file: &PolicyFile) -> Result<BTreeSet<Acl>, AccessError> {
    let table: AclTable = file.parse(text)?;
    file.check_version(table.version)?;
    if table.acl.len() > ACL_COUNT_MAX {
        return Err(file
            .wrong(&format!("it has too many access list entries; the limit is {ACL_COUNT_MAX}")));
    }
    Ok(table.acl.into_iter().collect())
}
