//! Command-line options about a provider.

use std::path::PathBuf;

use clap::Args;

use api::Role;

/// Provider that is trusted, and the roles that its claims give.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SignOnOptions {
    /// Let users log in by this provider of OpenID Connect, as https://login.example
    #[arg(long, value_name = "URL", requires = "oidc_client", requires = "oidc_role")]
    pub(crate) oidc_issuer: Option<String>,

    /// The console's id at the provider, which sends browsers back to /console/v1/oidc/callback
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub(crate) oidc_client: Option<String>,

    /// A file with the console's secret at the provider, which others may not read; without it the
    /// console is a public client
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub(crate) oidc_secret_file: Option<PathBuf>,

    /// The role of those whose claim holds this value, as storage-admins=administrator; may be
    /// repeated, and the highest counts
    #[arg(long, value_name = "VALUE=ROLE", requires = "oidc_issuer", value_parser = mapping)]
    pub(crate) oidc_role: Vec<(String, Role)>,

    /// The claim that roles are taken from: a text, or a list of texts
    #[arg(long, value_name = "CLAIM", default_value = "groups")]
    pub(crate) oidc_role_claim: String,

    /// The claim that names users; one that users cannot change themselves
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub(crate) oidc_name_claim: String,

    /// The authorities that may have signed the provider's certificate, as PEM; without it those of
    /// the host
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub(crate) oidc_ca: Option<PathBuf>,

    /// Ask the provider for these scopes besides openid
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_value = "profile")]
    pub(crate) oidc_scope: Vec<String>,
}

fn mapping(text: &str) -> Result<(String, Role), String> {
    let (value, role) = text.rsplit_once('=').ok_or("it is not VALUE=ROLE")?;
    let roles = [Role::Viewer, Role::Operator, Role::Administrator];
    let found = roles.into_iter().find(|it| it.name() == role);
    match (value, found) {
        ("", _) => Err("it names no value".to_owned()),
        (_, None) => Err("a role is viewer, operator or administrator".to_owned()),
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
