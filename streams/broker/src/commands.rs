//! Subcommands that manage files of the broker.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use access::UserFile;
use anyhow::{Context, bail};
use clap::Subcommand;

use crate::access_rules;

/// Maximum bytes read from standard input, far more than any password.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Manage the file of users. Reload a running broker with SIGHUP.
    #[command(subcommand)]
    User(UserCommand),
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or change a password; the password is read from standard input.
    Set {
        /// Name with which the user logs in.
        name: String,
        /// File of users, as the broker's option --user-file names it; created if missing.
        #[arg(long, value_name = "FILE")]
        user_file: PathBuf,
    },
    /// Remove a user.
    #[command(alias = "delete")]
    Remove {
        /// Name of the user.
        name: String,
        /// File of users.
        #[arg(long, value_name = "FILE")]
        user_file: PathBuf,
    },
    /// List users.
    List {
        /// File of users.
        #[arg(long, value_name = "FILE")]
        user_file: PathBuf,
    },
}

impl Command {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Self::User(command) = self;
        match command {
            UserCommand::Set { name, user_file } => {
                let password = read_password()?;
                Ok(access_rules::set_user(user_file.clone(), name, &password)?)
            }
            UserCommand::Remove { name, user_file } => {
                Ok(UserFile::open(user_file.clone())?.remove(name)?)
            }
            UserCommand::List { user_file } => {
                let file = UserFile::open(user_file.clone())?;
                let mut out = std::io::stdout().lock();
                for user in file.users().list() {
                    std::io::Write::write_fmt(&mut out, format_args!("{}\n", user.name))?;
                }
                Ok(())
            }
        }
    }
}

/// Reads a password from the first line of standard input.
fn read_password() -> anyhow::Result<String> {
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        bail!("no password: pass it on standard input through a pipe, not on the command line");
    }
    let mut text = String::new();
    input
        .by_ref()
        .take(PASSWORD_BYTES_MAX)
        .read_to_string(&mut text)
        .context("cannot read the password")?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        bail!("no password on standard input");
    }
    Ok(password.to_owned())
}
