//! Command-line options about a provider.

use std::path::PathBuf;

use clap::Args;

use api::Role;

/// Provider that is trusted, and the roles that its claims give.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SignOnOptions {
    /// Issuer URL of the OpenID Connect provider for single sign-on, for example
    /// https://login.example
    #[arg(long, value_name = "URL", requires = "oidc_client", requires = "oidc_role")]
    pub(crate) oidc_issuer: Option<String>,

    /// Client id of the console at the provider; the redirect path is /console/v1/oidc/callback
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub(crate) oidc_client: Option<String>,

    /// File with the client secret, which other users cannot read; without it the console is a
    /// public client
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub(crate) oidc_secret_file: Option<PathBuf>,

    /// Role of users whose claim contains this value, for example storage-admins=administrator; may
    /// be repeated, and the highest role counts
    #[arg(long, value_name = "VALUE=ROLE", requires = "oidc_issuer", value_parser = mapping)]
    pub(crate) oidc_role: Vec<(String, Role)>,

    /// Claim that determines the role: a text, or a list of texts
    #[arg(long, value_name = "CLAIM", default_value = "groups")]
    pub(crate) oidc_role_claim: String,

    /// Claim that names users; choose one that users cannot change themselves
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub(crate) oidc_name_claim: String,

    /// CA certificates for the provider's TLS certificate, as PEM; without it those of the host
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub(crate) oidc_ca: Option<PathBuf>,

    /// Scopes to request from the provider in addition to openid
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_value = "profile")]
    pub(crate) oidc_scope: Vec<String>,
}

fn mapping(text: &str) -> Result<(String, Role), String> {
    let (value, role) = text.rsplit_once('=').ok_or("it is not VALUE=ROLE")?;
    let roles = [Role::Viewer, Role::Operator, Role::Administrator];
    let found = roles.into_iter().find(|it| it.name() == role);
    match (value, found) {
        ("", _) => Err("it has no value".to_owned()),
        (_, None) => Err("invalid role; use viewer, operator or administrator".to_owned()),
        (value, Some(role)) => Ok((value.to_owned(), role)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_names_a_value_and_a_role() {
        assert_eq!(mapping("a=b=viewer"), Ok(("a=b".to_owned(), Role::Viewer)));
        for text in ["", "viewer", "=viewer", "a=", "a=root", "a=Viewer"] {
            assert!(mapping(text).is_err(), "{text}");
        }
    }
}
