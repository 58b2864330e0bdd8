//! Login by a provider of OpenID Connect: the authorization code flow with PKCE.
//!
//! It says who somebody is and which role the provider's claims give them; it begins no session.
//! Nothing that the provider or a browser sends is believed before it was checked, and where
//! anything is in doubt the login is refused.

mod fetch;
mod flow;
mod id_token;
mod options;
mod provider;

pub(crate) use flow::{CALLBACK_PATH, SignOn, is_foreign};
pub(crate) use options::SignOnOptions;
