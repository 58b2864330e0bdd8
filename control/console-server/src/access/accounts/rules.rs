//! Rules for all users of the console, in the file of accounts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AccountError, Accounts, Result, User, check_tag};

/// Rules for all users of the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// A user without a second factor can do nothing but enable one. Tokens and users of an
    /// identity provider are not affected.
    pub(crate) second_factor_required: bool,
}

impl Rules {
    pub(super) fn are_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Accounts {
    pub(crate) fn rules(&self) -> Rules {
        self.lock().state().rules
    }

    /// Returns whether a user must enable a second factor before doing anything else.
    pub(crate) fn must_enrol(&self, name: &str) -> bool {
        let file = self.lock();
        let state = file.state();
        let has_none =
            || state.users.iter().any(|it| it.name == name && it.second_factor.is_none());
        state.rules.second_factor_required && has_none()
    }

    /// Changes the rules on behalf of the user `by`. Returns the old rules. `expected` is the
    /// entity tag that the rules must have. To require second factors, the user must have one, so
    /// that nobody locks themselves out by accident.
    pub(crate) fn change_rules(
        &self,
        by: &str,
        rules: Rules,
        expected: Option<&str>,
    ) -> Result<Rules> {
        self.change(|state| {
            let old = state.rules;
            check_tag(&serde_json::json!(old), expected)?;
            let has_none = |it: &User| it.name == by && it.second_factor.is_none();
            if rules.second_factor_required && state.users.iter().any(has_none) {
                let what = "you have no second factor yourself: enable it first".to_owned();
                return Err(AccountError::Conflict(what));
            }
            state.rules = rules;
            Ok(old)
        })
    }
}
