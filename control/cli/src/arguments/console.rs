//! Commands on users, projects, tokens and sessions of the console.

use std::path::PathBuf;
use std::time::Duration;

use api::ByteSize;
use clap::{ArgGroup, Args, Subcommand};

use crate::table::View;

const ROLES: [&str; 3] = ["viewer", "operator", "administrator"];

#[derive(Debug, Subcommand)]
pub(crate) enum ConsoleCommand {
    /// Manage users, who log in with a password
    #[command(subcommand)]
    User(UserCommand),

    /// Manage projects: prefixes of volume names to which users are limited
    #[command(subcommand)]
    Project(ProjectCommand),

    /// Manage API tokens for programs
    #[command(subcommand)]
    Token(TokenCommand),

    /// List and end login sessions
    #[command(subcommand)]
    Session(SessionCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users
    #[command(visible_alias = "ls")]
    List(View),

    /// Add a user; the password is read from --password-file or MEMLANE_CONSOLE_PASSWORD
    Create {
        /// The name
        name: String,

        #[arg(long, value_parser = ROLES, help = "Role of the user")]
        role: String,

        /// Project to which the user is limited; may be repeated [default: all volumes]
        #[arg(long = "project", value_name = "PROJECT")]
        projects: Vec<String>,

        #[command(flatten)]
        password: Password,
    },

    /// Change a user; settings that are not given are kept
    #[command(group(ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// The user
        name: String,

        #[arg(long, value_parser = ROLES, group = "change", help = "Role of the user")]
        role: Option<String>,

        /// Projects to which the user is limited, replacing the previous ones; may be repeated
        #[arg(long = "project", value_name = "PROJECT", group = "change")]
        projects: Vec<String>,

        /// Give the user access to all volumes, without projects
        #[arg(long, conflicts_with = "projects", group = "change")]
        all_volumes: bool,

        /// Disable the user, and end all sessions
        #[arg(long, group = "change")]
        disable: bool,

        /// Enable the user
        #[arg(long, conflicts_with = "disable", group = "change")]
        enable: bool,

        /// File whose first line is the new password
        #[arg(long, value_name = "FILE", group = "change")]
        password_file: Option<PathBuf>,
    },

    /// Delete a user, with all sessions and tokens
    #[command(visible_alias = "rm")]
    Delete {
        /// The user
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Password {
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// List projects
    #[command(visible_alias = "ls")]
    List(View),

    /// Add a project
    Create {
        /// The name
        name: String,

        /// Prefix of the names of its volumes
        #[arg(long)]
        prefix: String,

        #[command(flatten)]
        quota: Quota,
    },

    /// Change a project; settings that are not given are kept
    #[command(group(ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// The project
        name: String,

        /// Prefix of the names of its volumes
        #[arg(long, group = "change")]
        prefix: Option<String>,

        /// Maximum sum of the sizes of its volumes
        #[arg(long, value_name = "SIZE", group = "change")]
        quota: Option<ByteSize>,

        /// Remove the limit on the sum of sizes
        #[arg(long, conflicts_with = "quota", group = "change")]
        no_quota: bool,

        /// Maximum number of its volumes and snapshots
        #[arg(long, value_name = "COUNT", group = "change")]
        quota_volumes: Option<u64>,
    },

    /// Delete a project without users; its volumes are kept
    #[command(visible_alias = "rm")]
    Delete {
        /// The project
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Quota {
    /// Maximum sum of the sizes of its volumes [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<ByteSize>,

    /// Maximum number of its volumes and snapshots [default: 100]
    #[arg(long, value_name = "COUNT")]
    pub(crate) quota_volumes: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// List tokens: all for administrators, otherwise your own
    #[command(visible_alias = "ls")]
    List(View),

    /// Create a token, with the password of its owner; a token cannot create tokens
    #[command(long_about = "Create a token, which acts for its owner and never exceeds the \
                            owner's rights. The secret is shown once: on standard output, or in a \
                            file. The owner's password is read from --password-file or \
                            MEMLANE_CONSOLE_PASSWORD; the command logs in with it and logs out at \
                            its end")]
    Create(TokenCreate),

    /// Revoke and delete a token
    #[command(visible_alias = "rm")]
    Delete {
        /// Id of the token, from memlane console token list
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// Name that describes the token's purpose
    pub(crate) name: String,

    #[arg(long, value_parser = ROLES, help = "Highest role of the token")]
    pub(crate) role: String,

    /// Project to which the token is limited; may be repeated [default: those of its owner]
    #[arg(long = "project", value_name = "PROJECT")]
    pub(crate) projects: Vec<String>,

    /// Lifetime, for example 12h or 30days [default: 90 days]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) expires: Option<Duration>,

    /// Owner of the token, who logs in to create it
    #[arg(long)]
    pub(crate) user: String,

    #[command(flatten)]
    pub(crate) password: Password,

    /// One-time code, if the owner has two-factor login
    #[arg(long)]
    pub(crate) code: Option<String>,

    /// New file for the secret, with mode 600, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions: all for administrators, otherwise your own
    #[command(visible_alias = "ls")]
    List(View),

    /// End a session, also one of single sign-on
    End {
        /// Id of the session, from memlane console session list
        id: String,
    },
}
