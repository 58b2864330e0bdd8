//! Those who use the console: users, projects, tokens and sessions.

use std::path::PathBuf;
use std::time::Duration;

use api::ByteSize;
use clap::{ArgGroup, Args, Subcommand};

use crate::table::View;

const ROLES: [&str; 3] = ["viewer", "operator", "administrator"];

#[derive(Debug, Subcommand)]
pub(crate) enum ConsoleCommand {
    /// Users, who log in by a password
    #[command(subcommand)]
    User(UserCommand),

    /// Projects: prefixes of volume names that users are limited to
    #[command(subcommand)]
    Project(ProjectCommand),

    /// Tokens, by which programs ask the console
    #[command(subcommand)]
    Token(TokenCommand),

    /// Sessions that logins began
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

        #[arg(long, value_parser = ROLES, help = "What the user may")]
        role: String,

        /// A project that the user is limited to; may be repeated [default: all volumes]
        #[arg(long = "project", value_name = "PROJECT")]
        projects: Vec<String>,

        #[command(flatten)]
        password: Password,
    },

    /// Change a user; what is left out stays as it is
    #[command(group(ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// The user
        name: String,

        #[arg(long, value_parser = ROLES, group = "change", help = "What the user may")]
        role: Option<String>,

        /// Projects that the user is limited to from now on; may be repeated
        #[arg(long = "project", value_name = "PROJECT", group = "change")]
        projects: Vec<String>,

        /// Limit the user to no project any more
        #[arg(long, conflicts_with = "projects", group = "change")]
        all_volumes: bool,

        /// Let the user not log in any more, and end all sessions
        #[arg(long, group = "change")]
        disable: bool,

        /// Let the user log in again
        #[arg(long, conflicts_with = "disable", group = "change")]
        enable: bool,

        /// A file with a new password in its first line
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
    /// A file with the password in its first line
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

        /// What the names of its volumes begin with
        #[arg(long)]
        prefix: String,

        #[command(flatten)]
        quota: Quota,
    },

    /// Change a project; what is left out stays as it is
    #[command(group(ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// The project
        name: String,

        /// What the names of its volumes begin with
        #[arg(long, group = "change")]
        prefix: Option<String>,

        /// The sizes of its volumes together
        #[arg(long, value_name = "SIZE", group = "change")]
        quota: Option<ByteSize>,

        /// Bound the sizes no more
        #[arg(long, conflicts_with = "quota", group = "change")]
        no_quota: bool,

        /// Its volumes and snapshots together
        #[arg(long, value_name = "COUNT", group = "change")]
        quota_volumes: Option<u64>,
    },

    /// Delete a project that limits nobody; its volumes stay
    #[command(visible_alias = "rm")]
    Delete {
        /// The project
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Quota {
    /// The sizes of its volumes together [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<ByteSize>,

    /// Its volumes and snapshots together [default: 100]
    #[arg(long, value_name = "COUNT")]
    pub(crate) quota_volumes: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// List tokens: all for administrators, one's own for others
    #[command(visible_alias = "ls")]
    List(View),

    /// Make a token; it takes the password of its owner, as a token makes no tokens
    #[command(long_about = "Make a token, which acts for its owner and may never more than they \
                            may. Its secret is told once: alone on standard output, or in a file. \
                            The owner's password is read from --password-file or \
                            MEMLANE_CONSOLE_PASSWORD; the login for it ends with the command")]
    Create(TokenCreate),

    /// Delete a token, which is refused from then on
    #[command(visible_alias = "rm")]
    Delete {
        /// The token's id, as the list has it
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// Purpose, for those who read the list
    pub(crate) name: String,

    #[arg(long, value_parser = ROLES, help = "What it may at most")]
    pub(crate) role: String,

    /// A project that it is limited to; may be repeated [default: those of its owner]
    #[arg(long = "project", value_name = "PROJECT")]
    pub(crate) projects: Vec<String>,

    /// When it ends, such as 12h or 30days from now [default: 90 days]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) expires: Option<Duration>,

    /// Its owner, who logs in to make it
    #[arg(long)]
    pub(crate) user: String,

    #[command(flatten)]
    pub(crate) password: Password,

    /// Code of the owner's second factor, if that is on
    #[arg(long)]
    pub(crate) code: Option<String>,

    /// A new file for the secret, which only its owner may read, in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions: all for administrators, one's own for others
    #[command(visible_alias = "ls")]
    List(View),

    /// End a session, also one that a provider's login began
    End {
        /// The session's id, as the list has it
        id: String,
    },
}
