//! Second factors in the file of accounts. A used code is on disk before the response is sent, so
//! that it cannot be used again after a crash or by a concurrent request.

use super::{AccountError, Accounts, Result, find_user};
use crate::access::second_factor::{CodeKind, SecondFactor};

impl Accounts {
    /// Verifies and consumes a code of a user's second factor. A code that is not valid now fails
    /// as invalid and causes no write, so the response time does not reveal that it was verified.
    pub(crate) fn take_code(&self, name: &str, code: &str, now: u64) -> Result<CodeKind> {
        self.change(|state| {
            let index = find_user(state, name)?;
            let factor = state.users[index].second_factor.as_mut();
            let factor = factor.ok_or_else(|| no_second_factor(name))?;
            let taken = factor.take(code, now);
            let taken = taken.map_err(|error| AccountError::NotStored(format!("{error:#}")))?;
            let wrong = || AccountError::Invalid("code", "wrong or expired code".to_owned());
            taken.ok_or_else(wrong)
        })
    }

    /// Enables a second factor for a user who has none.
    pub(crate) fn enable_second_factor(&self, name: &str, factor: SecondFactor) -> Result<()> {
        self.change(|state| {
            let index = find_user(state, name)?;
            let kept = &mut state.users[index].second_factor;
            if kept.is_some() {
                let what = format!("user {name:?} already has a second factor");
                return Err(AccountError::Conflict(what));
            }
            *kept = Some(factor);
            Ok(())
        })
    }

    pub(crate) fn disable_second_factor(&self, name: &str) -> Result<()> {
        self.change(|state| {
            let index = find_user(state, name)?;
            let removed = state.users[index].second_factor.take();
            removed.map(drop).ok_or_else(|| no_second_factor(name))
        })
    }
}

fn no_second_factor(name: &str) -> AccountError {
    AccountError::Conflict(format!("user {name:?} has no second factor"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::access::accounts::{FILE_NAME, NewUser};
    use crate::access::{PasswordHash, TotpSecret};

    /// Secret of RFC 6238, appendix B, in base64.
    const SECRET: &str = "\"MTIzNDU2Nzg5MDEyMzQ1Njc4OTA\"";

    #[test]
    fn a_code_that_counts_is_on_disk_and_a_wrong_one_writes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Accounts::open(folder.path()).expect("it opens");
        let password = r#"{"memory_kib": 8, "passes": 1, "salt": "", "hash": ""}"#;
        let password: PasswordHash = serde_json::from_str(password).expect("it is one");
        accounts.make_first("ann".to_owned(), password.clone()).expect("there is nobody");
        let (role, projects) = (api::Role::Viewer, Vec::new());
        let bob = NewUser { name: "bob".to_owned(), password, role, projects };
        accounts.add_user(bob).expect("there is room");
        let secret: TotpSecret = serde_json::from_str(SECRET).expect("it is one");
        let confirmed = SecondFactor::confirm(secret, "081804", 1_111_111_109);
        let (factor, _) = confirmed.expect("it is whole").expect("it is its code");
        accounts.enable_second_factor("ann", factor.clone()).expect("there is none");
        let again = accounts.enable_second_factor("ann", factor);
        assert!(matches!(again, Err(AccountError::Conflict(_))), "{again:?}");
        let file = || std::fs::metadata(folder.path().join(FILE_NAME)).expect("it is there").ino();
        let before = file();
        let take = |accounts: &Accounts, name, code| accounts.take_code(name, code, 1_111_111_111);
        for wrong in ["081804", "123456", ""] {
            let taken = take(&accounts, "ann", wrong);
            assert!(matches!(taken, Err(AccountError::Invalid("code", _))), "{taken:?}");
        }
        let of_other = take(&accounts, "bob", "050471");
        assert!(matches!(of_other, Err(AccountError::Conflict(_))), "{of_other:?}");
        assert_eq!(file(), before);
        assert_eq!(take(&accounts, "ann", "050471"), Ok(CodeKind::OfAuthenticator));
        assert_ne!(file(), before);
        drop(accounts);
        let accounts = Accounts::open(folder.path()).expect("it opens again");
        let taken = take(&accounts, "ann", "050471");
        assert!(matches!(taken, Err(AccountError::Invalid("code", _))), "{taken:?}");
        accounts.disable_second_factor("ann").expect("there is one");
        let none = accounts.disable_second_factor("ann");
        assert!(matches!(none, Err(AccountError::Conflict(_))), "{none:?}");
    }
}
