//! Single sign-on with OpenID Connect: authorization code flow with PKCE.
//!
//! This module determines the user and the role from the provider's claims. It does not create
//! sessions. All input from the provider and the browser is verified; in doubt, the login is
//! rejected.

mod fetch;
mod flow;
mod id_token;
mod options;
mod provider;

pub(crate) use flow::{CALLBACK_PATH, SignOn, is_foreign};
pub(crate) use options::SignOnOptions;
