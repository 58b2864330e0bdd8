//! Principals, in the form of access control lists.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{AccessError, AccessErrorKind};

/// The only type of principal.
const TYPE: &str = "User:";

/// Matches every principal in an access control list.
pub(crate) const EVERYONE: &str = "User:*";

/// Maximum length of a principal, including its type. Subjects of certificates can be long.
pub const PRINCIPAL_BYTES_MAX: usize = 1024;

/// `User:NAME`: a user's name, a certificate's subject, or `User:ANONYMOUS`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Returns the principal of an unauthenticated client.
    pub fn anonymous() -> Self {
        Self(Arc::from("User:ANONYMOUS"))
    }

    /// Returns the principal of a user or certificate subject.
    pub fn user(name: &str) -> Result<Self, AccessError> {
        format!("{TYPE}{name}").parse()
    }

    /// Returns `User:NAME`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name without the type.
    pub fn name(&self) -> &str {
        &self.0[TYPE.len()..]
    }
}

impl FromStr for Principal {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let refused = |why: &str| {
            let what = format!("cannot use the principal {text:.100?}: {why}");
            Err(AccessError::new(AccessErrorKind::NotAllowed, what))
        };
        match text.strip_prefix(TYPE) {
            None => refused("it does not begin with User:"),
            Some("") => refused("it has no name"),
            _ if text.len() > PRINCIPAL_BYTES_MAX => refused("it is too long"),
            _ if text.chars().any(char::is_control) => refused("it has control characters"),
            _ => Ok(Self(Arc::from(text))),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Allows map lookups without an allocation.
impl Borrow<str> for Principal {
    fn borrow(&self) -> &str {
        &self.0
    }
}
